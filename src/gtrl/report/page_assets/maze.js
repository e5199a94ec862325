// --- maze explorer: the values of all positions for the goal that the reader chooses ---

// A colour map whose lightness grows with the value, so that it can be read in grey.
const VALUE_COLOURS = [
  [45, 15, 80], [62, 46, 122], [57, 80, 139], [45, 110, 142], [33, 140, 141], [39, 170, 128], [95, 196, 98],
  [170, 217, 60], [250, 230, 45],
];
const ENTRANCE = "#e8a33d";
const EXIT = "#4aa3df";
const SUCCESS = "#ffffff";
const FAILURE = "#ff8a5c";
const MARK = "#22303c";
const POSITION_STEPS = 65535; // positions on paths are 16-bit integers between the borders of the maze
const MEAN = "mean"; // the choice of all seeds together
const MOST_OF_WINDOW = 0.75; // the largest height of a map

/** The colour of a number between 0 and 1. */
function valueColour(value) {
  const place = Math.min(Math.max(value, 0), 1) * (VALUE_COLOURS.length - 1);
  const low = Math.min(Math.floor(place), VALUE_COLOURS.length - 2);
  const mix = (channel) => VALUE_COLOURS[low][channel] * (1 - place + low) + VALUE_COLOURS[low + 1][channel] * (place - low);
  return [0, 1, 2].map((channel) => Math.round(mix(channel)));
}

// --- unpacking ---

async function unpack(text) {
  const compressed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** The arrays of a run's map, unpacked once and kept. */
async function unpackMap(map) {
  if (map.values instanceof Uint8Array) return map;
  const [points, values, arrowPoints, arrows, paths] = await Promise.all(
    [map.points, map.values, map.arrow_points, map.arrows, map.paths].map(unpack),
  );
  map.points = new Float32Array(points);
  map.arrow_points = new Float32Array(arrowPoints);
  map.arrows = new Int8Array(arrows);
  map.paths = new Uint16Array(paths);
  map.rows = map.free.length;
  map.columns = map.free[0].length;
  map.low = -map.offset - map.unit / 2; // the lower left corner, the same in x and y
  map.cells = map.free.flatMap((row, i) => row.flatMap((free, j) => (free ? [[i, j]] : [])));
  map.perCell = Math.round(map.unit / map.point_size);
  map.values = undone(new Uint8Array(values), map.points.length / 2);
  map.squares = new Map(); // number of the point in each square of the grid
  for (let point = 0; point < map.points.length / 2; point++) {
    map.squares.set(squareAt(map, map.points[2 * point], map.points[2 * point + 1]), point);
  }
  return map;
}

/** Sums up the differences within each map of `length` bytes; bytes wrap around. */
function undone(differences, length) {
  for (let place = 0; place < differences.length; place++) {
    if (place % length) differences[place] += differences[place - 1];
  }
  return differences;
}

/** The number of the square of the grid that a position lies in, row by row. */
function squareAt(map, x, y) {
  const place = (position) => Math.floor((position - map.low) / map.point_size + 1e-4);
  return place(y) * map.columns * map.perCell + place(x);
}

// --- values ---

const chosenSeeds = (map, seed) => (seed === MEAN ? map.seeds.map((_, place) => place) : [map.seeds.indexOf(Number(seed))]);
const goalNumber = (map, [row, column]) => map.cells.findIndex(([i, j]) => i === row && j === column);
const cellAt = (map, x, y) => [y, x].map((position) => Math.floor((position - map.low) / map.unit));
const isCell = (a, b) => a[0] === b[0] && a[1] === b[1];

/** The values of all points for a goal: of one seed, or the mean of all. */
function valuesFor(map, goal, seed) {
  const count = map.points.length / 2;
  const seeds = chosenSeeds(map, seed);
  const values = new Float64Array(count);
  for (const place of seeds) {
    const start = (place * map.cells.length + goalNumber(map, goal)) * count;
    for (let point = 0; point < count; point++) values[point] += (map.values[start + point] / 255) ** 2 / seeds.length;
  }
  return values;
}

/** The number of steps to the goal that a value implies if it is γ to the power of the steps. */
const impliedSteps = (map, value) => (map.gamma && value > 0 ? Math.log(value) / Math.log(map.gamma) : null);

function valueText(map, value) {
  if (value === undefined) return DASH;
  const steps = impliedSteps(map, value);
  return `${value.toFixed(3)}${steps === null ? "" : ` (about ${grouped(Math.round(steps))} steps)`}`;
}

/** The number of the evaluation goal in a cell, counted from 1; 0 if there is none. */
const evaluationGoal = (map, cell) => map.goals.findIndex(([x, y]) => isCell(cellAt(map, x, y), cell)) + 1;

/** All evaluation goals in a cell: several may share it and differ in their start. */
const evaluationGoals = (map, cell) =>
  map.goals.flatMap(([x, y], place) => (isCell(cellAt(map, x, y), cell) ? [place + 1] : []));

// --- drawing ---

/** Draws a maze with y up, without the outer half of its outer walls, as all figures of the project do. */
class MazeView {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { willReadFrequently: true });
  }

  /** Fits the canvas to its width on the page; returns whether there is room to draw. */
  resize(map) {
    const room = this.canvas.parentElement.clientWidth;
    if (!room) return false;
    this.span = [(map.columns - 1) * map.unit, (map.rows - 1) * map.unit];
    const width = Math.min(room, (MOST_OF_WINDOW * window.innerHeight * this.span[0]) / this.span[1]);
    const height = (width * this.span[1]) / this.span[0];
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    this.pixels = this.canvas.width / this.span[0]; // per unit of length
    this.corner = [map.low + map.unit / 2, map.low + map.unit / 2];
    return true;
  }

  at(x, y) {
    return [(x - this.corner[0]) * this.pixels, this.canvas.height - (y - this.corner[1]) * this.pixels];
  }

  /** The position in the maze under a pointer. */
  position(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.span[0] + this.corner[0];
    return [x, ((box.bottom - event.clientY) / box.height) * this.span[1] + this.corner[1]];
  }

  drawValues(map, shades) {
    const image = new OffscreenCanvas(map.columns * map.perCell, map.rows * map.perCell);
    const context = image.getContext("2d");
    const pixels = context.createImageData(image.width, image.height);
    for (const [square, point] of map.squares) {
      const row = image.height - 1 - Math.floor(square / image.width);
      pixels.data.set([...valueColour(shades[point]), 255], 4 * (row * image.width + (square % image.width)));
    }
    context.putImageData(pixels, 0, 0);
    const [left, bottom] = this.at(map.low, map.low);
    const [width, height] = [map.columns * map.unit * this.pixels, map.rows * map.unit * this.pixels];
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(image, left, bottom - height, width, height);
  }

  drawPlan(map, below) {
    const side = map.unit * this.pixels;
    map.free.forEach((row, i) =>
      row.forEach((free, j) => {
        if (Boolean(free) !== below) return;
        const [left, bottom] = this.at(map.low + j * map.unit, map.low + i * map.unit);
        this.context.fillStyle = colour(free ? "free" : "wall");
        this.context.fillRect(Math.floor(left), Math.floor(bottom - side), Math.ceil(side) + 1, Math.ceil(side) + 1);
      }),
    );
  }

  drawEdges(map) {
    const { context } = this;
    context.strokeStyle = colour("ink");
    context.lineWidth = Math.max(1, this.scale());
    context.lineCap = "square";
    context.beginPath();
    const isFree = (i, j) => Boolean(map.free[i]?.[j]);
    const line = (x0, y0, x1, y1) => {
      context.moveTo(...this.at(map.low + x0 * map.unit, map.low + y0 * map.unit));
      context.lineTo(...this.at(map.low + x1 * map.unit, map.low + y1 * map.unit));
    };
    for (let i = 0; i < map.rows; i++) {
      for (let j = 0; j < map.columns; j++) {
        if (isFree(i, j) !== isFree(i, j + 1)) line(j + 1, i, j + 1, i + 1);
        if (isFree(i, j) !== isFree(i + 1, j)) line(j, i + 1, j + 1, i + 1);
      }
    }
    context.stroke();
  }

  scale() {
    return window.devicePixelRatio || 1;
  }

  /** Strokes the current path with a dark outline, so that it is visible on every colour. */
  strokeOutlined(tone, width, dash = []) {
    const { context } = this;
    context.setLineDash(dash.map((length) => length * this.scale()));
    for (const [style, more] of [[MARK, 2.2], [tone, 0]]) {
      context.strokeStyle = style;
      context.lineWidth = (width + more) * this.scale();
      context.stroke();
    }
    context.setLineDash([]);
  }

  drawPath(points, success) {
    const { context } = this;
    context.lineJoin = "round";
    context.lineCap = "butt";
    context.beginPath();
    points.forEach(([x, y, jump], place) => (place && !jump ? context.lineTo(...this.at(x, y)) : context.moveTo(...this.at(x, y))));
    this.strokeOutlined(success ? SUCCESS : FAILURE, 1.6, success ? [] : [6, 3]);
    if (success) return;
    const [x, y] = this.at(...points.at(-1));
    const reach = 5 * this.scale();
    context.beginPath();
    for (const side of [-1, 1]) {
      context.moveTo(x - reach, y - side * reach);
      context.lineTo(x + reach, y + side * reach);
    }
    this.strokeOutlined(FAILURE, 2.2);
  }

  drawArrow(x, y, dx, dy) {
    const { context } = this;
    const [tailX, tailY] = this.at(x - dx / 2, y - dy / 2);
    const [tipX, tipY] = this.at(x + dx / 2, y + dy / 2);
    const length = Math.hypot(tipX - tailX, tipY - tailY);
    if (length < 1) return;
    const head = Math.min(length / 2, 6 * this.scale());
    const angle = Math.atan2(tipY - tailY, tipX - tailX);
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(tailX, tailY);
    context.lineTo(tipX, tipY);
    for (const side of [-1, 1]) {
      context.moveTo(tipX, tipY);
      context.lineTo(tipX - head * Math.cos(angle + side * 0.5), tipY - head * Math.sin(angle + side * 0.5));
    }
    this.strokeOutlined("#ffffff", 1.2);
  }

  /** Draws a polygon around a place; `corners` are (x, y) in units of its size, y up. */
  drawShape(x, y, size, corners, fill, edge, label = "") {
    const { context } = this;
    const [left, top] = this.at(x, y);
    context.beginPath();
    corners.forEach(([a, b]) => context.lineTo(left + a * size * this.scale(), top - b * size * this.scale()));
    context.closePath();
    context.fillStyle = fill;
    context.fill();
    context.strokeStyle = edge;
    context.lineWidth = 1.2 * this.scale();
    context.stroke();
    if (!label) return;
    context.fillStyle = edge;
    context.font = `600 ${11 * this.scale()}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(label, left, top + this.scale());
  }
}

const SQUARE = [[-1, -1], [1, -1], [1, 1], [-1, 1]];
const DIAMOND = [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]];
const onCircle = (count, radius) =>
  Array.from({ length: count }, (_, k) => {
    const angle = Math.PI / 2 + (2 * Math.PI * k) / count;
    return [radius(k) * Math.cos(angle), radius(k) * Math.sin(angle)];
  });
const CIRCLE = onCircle(24, () => 1);
const STAR = onCircle(10, (k) => (k % 2 ? 0.42 : 1));

// --- the explorer ---

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
    const title = (run) => `${run.method} on ${run.task}`;
    const [runLabel, runSelect] = selectBox("Run", this.runs.map((run, place) => [place, title(run)]), { id: "maze-run" });
    const [seedLabel, seedSelect] = selectBox("Seed", [], { id: "maze-seed" });
    const [goalLabel, goalSelect] = selectBox("Goal", [], { id: "maze-goal" });
    const [scaleLabel, scaleSelect] = selectBox("Colour", [["value", "value"], ["steps", "implied steps"]], { id: "maze-colour" });
    const [pathsLabel, pathsBox] = checkBox("Rollouts", { id: "maze-paths", checked: true });
    const [arrowsLabel, arrowsBox] = checkBox("Policy arrows", { id: "maze-arrows" });
    Object.assign(this, { runSelect, seedSelect, goalSelect, scaleSelect, pathsBox, arrowsBox, scaleLabel, arrowsLabel, pathsLabel });
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
    const side = element("div", { class: "side" }, this.status, this.pointer, this.bar, this.barLabels, this.legend, mazeHelp());
    const stage = element("div", { class: "stage" }, this.canvas);
    container.append(
      element("p", { class: "muted" }, "Click a free cell to choose it as the goal. The colour of a position is its learned value for this goal."),
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
    for (const box of [this.scaleSelect, this.pathsBox, this.arrowsBox]) box.addEventListener("change", () => this.update());
    this.canvas.addEventListener("click", (event) => this.map && this.choose(cellAt(this.map, ...this.view.position(event))));
    this.canvas.addEventListener("pointermove", (event) => this.map && this.look(this.view.position(event)));
    this.canvas.addEventListener("keydown", (event) => this.map && this.press(event));
  }

  /** Shows the map of a run. The goal stays where it is if the mazes are alike. */
  async open(run) {
    const before = this.map;
    const map = await unpackMap(run.map);
    Object.assign(this, { run, map });
    const isSame = before && JSON.stringify(before.free) === JSON.stringify(map.free);
    const seeds = [[MEAN, `mean of ${plural(map.seeds.length, "seed")}`], ...map.seeds.map((seed) => [seed, `seed ${seed}`])];
    fillSelect(this.seedSelect, map.seeds.length > 1 ? seeds : seeds.slice(1));
    this.seed = this.seedSelect.value;
    const goals = map.goals.map((_, place) => [place + 1, `evaluation goal ${place + 1}`]);
    fillSelect(this.goalSelect, [["", "a cell"], ...goals]);
    this.scaleLabel.hidden = !map.gamma;
    if (!map.gamma) this.scaleSelect.value = "value";
    this.arrowsLabel.hidden = !map.arrow_points.length;
    this.pathsLabel.hidden = !map.path_index.length;
    this.showLegend();
    if (isSame && this.goal) {
      this.update();
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
    const parts = [`Goal: row ${this.goal[0]}, column ${this.goal[1]}${number ? ` (evaluation goal ${others.join(" and ")})` : ""}.`];
    if (number) parts.push(`Value at the start of goal ${number}: ${valueText(map, this.valueAt(...map.starts[number - 1]))}.`);
    const paths = this.paths();
    if (paths.length) {
      const recorded = map.recorded.filter(([seed, goal]) => goal === number && this.isSeed(seed));
      const total = recorded.reduce((sum, [, , count]) => sum + count, 0);
      const won = paths.filter(([, , , success]) => success).length;
      parts.push(`${won} of ${plural(paths.length, "drawn episode")} reached it${total > paths.length ? `; ${total} were recorded` : ""}.`);
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
    this.pointer.textContent = `At (${x.toFixed(1)}, ${y.toFixed(1)}): value ${valueText(this.map, this.valueAt(x, y))}.`;
  }

  valueAt(x, y) {
    return this.values[this.map.squares.get(squareAt(this.map, x, y))];
  }

  isSeed(seed) {
    return this.seed === MEAN || Number(this.seed) === seed;
  }

  paths() {
    return this.number ? this.map.path_index.filter(([seed, goal]) => goal === this.number && this.isSeed(seed)) : [];
  }

  look(position) {
    this.probe = position;
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
    if (!map.squares.has(squareAt(map, ...next))) return;
    this.probe = next;
    this.marksProbe = true;
    this.showPointer();
    this.status.textContent = this.pointer.textContent;
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
      this.view.drawArrow(map.arrow_points[2 * point], map.arrow_points[2 * point + 1], mean[0] * scale, mean[1] * scale);
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
    const [row, column] = this.goal;
    view.drawShape(map.low + (column + 0.5) * map.unit, map.low + (row + 0.5) * map.unit, size * 1.8, STAR, MARK, "#ffffff");
    if (this.probe && this.marksProbe) view.drawShape(...this.probe, 4, SQUARE, "#ffffff", MARK);
  }

  showLegend() {
    const shape = (corners, size, fill, edge) =>
      svgElement("polygon", { points: corners.map(([x, y]) => `${13 + x * size},${9 - y * size}`).join(" "), fill, stroke: edge });
    const line = (tone, dash) => [
      svgElement("line", { x1: 0, y1: 9, x2: 26, y2: 9, stroke: MARK, "stroke-width": 4, "stroke-dasharray": dash }),
      svgElement("line", { x1: 0, y1: 9, x2: 26, y2: 9, stroke: tone, "stroke-width": 2, "stroke-dasharray": dash }),
    ];
    const items = [["goal", [shape(STAR, 9, MARK, "#ffffff")]]];
    if (this.map.goals.length) {
      items.push(["start of the evaluation", [shape(CIRCLE, 6, MARK, "#ffffff")]], ["other evaluation goals, by number", [shape(CIRCLE, 6, "#ffffff", MARK)]]);
    }
    if (this.map.entrances.length) items.push(["teleporter", [shape(SQUARE, 6, ENTRANCE, MARK)]]);
    if (this.map.exits.length) items.push(["teleporter exit (one at random)", [shape(DIAMOND, 6, EXIT, MARK)]]);
    if (this.map.path_index.length) items.push(["successful episode", line(SUCCESS, "")], ["failed episode", line(FAILURE, "6 3")]);
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
  if (!window.DecompressionStream || !window.OffscreenCanvas) {
    byId("maze").append(element("p", {}, "The maps need a newer browser: one with DecompressionStream and OffscreenCanvas."));
    return;
  }
  const explorer = new Explorer(runs, byId("maze"));
  const first = runs.find((run) => run.method === "GTRL") || runs[0];
  explorer.runSelect.value = runs.indexOf(first);
  explorer.open(first);
}
