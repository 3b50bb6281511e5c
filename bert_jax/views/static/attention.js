const FILTERS = { all: [], "A → B": [0, 1], "B → A": [1, 0], "A → A": [0, 0], "B → B": [1, 1] };
const SPECIALS = { shown: "shown", hidden: "hidden", rescaled: "hidden, rows sum to 1" };

const state = {
  view: "heads",
  layer: facts.start.layer,
  head: facts.start.head,
  filter: "all",
  special: "shown",
  token: { side: "from", i: facts.start.token },
  as: Math.max(LENGTH, SEEN) > 40 ? "matrix" : "lines",
};

// `place` is the layer and the head whose weights tint the text. A view that `hides` has
// tokens left out.
const whole = () => ["mean", "mean"];
const opened = () => [state.layer, state.head];
const VIEWS = {
  heads: { name: "All heads", draw: grid, place: whole, hides: true, controls: () => [shapes(), ...left()] },
  head: { name: "One head", draw: head, place: opened, hides: true, controls: () => [...places(true), shapes(), ...left()] },
  vectors: { name: "Query and key", draw: vectors, place: opened, hides: false, controls: () => [...places(false), tokens()] },
  layers: { name: "Layers", draw: layersView, place: whole, hides: false, controls: () => [] },
};

const headName = (head) => (typeof head === "number" ? `head ${head}` : head);

const hidesSpecials = () => VIEWS[state.view].hides && state.special !== "shown";

// The weights of a head as this view shows them.
function shown(layer, head) {
  const values = matrix(layer, head);
  return hidesSpecials() && state.special === "rescaled" ? rescaled(values) : values;
}

// Tokens that look and tokens that are looked at, as filters leave them.
function sides() {
  const [from, to] = VIEWS[state.view].hides ? FILTERS[state.filter] : [];
  const of = (side, part) =>
    range(TOKENS[side].length).filter(
      (i) => (part === undefined || segment(i) === part) && !(hidesSpecials() && isSpecial(side, i)),
    );
  return { rows: of("from", from), columns: of("to", to) };
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

// Lists of what may be left out.
function left() {
  const pairs = Object.keys(FILTERS).map((name) => [name, name]);
  const specials = Object.entries(SPECIALS);
  return [
    facts.segments ? picker("Show", pairs, state.filter, change("filter")) : "",
    SPECIAL_NAMES.length ? picker(SPECIAL_NAMES.join(", "), specials, state.special, change("special")) : "",
  ];
}

// The special tokens of the text, once each.
const SPECIAL_NAMES = facts.specials.filter((name) => [...TOKENS.from, ...TOKENS.to].includes(name));

const shapes = () =>
  picker("As", [["lines", "lines"], ["matrix", "matrix"]], state.as, change("as"));

function tokens() {
  const options = range(LENGTH).map((i) => [i, labelled("from", i)]);
  const label = picker("Token", options, lookingToken(), (i) => {
    state.token = { side: "from", i };
    show(null);
  });
  label.querySelector("select").dataset.tokens = "";
  return label;
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

// Sentences below a view, only those that it needs.
function note() {
  const { view, special, head, as } = state;
  const isPicture = view === "heads" || view === "head";
  const names = SPECIAL_NAMES.join(" and ");
  const hidden = {
    shown: "",
    hidden: `${names} are left out; the other weights are as they were, so rows sum to less than 1.`,
    rescaled: `${names} are left out, and the rest of each row is divided by its sum.`,
  };
  const lines = [
    ["Layers and heads are numbered from 0.", view !== "layers"],
    ["The text is tinted by the mean of all layers and heads.", view === "heads" || view === "layers"],
    ["A line is as strong as its weight; lines of the chosen token are dark.", view === "heads" && as === "lines"],
    [`Of each head at most the ${MOST.thumbnail} strongest lines are drawn.`, view === "heads" && as === "lines" && CELLS > MOST.thumbnail],
    ["Where several cells share a pixel, it shows the strongest of them.", isPicture && as === "matrix" && SEEN > (view === "heads" ? 70 : 330)],
    [hidden[special], isPicture],
    ["A is the text, B its pair; filters hide weights and change none.", isPicture && facts.segments],
    ["On the left stands what was written, on the right the text: a row is what the model looked at to write its token.", facts.source && view === "head"],
    ["Rollout: half of each token stays in a layer, half is the mean of its heads; multiplied through the layers (Abnar and Zuidema, 2020).", view === "heads" ? !facts.source : view === "head" && head === "rollout"],
    [`Weights are rounded to multiples of ${(2 * facts.error).toPrecision(1)}, to keep this file small.`, view === "head" && facts.error > 0.0005],
    [`Queries and keys are rounded, so a score may be off by ${facts.vectors?.error.toPrecision(1)}.`, view === "vectors" && facts.vectors.error > 0.005],
  ];
  const needed = lines.filter(([, isNeeded]) => isNeeded).map(([line]) => line);
  return el("p", { class: "note" }, needed.filter(Boolean).join(" "));
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
  const values = shown(...view.place());
  shows = [];
  root.replaceChildren(tabs(), controls, reading(values), view.draw(values), note());
  show(null);
  // Who works by keys goes on where they were, or from the name of the view.
  const next = stops()[at] ?? root.querySelector("nav [aria-pressed=true]");
  if (focused) next.focus({ preventScroll: true });
}

unpack().then(
  () => keepDrawn(render),
  (error) => root.replaceChildren(el("p", {}, `This browser cannot read the page: ${error}`)),
);
