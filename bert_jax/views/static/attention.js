const FILTERS = { all: [], "A → B": [0, 1], "B → A": [1, 0], "A → A": [0, 0], "B → B": [1, 1] };

const state = {
  view: "heads",
  layer: 0,
  head: 0,
  filter: "all",
  token: null,
  as: Math.max(LENGTH, SEEN) > 40 ? "matrix" : "lines",
};

const VIEWS = {
  heads: { name: "All heads", draw: grid, controls: () => [filters(), shapes()] },
  head: { name: "One head", draw: head, controls: () => [...places(true), filters()] },
  vectors: { name: "Query and key", draw: vectors, controls: () => [...places(false), tokens()] },
  layers: { name: "Layers", draw: layersView, controls: () => [] },
};

const headName = (head) => (typeof head === "number" ? `head ${head}` : head);

// Tokens that look and tokens that are looked at, as the filter leaves them.
function sides() {
  const [from, to] = FILTERS[state.filter];
  const of = (count, side) => range(count).filter((i) => side === undefined || segment(i) === side);
  return { rows: of(LENGTH, from), columns: of(SEEN, to) };
}

const change = (name) => (value) => {
  state[name] = value;
  render();
};

const NAMED = { mean: "mean of all", rollout: "rollout to this layer" };

function places(means) {
  const numbered = (count) => range(count).map((n) => [n, n]);
  const layers = [...numbered(LAYERS), ...(means ? [["mean", NAMED.mean]] : [])];
  const more = TOGETHER.map((name) => [name, NAMED[name]]);
  const heads = [...numbered(HEADS), ...(means ? more : [])];
  return [
    picker("Layer", layers, state.layer, change("layer")),
    picker("Head", heads, state.head, change("head")),
  ];
}

function filters() {
  if (!facts.segments) return "";
  const options = Object.keys(FILTERS).map((name) => [name, name]);
  return picker("Show", options, state.filter, change("filter"));
}

const shapes = () =>
  picker("As", [["lines", "lines"], ["matrix", "matrix"]], state.as, change("as"));

function tokens() {
  const options = range(LENGTH).map((i) => [i, labelled("from", i)]);
  const choose = (i) => change("token")({ side: "from", i });
  return picker("Token", options, state.token?.i ?? 0, choose);
}

function tabs() {
  const buttons = Object.entries(VIEWS)
    .filter(([view]) => view !== "vectors" || facts.vectors)
    .map(([view, { name }]) => {
      const pressed = { "aria-pressed": view === state.view, onclick: () => change("view")(view) };
      return el("button", pressed, name);
    });
  return el("nav", { class: "bar tabs" }, ...buttons);
}

function note() {
  const lines = [
    "Layers and heads are numbered from 0.",
    "A line is as strong as its weight; one of a chosen token, and a cell of a matrix, as its root.",
  ];
  lines.push(`Weights are within ${facts.error.toPrecision(1)} of the model's.`);
  if (facts.vectors) lines.push(`Scores are within ${facts.vectors.error.toPrecision(1)}.`);
  if (facts.segments) lines.push("A is the text, B its pair; filters hide weights and change none.");
  if (facts.source) lines.push("On the left stands what was written, on the right the text: a row is what the model looked at to write its token.");
  else lines.push("Rollout: half of each token stays in a layer, half is the mean of its heads; multiplied through the layers (Abnar and Zuidema, 2020).");
  return el("p", { class: "note" }, lines.join(" "));
}

// What the tab key stops at above a view.
const stops = () => [...root.querySelectorAll("nav button, select")];

function render() {
  const before = document.activeElement;
  const at = stops().indexOf(before);
  if (state.view === "vectors") {
    // Means have neither query nor key.
    for (const name of ["layer", "head"]) if (typeof state[name] !== "number") state[name] = 0;
  }
  const view = VIEWS[state.view];
  const controls = el("div", { class: "bar" }, ...view.controls());
  const focused = root.contains(before);
  root.replaceChildren(tabs(), controls, view.draw(), note());
  // Who works by keys goes on where they were, or from the name of the view.
  const next = stops()[at] ?? root.querySelector("nav [aria-pressed=true]");
  if (focused) next.focus({ preventScroll: true });
}

unpack().then(
  () => keepDrawn(render),
  (error) => root.replaceChildren(el("p", {}, `This browser cannot read the page: ${error}`)),
);
