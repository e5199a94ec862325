// --- maze explorer: the values of all positions for the goal that the reader chooses ---

const MAZE_INTRODUCTION =
  "Click a free cell to choose it as the goal. The colour of a position is its learned value for this goal.";

class Explorer {
  constructor(runs, container) {
    this.runs = runs;
    this.run = null;
    this.goal = null;
    this.probe = null; // the position whose value is shown
    this.seed = MEAN;
    this.build(container);
  }

  build(container) {
    const titles = this.runs.map((run, place) => [place, `${run.method} on ${run.task}`]);
    const scales = [["value", "value"], ["steps", "implied steps"]];
    const [runLabel, runSelect] = selectBox("Run", titles, { id: "maze-run" });
    const [seedLabel, seedSelect] = selectBox("Seed", [], { id: "maze-seed" });
    const [goalLabel, goalSelect] = selectBox("Goal", [], { id: "maze-goal" });
    const [scaleLabel, scaleSelect] = selectBox("Colour", scales, { id: "maze-colour" });
    const [pathsLabel, pathsBox] = checkBox("Rollouts", { id: "maze-paths", checked: true });
    const [arrowsLabel, arrowsBox] = checkBox("Policy arrows", { id: "maze-arrows" });
    Object.assign(this, { runSelect, seedSelect, goalSelect, scaleSelect, pathsBox, arrowsBox });
    Object.assign(this, { scaleLabel, arrowsLabel, pathsLabel });
    this.canvas = element("canvas", {
      id: "maze-canvas", tabindex: "0", role: "application", "aria-label": "Map of the maze",
      "aria-describedby": "maze-help maze-status",
    });
    this.status = element("p", { id: "maze-status", role: "status" });
    this.pointer = element("p", { id: "maze-pointer", "aria-live": "off" });
    this.bar = element("div", { class: "scale" });
    this.barLabels = element("div", { class: "scale-labels" });
    this.legend = element("ul", { class: "legend" });
    const controls = [runLabel, seedLabel, goalLabel, scaleLabel, pathsLabel, arrowsLabel];
    const parts = [this.status, this.pointer, this.bar, this.barLabels, this.legend, mazeHelp()];
    const side = element("div", { class: "side" }, ...parts);
    const stage = element("div", { class: "stage" }, this.canvas);
    container.append(
      element("p", { class: "muted" }, MAZE_INTRODUCTION),
      element("div", { class: "controls" }, ...controls),
      element("div", { class: "explorer" }, stage, side),
    );
    this.view = new MazeView(this.canvas);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(stage);
    themeListeners.push(() => this.draw());
  }

  listen() {
    this.runSelect.addEventListener("change", () => this.open(this.runs[Number(this.runSelect.value)]));
    this.seedSelect.addEventListener("change", () => {
      this.seed = this.seedSelect.value;
      this.update();
    });
    this.goalSelect.addEventListener("change", () => {
      const chosen = this.goalSelect.value;
      if (chosen) this.choose(cellAt(this.map, ...this.map.goals[Number(chosen) - 1]), Number(chosen));
    });
    for (const box of [this.scaleSelect, this.pathsBox, this.arrowsBox]) {
      box.addEventListener("change", () => this.update());
    }
    const click = (event) => this.map && this.choose(cellAt(this.map, ...this.view.position(event)));
    this.canvas.addEventListener("click", click);
    this.canvas.addEventListener("pointermove", (event) => this.map && this.look(this.view.position(event)));
    this.canvas.addEventListener("keydown", (event) => this.map && this.press(event));
  }

  /** Shows the map of a run. The goal stays where it is if the mazes are alike. */
  async open(run) {
    const before = this.map;
    const map = await unpackMap(run.map);
    if (run !== this.runs[Number(this.runSelect.value)]) return; // another run was chosen meanwhile
    Object.assign(this, { run, map });
    const isSame = before && JSON.stringify(before.free) === JSON.stringify(map.free);
    const mean = map.seeds.length > 1 ? [[MEAN, `mean of ${map.seeds.length} seeds`]] : [];
    fillSelect(this.seedSelect, [...mean, ...map.seeds.map((seed) => [seed, `seed ${seed}`])]);
    this.seed = this.seedSelect.value;
    const goals = map.goals.map((_, place) => [place + 1, `evaluation goal ${place + 1}`]);
    fillSelect(this.goalSelect, [["", "a cell"], ...goals]);
    this.scaleLabel.hidden = !map.gamma;
    if (!map.gamma) this.scaleSelect.value = "value";
    this.arrowsLabel.hidden = !map.arrow_points.length;
    this.pathsLabel.hidden = !map.path_index.length;
    this.showLegend();
    if (isSame && this.goal) {
      this.choose(this.goal, this.number);
      return;
    }
    this.probe = null;
    const first = map.goals.length ? cellAt(map, ...map.goals[0]) : map.cells[0];
    this.choose(goalNumber(map, first) < 0 ? map.cells[0] : first, 1);
  }

  /** Makes a free cell the goal; `number` is the evaluation goal that is meant if the cell has several. */
  choose(cell, number = 0) {
    if (goalNumber(this.map, cell) < 0) return;
    this.goal = cell;
    const found = evaluationGoals(this.map, cell);
    this.number = found.includes(number) ? number : found[0] || 0;
    this.update();
  }

  update() {
    if (!this.map || !this.goal) return;
    this.values = valuesFor(this.map, this.goal, this.seed);
    this.goalSelect.value = this.number || "";
    this.status.textContent = this.describe();
    this.showPointer();
    this.showScale();
    this.draw();
  }

  // --- what is said ---

  describe() {
    const { map, number } = this;
    const others = evaluationGoals(map, this.goal);
    const evaluated = number ? ` (evaluation goal ${others.join(" and ")})` : "";
    const parts = [`Goal: row ${this.goal[0]}, column ${this.goal[1]}${evaluated}.`];
    if (number) {
      const value = this.valueAt(...map.starts[number - 1]);
      parts.push(`Value at the start of goal ${number}: ${valueText(map, value)}.`);
    }
    const paths = this.paths();
    if (paths.length) {
      const recorded = map.recorded.filter(([seed, goal]) => goal === number && this.isSeed(seed));
      const total = recorded.reduce((sum, [, , count]) => sum + count, 0);
      const won = paths.filter(([, , , success]) => success).length;
      const more = total > paths.length ? `; ${total} were recorded` : "";
      parts.push(`${won} of ${plural(paths.length, "drawn episode")} reached it${more}.`);
    } else if (map.path_index.length) {
      parts.push("No episodes were recorded for this cell.");
    }
    return parts.join(" ");
  }

  showPointer() {
    if (!this.probe) {
      this.pointer.textContent = "Point at a position to see its value.";
      return;
    }
    const [x, y] = this.probe;
    const value = valueText(this.map, this.valueAt(x, y));
    this.pointer.textContent = `At (${x.toFixed(1)}, ${y.toFixed(1)}): value ${value}.`;
  }

  valueAt(x, y) {
    return this.values[pointAt(this.map, x, y)];
  }

  isSeed(seed) {
    return this.seed === MEAN || Number(this.seed) === seed;
  }

  paths() {
    return this.number ? this.map.path_index.filter(([seed, goal]) => goal === this.number && this.isSeed(seed)) : [];
  }

  look(position) {
    this.probe = position;
    this.pointer.setAttribute("aria-live", "off");
    this.showPointer();
    if (this.marksProbe) {
      this.marksProbe = false; // the pointer needs no mark of its own
      this.draw();
    }
  }

  // --- keys ---

  press(event) {
    const direction = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    const turn = { PageDown: 1, PageUp: -1 }[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey || !(direction || turn)) return;
    event.preventDefault();
    if (turn) this.choose(this.map.cells.at((goalNumber(this.map, this.goal) + turn) % this.map.cells.length));
    else if (event.shiftKey) this.moveProbe(direction);
    else this.moveGoal(direction);
  }

  /** Moves the goal to the next free cell in a direction, across walls. */
  moveGoal([up, right]) {
    const { map } = this;
    let [i, j] = [this.goal[0] + up, this.goal[1] + right];
    while (map.free[i]?.[j] === 0) [i, j] = [i + up, j + right];
    if (map.free[i]?.[j]) this.choose([i, j]);
  }

  /** Moves the position whose value is shown by one square of the map. */
  moveProbe([up, right]) {
    const { map } = this;
    const middle = (cell) => map.low + (cell + 0.5) * map.unit + map.point_size / 2;
    const [x, y] = this.probe || [middle(this.goal[1]), middle(this.goal[0])];
    const next = [x + right * map.point_size, y + up * map.point_size];
    if (pointAt(map, ...next) < 0) return;
    this.probe = next;
    this.marksProbe = true;
    this.pointer.setAttribute("aria-live", "polite"); // a screen reader says it; it would be too much for a mouse
    this.showPointer();
    this.draw();
  }

  // --- the picture ---

  /** What is shown as colour, between 0 and 1: the value, or how few steps it implies. */
  shades() {
    if (this.scaleSelect.value === "value") return this.values;
    const farthest = this.farthest();
    return this.values.map((value) => 1 - (impliedSteps(this.map, value) ?? farthest) / farthest);
  }

  farthest() {
    return Math.max(1, ...[...this.values].map((value) => impliedSteps(this.map, value) ?? 0));
  }

  showScale() {
    const inSteps = this.scaleSelect.value === "steps";
    const colours = VALUE_COLOURS.map((channels) => `rgb(${channels})`);
    this.bar.style.background = `linear-gradient(to right, ${colours.join(", ")})`;
    const ends = inSteps ? [`${grouped(Math.round(this.farthest()))} steps`, "0 steps"] : ["value 0", "0.5", "1"];
    this.barLabels.replaceChildren(...ends.map((end) => element("span", {}, end)));
  }

  draw() {
    if (!this.values || !this.view.resize(this.map)) return;
    const { map, view } = this;
    view.drawPlan(map, true);
    view.drawValues(map, this.shades());
    view.drawPlan(map, false);
    view.drawEdges(map);
    if (this.arrowsBox.checked) this.drawArrows();
    if (this.pathsBox.checked) for (const path of this.paths()) view.drawPath(this.pointsOf(path), Boolean(path[3]));
    this.drawMarks();
    this.canvas.dataset.goal = this.goal.join(",");
    this.canvas.setAttribute("aria-label", `Map of the maze: ${this.run.method} on ${this.run.task}`);
  }

  /** The positions of a path, and whether the agent jumped there: a step longer than a cell is a teleport. */
  pointsOf([, , , , first, count]) {
    const { map } = this;
    const position = (row) => [0, 1].map((axis) => {
      const size = (axis ? map.rows : map.columns) * map.unit;
      return map.low + (map.paths[2 * (first + row) + axis] / POSITION_STEPS) * size;
    });
    const found = Array.from({ length: count }, (_, row) => position(row));
    const isFar = (a, b) => Math.max(Math.abs(a[0] - b[0]), Math.abs(a[1] - b[1])) > map.unit;
    return found.map((point, row) => [...point, row > 0 && isFar(point, found[row - 1])]);
  }

  drawArrows() {
    const { map } = this;
    const count = map.arrow_points.length / 2;
    const seeds = chosenSeeds(map, this.seed);
    const goal = goalNumber(map, this.goal);
    const spacing = map.unit / Math.max(1, Math.sqrt(count / map.cells.length));
    for (let point = 0; point < count; point++) {
      const mean = [0, 1].map((axis) => {
        const at = (place) => map.arrows[2 * ((place * map.cells.length + goal) * count + point) + axis];
        return seeds.reduce((sum, place) => sum + at(place) / 127 / seeds.length, 0);
      });
      const scale = (0.85 * spacing) / Math.max(1, Math.hypot(...mean));
      const [x, y] = map.arrow_points.subarray(2 * point, 2 * point + 2);
      this.view.drawArrow(x, y, mean[0] * scale, mean[1] * scale);
    }
  }

  drawMarks() {
    const { map, view } = this;
    const size = Math.min(10, Math.max(5, (view.pixels * map.unit) / view.scale() / 9));
    map.entrances.forEach(([x, y]) => view.drawShape(x, y, size * 0.8, SQUARE, ENTRANCE, MARK));
    map.exits.forEach(([x, y]) => view.drawShape(x, y, size * 0.8, DIAMOND, EXIT, MARK));
    const cells = unique(map.goals.map(([x, y]) => cellAt(map, x, y).join(",")));
    for (const cell of cells.map((text) => text.split(",").map(Number))) {
      if (isCell(cell, this.goal)) continue;
      const [x, y] = map.goals[evaluationGoal(map, cell) - 1];
      view.drawShape(x, y, Math.max(8, size), CIRCLE, "#ffffff", MARK, evaluationGoals(map, cell).join(","));
    }
    if (this.number) view.drawShape(...map.starts[this.number - 1], size * 0.8, CIRCLE, MARK, "#ffffff");
    const [y, x] = this.goal.map((place) => map.low + (place + 0.5) * map.unit);
    view.drawShape(x, y, size * 1.8, STAR, MARK, "#ffffff");
    if (this.probe && this.marksProbe) view.drawShape(...this.probe, 4, SQUARE, "#ffffff", MARK);
  }

  showLegend() {
    const shape = (corners, size, fill, edge) => {
      const points = corners.map(([x, y]) => `${13 + x * size},${9 - y * size}`).join(" ");
      return svgElement("polygon", { points, fill, stroke: edge });
    };
    const line = (tone, dash) => [
      svgElement("line", { x1: 0, y1: 9, x2: 26, y2: 9, stroke: MARK, "stroke-width": 4, "stroke-dasharray": dash }),
      svgElement("line", { x1: 0, y1: 9, x2: 26, y2: 9, stroke: tone, "stroke-width": 2, "stroke-dasharray": dash }),
    ];
    const items = [["goal", [shape(STAR, 9, MARK, "#ffffff")]]];
    if (this.map.goals.length) {
      items.push(["start of the evaluation", [shape(CIRCLE, 6, MARK, "#ffffff")]]);
      items.push(["other evaluation goals, by number", [shape(CIRCLE, 6, "#ffffff", MARK)]]);
    }
    if (this.map.entrances.length) items.push(["teleporter", [shape(SQUARE, 6, ENTRANCE, MARK)]]);
    if (this.map.exits.length) items.push(["teleporter exit (one at random)", [shape(DIAMOND, 6, EXIT, MARK)]]);
    if (this.map.path_index.length) {
      items.push(["successful episode", line(SUCCESS, "")], ["failed episode", line(FAILURE, "6 3")]);
    }
    const made = items.map(([text, shapes]) =>
      element("li", {}, svgElement("svg", { viewBox: "0 0 26 18", "aria-hidden": "true" }, ...shapes), text),
    );
    this.legend.replaceChildren(...made);
  }
}

function mazeHelp() {
  const key = (name) => element("kbd", {}, name);
  return element("p", { id: "maze-help", class: "muted" },
    "Keys: ", key("arrows"), " move the goal, ", key("Page Up"), " and ", key("Page Down"), " visit all cells, ",
    key("Shift"), " + ", key("arrows"), " move the position whose value is shown.");
}

function fillSelect(select, options) {
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
}

function setUpMaze() {
  const runs = data.runs.filter((run) => run.map);
  if (!runs.length) {
    byId("maps").hidden = true;
    return;
  }
  if (!window.DecompressionStream) {
    byId("maze").append(element("p", {}, "The maps need a newer browser: one with DecompressionStream."));
    return;
  }
  const explorer = new Explorer(runs, byId("maze"));
  const first = runs.find((run) => run.method === "GTRL") || runs[0];
  explorer.runSelect.value = runs.indexOf(first);
  explorer.open(first);
}
