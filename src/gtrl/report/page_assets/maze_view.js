// --- drawing a maze, its values, and what lies on top of them ---

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
    const half = map.point_size / 2;
    shades.forEach((shade, point) => {
      const [x, y] = map.points.subarray(2 * point, 2 * point + 2);
      const [left, top] = this.at(x - half, y + half).map(Math.floor); // whole pixels, without gaps in between
      const [right, bottom] = this.at(x + half, y - half).map(Math.ceil);
      this.context.fillStyle = `rgb(${valueColour(shade)})`;
      this.context.fillRect(left, top, right - left, bottom - top);
    });
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
    points.forEach(([x, y, jump], place) => {
      if (place && !jump) context.lineTo(...this.at(x, y));
      else context.moveTo(...this.at(x, y));
    });
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
    context.font = `600 ${(label.length > 1 ? 9 : 11) * this.scale()}px system-ui, sans-serif`;
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
