// --- maps of mazes: their arrays, and the values of all positions for a goal ---

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
  const share = place - low;
  const mix = (channel) => VALUE_COLOURS[low][channel] * (1 - share) + VALUE_COLOURS[low + 1][channel] * share;
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
  map.values = fromDifferences(new Uint8Array(values), map.points.length / 2);
  return map;
}

/** Sums up the differences within each map of `length` bytes; bytes wrap around. */
function fromDifferences(differences, length) {
  for (let place = 0; place < differences.length; place++) {
    if (place % length) differences[place] += differences[place - 1];
  }
  return differences;
}

/** The number of the point whose square a position lies in; -1 if there is none. */
function pointAt(map, x, y) {
  const half = map.point_size * 0.5001; // squares touch each other in spite of rounding
  for (let point = 0; point < map.points.length / 2; point++) {
    if (Math.abs(map.points[2 * point] - x) <= half && Math.abs(map.points[2 * point + 1] - y) <= half) return point;
  }
  return -1;
}

// --- values ---

/** The places of a seed, or of all of them, in the arrays. */
const chosenSeeds = (map, seed) =>
  seed === MEAN ? map.seeds.map((_, place) => place) : [map.seeds.indexOf(Number(seed))];
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
