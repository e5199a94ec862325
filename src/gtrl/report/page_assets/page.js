// --- the sections ---

const SECTIONS = [
  ["filters", "Filters"], ["results", "Results"], ["tables", "Tables"], ["curves", "Learning curves"],
  ["goals", "Success by goal"], ["maps", "Maze explorer"], ["diagnostics", "Diagnostics"], ["runs", "Runs"],
];

function setUpHeader() {
  const tasks = unique(data.runs.map((run) => run.task)).length;
  const runs = data.runs.length;
  const below = runs - data.complete;
  const rest = below ? `, ${below} with less` : "";
  byId("summary").textContent = runs
    ? `${plural(runs, "run")} of ${plural(methods.length, "method")} on ${plural(tasks, "task")}; ` +
      `${data.complete} measured by the paper's full protocol${rest}.`
    : "This report has no runs yet; the tables show the paper's numbers.";
  for (const group of data.groups) {
    if (group.of === null && !group.runs) continue;
    const measured = group.of === null ? plural(group.tasks, "task") : `${group.tasks} of ${group.of} tasks`;
    const protocol = `${plural(group.runs, "run")}, ${group.complete} complete`;
    const lines = [measured, protocol].map((line) => element("dd", {}, line));
    byId("tiles").append(element("div", {}, element("dt", {}, group.title), ...lines));
  }
  const links = SECTIONS.filter(([id]) => !byId(id).hidden);
  const items = links.map(([id, title]) => element("li", {}, element("a", { href: `#${id}` }, title)));
  byId("sections").append(element("ul", {}, ...items));
}

function setUpResults() {
  data.results.rows.forEach((row, place) => (row.run = data.runs[place]));
  const placeOf = (title) => data.results.columns.findIndex((column) => column.title === title);
  const [methodPlace, protocolPlace] = ["Method", "Protocol"].map(placeOf);
  const parts = tableOf(data.results, (row, made) => {
    const number = data.runs.indexOf(row.run);
    const method = made.children[methodPlace];
    method.replaceChildren(element("a", { href: `#run-${number}`, title: "config and metrics" }, row.run.method));
    const complete = row.run.protocol === "complete";
    made.children[protocolPlace].classList.add(complete ? "protocol-complete" : "protocol-below");
  });
  const none = element("p", {}, "No run matches the filters.");
  byId("results-table").append(...parts, none);
  filterListeners.push(() => {
    for (const row of data.results.rows) row.element.hidden = !isShown(row.run);
    none.hidden = data.runs.some(isShown) || !data.runs.length;
  });
}

function setUpTables() {
  data.tables.forEach((table, place) => {
    const details = element("details", { open: place === data.open_table }, element("summary", {}, table.title), ...tableOf(table));
    byId("tables-list").append(details);
  });
}

const titleOf = (run) => [element("strong", {}, run.method), ` on ${run.task}`];

function setUpDiagnostics() {
  const found = data.runs.filter((run) => run.diagnostics);
  if (!found.length) {
    byId("diagnostics").hidden = true;
    return;
  }
  for (const run of found) {
    const step = element("span", { class: "muted" }, `step ${grouped(run.diagnostics.step)}`);
    const summary = element("summary", {}, ...titleOf(run), " ", step);
    const details = element("details", { open: found.length === 1 }, summary);
    for (const section of run.diagnostics.sections) {
      details.append(element("h3", {}, section.title), element("p", { class: "muted" }, section.explanation));
      if (section.rows.length) details.append(...tableOf(section));
      if (section.finding) details.append(element("p", { class: "finding" }, section.finding));
    }
    byId("diagnostics-list").append(details);
    filterListeners.push(() => (details.hidden = !isShown(run)));
  }
}

function setUpRuns() {
  data.runs.forEach((run, number) => {
    const path = element("span", { class: "muted" }, run.path);
    const details = element("details", { id: `run-${number}` }, element("summary", {}, ...titleOf(run), " ", path));
    // The content is made when it is first looked at: a report may have many runs with long configs.
    details.addEventListener("toggle", () => {
      if (details.children.length === 1) details.append(...runContent(run, number));
      refreshPlots((target) => details.contains(target));
    });
    byId("runs-list").append(details);
    filterListeners.push(() => (details.hidden = !isShown(run)));
  });
}

function runContent(run, number) {
  return [
    element("p", {}, `Protocol: ${run.protocol}.`),
    element("h3", {}, "Metrics"),
    metricsPanel(run, number),
    element("h3", {}, "Config"),
    element("pre", { tabindex: "0", role: "region", "aria-label": "config.json" }, run.config),
  ];
}

/** Opens the run that the address names, so that a link to it shows its content. */
function openLinkedRun() {
  const target = byId(location.hash.slice(1));
  if (!target || target.tagName !== "DETAILS") return;
  target.open = true;
  target.querySelector("summary").focus();
  target.scrollIntoView();
}

setUpTheme();
setUpFilters();
setUpResults();
setUpTables();
setUpCurves();
setUpGoals();
setUpMaze();
setUpDiagnostics();
setUpRuns();
setUpHeader();
applyFilters();
themeListeners.push(() => refreshPlots());
window.addEventListener("hashchange", openLinkedRun);
window.addEventListener("beforeprint", () => {
  isPrinting = true;
  applyTheme();
  plots.forEach((plot, target) => drawIfNeeded(target, plot, true));
});
window.addEventListener("afterprint", () => {
  isPrinting = false;
  applyTheme();
});
openLinkedRun();
