// --- filters that all sections share ---

const filters = { group: "", task: "", text: "", methods: new Set() };
const filterListeners = [];
const methods = unique(["GTRL", "TRL", ...data.runs.map((run) => run.method)]).filter((method) =>
  data.runs.some((run) => run.method === method),
);
methods.forEach((method) => filters.methods.add(method));

function isShown(run) {
  const words = `${run.task} ${run.group} ${run.method} ${run.path} ${run.protocol}`.toLowerCase();
  return (
    (!filters.group || run.group === filters.group) &&
    (!filters.task || run.task === filters.task) &&
    filters.methods.has(run.method) &&
    words.includes(filters.text)
  );
}

function applyFilters() {
  const shown = data.runs.filter(isShown).length;
  byId("filter-count").textContent = data.runs.length
    ? `${shown} of ${plural(data.runs.length, "run")} shown.`
    : "There are no runs in this report.";
  for (const listener of filterListeners) listener();
}

function setUpFilters() {
  fillOptions("group", "all groups", unique(data.runs.map((run) => run.group)));
  fillTasks();
  byId("filter-group").addEventListener("change", (event) => {
    filters.group = event.target.value;
    fillTasks();
    applyFilters();
  });
  byId("filter-task").addEventListener("change", (event) => {
    filters.task = event.target.value;
    applyFilters();
  });
  byId("filter-text").addEventListener("input", (event) => {
    filters.text = event.target.value.trim().toLowerCase();
    applyFilters();
  });
  byId("filter-reset").addEventListener("click", resetFilters);
  byId("filter-methods").append(methodBoxes());
}

function fillOptions(name, all, values) {
  const options = [["", all], ...values.map((value) => [value, value])];
  const made = options.map(([value, text]) => element("option", { value }, text));
  byId(`filter-${name}`).replaceChildren(...made);
  byId(`filter-${name}`).value = filters[name];
}

/** Lists the tasks of the chosen group; a chosen task of another group is given up. */
function fillTasks() {
  const tasks = unique(data.runs.filter((run) => !filters.group || run.group === filters.group).map((run) => run.task));
  if (!tasks.includes(filters.task)) filters.task = "";
  fillOptions("task", "all tasks", tasks);
}

function methodBoxes() {
  const boxes = methods.map((method) => {
    const box = element("input", { type: "checkbox", checked: true, value: method });
    box.addEventListener("change", () => {
      if (box.checked) filters.methods.add(method);
      else filters.methods.delete(method);
      applyFilters();
    });
    return element("label", {}, box, swatch(method), method);
  });
  const choose = (title, checked) => {
    const button = element("button", { type: "button" }, title);
    button.addEventListener("click", () => checkMethods(checked));
    return button;
  };
  const buttons = methods.length > 2 ? [choose("All", true), choose("None", false)] : [];
  return element("div", {}, ...boxes, ...buttons);
}

function checkMethods(checked) {
  for (const box of byId("filter-methods").querySelectorAll("input")) box.checked = checked;
  filters.methods = new Set(checked ? methods : []);
  applyFilters();
}

function resetFilters() {
  Object.assign(filters, { group: "", task: "", text: "" });
  byId("filter-group").value = "";
  byId("filter-text").value = "";
  fillTasks();
  checkMethods(true);
}
