const root = document.querySelector("main");

const part = (name) => document.querySelector(`script[data-part=${name}]`).textContent;

const facts = JSON.parse(part("facts"));

const range = (n) => Array.from({ length: n }, (_, i) => i);

const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Red, green and blue of a colour that is written #rrggbb.
const channels = (name) => [1, 3, 5].map((i) => parseInt(colour(name).slice(i, i + 2), 16));

// Strings among the children become text, so that no token is ever markup.
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const el = (name, attributes = {}, ...children) =>
  filled(document.createElement(name), attributes, children);

const svg = (name, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// Written so that a name in right-to-left letters keeps its own order among others.
const isolated = (text) => `\u2068${text}\u2069`;

const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

// The direction of one name, or that of most of several.
function direction(names) {
  const letters = names.filter((name) => /\p{L}/u.test(name));
  const back = letters.filter((name) => RIGHT_TO_LEFT.test(name)).length;
  return 2 * back > letters.length ? "rtl" : "ltr";
}

// A label with its list; options are pairs of a value and what stands for it.
function picker(label, options, value, choose) {
  const at = options.findIndex((option) => option[0] === value);
  const list = el("select", { onchange: () => choose(options[list.selectedIndex][0]) });
  options.forEach(([, text]) => list.append(el("option", {}, String(text))));
  list.selectedIndex = Math.max(at, 0);
  return el("label", {}, label, list);
}

// The tab key stops once for all of the nodes; arrows go from one to the next.
function roving(nodes, columns) {
  nodes.forEach((node, i) => {
    node.tabIndex = i ? -1 : 0;
    node.addEventListener("keydown", (event) => {
      const keys = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
      const next = nodes[i + keys[event.key]];
      if (!next) return;
      event.preventDefault();
      node.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  });
}

// A canvas of this size in the page, sharp on screens of several pixels to one.
function sharp(canvas, width, height) {
  const longest = 16000; // what browsers can hold
  const ratio = Math.min(devicePixelRatio || 1, longest / Math.max(width, height));
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
}

// Calls a function once a node is in the page, where it has a width; never if another has
// taken its place.
const whenInPage = (node, draw) => requestAnimationFrame(() => node.isConnected && draw());

// Draws now, and again when the width or the colours are others.
function keepDrawn(draw) {
  let width = root.clientWidth;
  draw();
  new ResizeObserver(() => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    draw();
  }).observe(root);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
