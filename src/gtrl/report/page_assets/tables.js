// --- tables that are sorted by their column titles ---

const MANY_LETTERS = 60; // from which on a text may wrap

/** The order of two cells: numbers by value, texts by letters. */
function compareCells(a, b) {
  if (a.value !== null && b.value !== null) return a.value - b.value;
  const [one, other] = [a.text.toLowerCase(), b.text.toLowerCase()];
  return one < other ? -1 : one > other ? 1 : 0;
}

/** Sorts rows by a column. Rows without a number stay last, and averages stay below everything else. */
function sortedRows(rows, place, descending) {
  const isMissing = (row) => row.cells[place].text === DASH;
  return [...rows].sort((a, b) => {
    if (Boolean(a.average) !== Boolean(b.average)) return a.average ? 1 : -1;
    if (isMissing(a) !== isMissing(b)) return isMissing(a) ? 1 : -1;
    const order = compareCells(a.cells[place], b.cells[place]);
    return descending ? -order : order;
  });
}

/** a to z, then aa, ab and so on. */
function noteLetter(place) {
  const letter = String.fromCharCode(97 + (place % 26));
  return place < 26 ? letter : noteLetter(Math.floor(place / 26) - 1) + letter;
}

/** Makes a table, its notes and its remarks. `decorate(row, element)` may change the element of a row. */
function tableOf(table, decorate = () => {}) {
  const notes = unique(table.rows.flatMap((row) => row.cells.map((cell) => cell.note)).filter(Boolean));
  const body = element("tbody");
  for (const row of table.rows) {
    const cells = row.cells.map((cell, place) => tableCell(cell, table.columns[place], notes));
    row.element = element("tr", { class: row.average ? "average" : null }, ...cells);
    decorate(row, row.element);
    body.append(row.element);
  }
  const heads = table.columns.map((column, place) => columnHead(table, column, place, body));
  const made = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
  const box = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.title }, made);
  const lines = [...table.remarks, ...notes.map((note, place) => `${noteLetter(place)}: ${note}`)];
  const list = element("ul", { class: "notes" }, ...lines.map((line) => element("li", {}, line)));
  return lines.length ? [box, list] : [box];
}

function tableCell(cell, column, notes) {
  const classes = [column.numeric ? "number" : "", ["", "best", "second"][cell.rank || 0]];
  if (cell.text.length > MANY_LETTERS) classes.push("words");
  const inner = element("span", { class: classes[1] || null }, cell.text);
  const made = element("td", { class: `${classes[0]} ${classes[2] || ""}`.trim() || null }, inner);
  if (cell.note) made.append(element("sup", { title: cell.note }, ` ${noteLetter(notes.indexOf(cell.note))}`));
  return made;
}

function columnHead(table, column, place, body) {
  const button = element("button", { type: "button" }, column.title);
  const head = element("th", { scope: "col", class: column.numeric ? "number" : null, "aria-sort": "none" }, button);
  button.addEventListener("click", () => {
    const sort = head.getAttribute("aria-sort");
    const descending = sort === "none" ? column.numeric : sort === "ascending"; // large numbers first
    for (const other of head.parentElement.children) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    body.append(...sortedRows(table.rows, place, descending).map((row) => row.element));
  });
  return head;
}
