// --- building the page: text from runs only ever becomes the content of a text node or the value of an attribute ---

const DASH = "–";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

/** Makes an element with attributes and children; a child that is a string becomes text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function svgElement(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Makes a select box with a label; options are [value, text]. */
function selectBox(label, options, attributes = {}) {
  const select = element("select", attributes, ...options.map(([value, text]) => element("option", { value }, text)));
  return [element("label", {}, label, " ", select), select];
}

/** Makes a check box with a label. */
function checkBox(label, attributes = {}) {
  const box = element("input", { type: "checkbox", ...attributes });
  return [element("label", { class: "check" }, box, label), box];
}

const unique = (values) => [...new Set(values)];
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const inPercent = (value) => (value === null ? DASH : value.toFixed(1));
const withDeviation = (mean, deviation) =>
  mean === null ? DASH : mean.toFixed(1) + (deviation === null ? "" : ` ± ${deviation.toFixed(1)}`);
const grouped = (value) => value.toLocaleString("en-US");

// --- light and dark ---

const darkSystem = window.matchMedia("(prefers-color-scheme: dark)");
const THEMES = ["automatic", "light", "dark"];
const themeListeners = [];
let theme = "automatic";
let isPrinting = false; // paper is white

// Some browsers refuse storage to pages that are opened from disk; the choice then lasts until the page is closed.
function storedTheme() {
  try {
    return localStorage.getItem("gtrl-theme");
  } catch {
    return null;
  }
}

function storeTheme() {
  try {
    localStorage.setItem("gtrl-theme", theme);
  } catch {
    // without storage
  }
}

const isDark = () => !isPrinting && (theme === "automatic" ? darkSystem.matches : theme === "dark");

function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  byId("theme").textContent = `Theme: ${theme}`;
  for (const listener of themeListeners) listener();
}

function setUpTheme() {
  if (THEMES.includes(storedTheme())) theme = storedTheme();
  byId("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    storeTheme();
    applyTheme();
  });
  darkSystem.addEventListener("change", applyTheme);
  applyTheme();
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
