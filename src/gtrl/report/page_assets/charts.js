// --- charts: drawn by Plotly once they come into view ---

// Colours differ in lightness; dashes, symbols and patterns tell methods apart in grey.
const COLOURS = {
  light: ["#1b4f8a", "#d1603d", "#7d858c", "#22303c", "#2e7d5b", "#b8860b", "#7d4a9c", "#5f9bd1", "#b3402a", "#94b89e"],
  dark: ["#6ea8e6", "#f08a62", "#a3abb2", "#e3e8ec", "#5fbf93", "#d9ab3a", "#b98ad6", "#a8cdf0", "#e36f57", "#b8d6c0"],
};
const DASHES = ["solid", "dash", "dashdot", "longdash"];
const DASH_LENGTHS = { solid: "", dash: "6 4", dashdot: "7 3 2 3", longdash: "10 4" };
const SYMBOLS = [
  "circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "pentagon", "star", "hexagon",
];
const PATTERNS = ["", "/", ".", "x", "\\", "+", "-", "|"];
const hasMouse = !window.matchMedia("(pointer: coarse)").matches; // on a touch screen, dragging scrolls the page
// Only these buttons: Plotly's own list has one that sends a chart to its makers.
const PLOT_OPTIONS = {
  displaylogo: false, responsive: true, typesetMath: false, doubleClick: "reset+autosize",
  displayModeBar: hasMouse ? "hover" : false, modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
};

function lookOf(method) {
  const place = Math.max(0, methods.indexOf(method));
  const colours = COLOURS[isDark() ? "dark" : "light"];
  return {
    colour: colours[place % colours.length],
    dash: DASHES[(place + Math.floor(place / colours.length)) % DASHES.length],
    symbol: SYMBOLS[place % SYMBOLS.length],
    pattern: PATTERNS[place % PATTERNS.length],
  };
}

/** A short line in the look of a method, for the list of methods, which is also the legend of the charts. */
function swatch(method) {
  const line = svgElement("line", { x1: 1, y1: 7, x2: 33, y2: 7, "stroke-width": 2.5 });
  const paint = () => {
    const look = lookOf(method);
    line.setAttribute("stroke", look.colour);
    line.setAttribute("stroke-dasharray", DASH_LENGTHS[look.dash]);
  };
  themeListeners.push(paint);
  paint();
  return svgElement("svg", { class: "swatch", viewBox: "0 0 34 14", "aria-hidden": "true" }, line);
}

/** Text for Plotly, which understands some HTML: everything is shown as it is. */
const plotText = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const transparent = (hex, alpha) => {
  const part = (start) => parseInt(hex.slice(start, start + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
};

function plotLayout(xTitle, yTitle, changes = {}) {
  const axis = (title, more) => ({
    title: { text: title, standoff: 6, font: { size: 12 } },
    gridcolor: colour("grid"), linecolor: colour("line"), zerolinecolor: colour("line"), automargin: true, ...more,
  });
  const family = getComputedStyle(document.body).fontFamily;
  return {
    margin: { l: 46, r: 10, t: 8, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family, size: 12, color: colour("ink") },
    hoverlabel: { bgcolor: colour("surface"), bordercolor: colour("line"), font: { family, color: colour("ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("muted"), activecolor: colour("ink") },
    showlegend: false, dragmode: hasMouse ? "zoom" : false, hovermode: "closest",
    ...changes,
    xaxis: axis(xTitle, changes.xaxis), yaxis: axis(yTitle, changes.yaxis),
  };
}

// --- drawing what is in view ---

const plots = new Map(); // element: { make, stale, inView }
const viewObserver = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const plot = plots.get(entry.target);
      plot.inView = entry.isIntersecting;
      drawIfNeeded(entry.target, plot);
    }
  },
  { rootMargin: "300px" },
);

/** Registers a chart; `make()` returns its traces and layout. */
function addPlot(target, make) {
  plots.set(target, { make, stale: true, inView: false });
  viewObserver.observe(target);
}

function drawIfNeeded(target, plot, always = false) {
  if (!plot.stale || !(plot.inView || always) || !target.offsetParent) return;
  plot.stale = false;
  const { traces, layout } = plot.make();
  Plotly.react(target, traces, layout, PLOT_OPTIONS);
}

/** Draws charts again: at once where they are in view, later otherwise. */
function refreshPlots(chosen = () => true) {
  for (const [target, plot] of plots) {
    if (!chosen(target)) continue;
    plot.stale = true;
    drawIfNeeded(target, plot);
  }
}

/** One card per task with a chart; the card is hidden while none of its runs is shown. */
function plotCards(container, prefix, runs, makeFor, label) {
  const tasks = unique(runs.map((run) => run.task));
  container.classList.toggle("few", tasks.length < 3);
  const cards = tasks.map((task, place) => {
    const plot = element("div", { class: "plot", id: `${prefix}-${place}`, role: "img" });
    const card = element("div", { class: "card" }, element("h3", {}, task), plot);
    const shown = () => runs.filter((run) => run.task === task && isShown(run));
    container.append(card);
    addPlot(plot, () => makeFor(shown()));
    return () => {
      card.hidden = shown().length === 0;
      plot.setAttribute("aria-label", `${label} on ${task}. ${shown().map(spoken).join("; ")}.`);
    };
  });
  const none = element("p", {}, runs.length ? "No run matches the filters." : "No run has been evaluated.");
  container.after(none);
  filterListeners.push(() => {
    cards.forEach((update) => update());
    none.hidden = runs.some(isShown);
    refreshPlots((target) => target.id.startsWith(prefix));
  });
}

const spoken = (run) => {
  const last = run.curve.means.length - 1;
  return last < 0 ? run.method : `${run.method}: ${inPercent(run.curve.means[last])} at step ${run.curve.steps[last]}`;
};

// --- learning curves ---

// A new revision gives up the zoom that the reader chose by dragging; filters keep it.
const curveView = { axis: "steps", from: null, to: null, revision: 0 };

function curveTraces(run) {
  const { colour: tone, dash, symbol } = lookOf(run.method);
  const known = run.curve[curveView.axis].map((x, place) => [x, place]).filter(([x]) => x !== null);
  const xs = known.map(([x]) => x);
  const means = known.map(([, place]) => run.curve.means[place]);
  const spread = known.map(([, place]) => run.curve.deviations[place]);
  const texts = known.map(
    ([x, place]) =>
      `${plotText(run.method)}: ${withDeviation(run.curve.means[place], run.curve.deviations[place])} %<br>` +
      `step ${grouped(run.curve.steps[place])}` + (curveView.axis === "minutes" ? `, ${x.toFixed(1)} minutes` : ""),
  );
  const name = plotText(run.method);
  const line = {
    x: xs, y: means, name, mode: "lines+markers", hoverinfo: "text", hovertext: texts,
    line: { color: tone, dash, width: 2 }, marker: { color: tone, symbol, size: 6 },
  };
  if (spread.every((deviation) => deviation === null)) return [line];
  const edge = (sign) => means.map((mean, place) => mean + sign * (spread[place] || 0));
  const border = { x: xs, mode: "lines", line: { width: 0 }, hoverinfo: "skip", name };
  const band = transparent(tone, 0.15);
  return [{ ...border, y: edge(-1) }, { ...border, y: edge(1), fill: "tonexty", fillcolor: band }, line];
}

function paperLine(run) {
  const { colour: tone } = lookOf(run.method);
  const line = { color: tone, width: 1.5, dash: "dot" };
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: run.paper, y1: run.paper, line, name: plotText(run.method) };
}

function curvesOf(runs) {
  const known = runs.flatMap((run) => run.curve[curveView.axis]).filter((x) => x !== null);
  const last = Math.max(0, ...known);
  const range = [curveView.from ?? -0.03 * last, curveView.to ?? 1.03 * last];
  const xTitle = curveView.axis === "steps" ? "gradient steps" : "minutes of training";
  return {
    traces: runs.flatMap(curveTraces),
    layout: plotLayout(xTitle, "success in %", {
      uirevision: curveView.revision,
      shapes: runs.filter((run) => run.paper !== null).map(paperLine),
      xaxis: known.length ? { range } : {},
      yaxis: { range: [-3, 103] },
    }),
  };
}

function setUpCurves() {
  const evaluated = data.runs.filter((run) => run.curve.steps.length);
  plotCards(byId("curve-plots"), "curve", evaluated, curvesOf, "Learning curves");
  const refresh = () => refreshPlots((target) => target.id.startsWith("curve"));
  const numberIn = (id) => (byId(id).value === "" || !isFinite(byId(id).value) ? null : Number(byId(id).value));
  const readRange = () => {
    const [from, to] = [numberIn("curve-from"), numberIn("curve-to")];
    const isRange = from === null || to === null || from < to;
    byId("curve-to").setCustomValidity(isRange ? "" : "The end must lie after the beginning.");
    if (!isRange) return;
    Object.assign(curveView, { from, to, revision: curveView.revision + 1 });
    refresh();
  };
  const reset = () => {
    byId("curve-from").value = byId("curve-to").value = "";
    readRange();
  };
  byId("curve-axis").addEventListener("change", (event) => {
    curveView.axis = event.target.value;
    reset();
  });
  byId("curve-from").addEventListener("change", readRange);
  byId("curve-to").addEventListener("change", readRange);
  byId("curve-reset").addEventListener("click", reset);
}

// --- success by goal ---

function goalBars(run, goals) {
  const { colour: tone, pattern } = lookOf(run.method);
  const found = goals.map((name) => run.goals.find((goal) => goal.name === name));
  const text = (goal) =>
    `${plotText(run.method)}, ${plotText(goal.name)}: ${withDeviation(goal.mean, goal.deviation)} %`;
  const deviations = found.map((goal) => goal?.deviation ?? 0);
  const stripes = { shape: pattern, fillmode: "overlay", fgcolor: colour("background"), size: 6, solidity: 0.25 };
  return {
    type: "bar", x: goals.map((_, place) => place), y: found.map((goal) => (goal ? goal.mean : null)),
    name: plotText(run.method), hoverinfo: "text", textposition: "none",
    hovertext: found.map((goal) => {
      if (!goal) return "";
      return text(goal) + (goal.paper === null ? "" : `<br>paper: ${goal.paper} %`);
    }),
    error_y: { type: "data", array: deviations, thickness: 1.2, width: 2, color: colour("ink") },
    marker: { color: tone, pattern: stripes },
  };
}

/** The paper's number of each goal, as a short line across the bar it belongs to. */
function paperGoals(run, place, count, goals) {
  const width = 0.8 / count;
  const known = run.goals.filter((goal) => goal.paper !== null);
  return known.map((goal) => {
    const middle = goals.indexOf(goal.name) - 0.4 + width * (place + 0.5);
    const line = { color: colour("ink"), width: 3 };
    return { type: "line", x0: middle - width / 2, x1: middle + width / 2, y0: goal.paper, y1: goal.paper, line };
  });
}

function goalsOf(runs) {
  const goals = unique(runs.flatMap((run) => run.goals.map((goal) => goal.name)));
  const ticks = { tickvals: goals.map((_, place) => place), ticktext: goals.map(plotText) };
  return {
    traces: runs.map((run) => goalBars(run, goals)),
    layout: plotLayout("", "success in %", {
      barmode: "group", bargap: 0.2, bargroupgap: 0, margin: { l: 46, r: 10, t: 8, b: 24 },
      shapes: runs.flatMap((run, place) => paperGoals(run, place, runs.length, goals)),
      xaxis: { ...ticks, showgrid: false, zeroline: false },
      yaxis: { range: [0, 103] },
    }),
  };
}

function setUpGoals() {
  plotCards(byId("goal-plots"), "goal", data.runs.filter((run) => run.goals.length), goalsOf, "Success by goal");
}

// --- metrics of a run ---

function metricOf(run, name) {
  const tones = COLOURS[isDark() ? "dark" : "light"];
  const traces = run.metrics.seeds.map((seed, place) => ({
    x: run.metrics.steps[place], y: run.metrics.series[name][place], name: `seed ${seed}`, mode: "lines",
    hoverinfo: "x+y+name",
    line: { color: tones[place % tones.length], dash: DASHES[place % DASHES.length], width: 1.6 },
  }));
  const legend = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 };
  return { traces, layout: plotLayout("gradient steps", plotText(name), { showlegend: true, legend }) };
}

/** A chart of one metric, and a box to choose it. */
function metricsPanel(run, number) {
  const names = Object.keys(run.metrics.series);
  if (!names.length) return element("p", { class: "muted" }, "The run has no metrics.");
  const [label, select] = selectBox("Metric", names.map((name) => [name, name]));
  const plot = element("div", { class: "plot", id: `metric-${number}`, role: "img" });
  const describe = () => plot.setAttribute("aria-label", `${select.value} against gradient steps, one line per seed`);
  describe();
  addPlot(plot, () => metricOf(run, select.value));
  select.addEventListener("change", () => {
    describe();
    refreshPlots((target) => target === plot);
  });
  return element("div", {}, element("div", { class: "controls" }, label), plot);
}
