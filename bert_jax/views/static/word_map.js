const GROUPS = facts.groups ? [...new Set(facts.groups)] : [""];
const INKS = ["first", "second", "third", "fourth", "fifth", "sixth"];
// A group has a colour and a shape, for those who see few colours.
const SHAPES = [
  "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0 -11 0",
  "M-5 -5h10v10h-10z",
  "M0 -6.5L6 5H-6z",
  "M0 -7L6 0L0 7L-6 0z",
  "M-6 -5h12L0 6.5z",
  "M-2 -6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
];

const state = { layer: facts.points.length - 1, shown: null, wanted: "", hidden: new Set() };

const group = (i) => (facts.groups ? GROUPS.indexOf(facts.groups[i]) : 0);

const mark = (n, attributes = {}) =>
  svg("path", { d: SHAPES[n % SHAPES.length], fill: colour(INKS[n % INKS.length]), ...attributes });

function context(i) {
  const [before, word, after] = facts.contexts[i];
  return [before, el("mark", {}, word), after];
}

const key = (n) => svg("svg", { width: 16, height: 16, viewBox: "-8 -8 16 16" }, mark(n));

// A context is listed and drawn if its text holds what is typed and its group is on.
const isWanted = (i) =>
  facts.contexts[i].join("").toLowerCase().includes(state.wanted.toLowerCase()) && !state.hidden.has(group(i));

const DIRECTIONS = ["first principal component", "second principal component"];
const EDGE = 20; // pixels for the name of an axis

function axisNames(width, height) {
  const shares = facts.shares[state.layer].map((share) => `${Math.round(share * 100)} % of the variance`);
  const [across, up] = DIRECTIONS.map((name, n) => `${name}: ${shares[n]}`);
  const middle = { "text-anchor": "middle" };
  return [
    svg("text", { x: (width + EDGE) / 2, y: height + EDGE - 5, ...middle }, across),
    svg("text", { transform: `translate(13 ${height / 2}) rotate(-90)`, ...middle }, up),
  ];
}

function scatter(width, height) {
  const points = facts.points[state.layer];
  const reach = (axis) => Math.max(...points.map((point) => Math.abs(point[axis])), 1e-9) * 1.12;
  // One scale for both axes: distances are those of the projection.
  const room = width - EDGE;
  const middle = EDGE + room / 2;
  const scale = Math.min(room / 2 / reach(0), height / 2 / reach(1));
  const picture = svg("svg", { width, height: height + EDGE, role: "img", "aria-label": `${facts.word}, layer ${state.layer}` });
  const rule = { stroke: colour("rule") };
  picture.append(
    svg("line", { x1: EDGE, x2: width, y1: height / 2, y2: height / 2, ...rule }),
    svg("line", { x1: middle, x2: middle, y1: 0, y2: height, ...rule }),
    ...axisNames(width, height),
  );
  points.forEach(([x, y], i) => {
    const at = `translate(${middle + x * scale} ${height / 2 - y * scale})`;
    const listeners = { onpointerenter: () => choose(i, true), onclick: () => choose(i, true) };
    const look = { "fill-opacity": 0.75, class: "dot", "data-context": i };
    picture.append(mark(group(i), { transform: at, ...look, ...listeners }));
  });
  return picture;
}

// A point and its context stand out together; from the map, the list goes to the context.
function choose(i, isFromMap = false) {
  state.shown = i;
  for (const node of root.querySelectorAll("[data-context]")) {
    const own = Number(node.dataset.context) === i;
    node.classList.toggle("shown", own);
    if (own && isFromMap && node.tagName === "BUTTON") goTo(node);
    if (node.tagName === "path") node.setAttribute("stroke", own ? colour("ink") : "none");
    if (node.tagName === "path") node.setAttribute("stroke-width", 3);
  }
  root.querySelector("output").replaceChildren(...(i === null ? [HINT] : context(i)));
}

// Scrolls the list, not the page.
function goTo(button) {
  const list = button.closest("ul");
  list.scrollTop = button.offsetTop - list.offsetTop - list.clientHeight / 2;
}

const HINT = "Point at a place or tap it: its context appears here.";

function contexts() {
  const buttons = range(facts.contexts.length).map((i) => {
    const listeners = { onpointerenter: () => choose(i), onfocus: () => choose(i), onclick: () => choose(i) };
    const text = el("span", { dir: "auto" }, ...context(i));
    return el("button", { ...listeners, "data-context": i }, key(group(i)), text);
  });
  roving(buttons, 1);
  const items = buttons.map((button) => el("li", {}, button));
  return el("ul", { class: "contexts" }, ...items);
}

// Hides the contexts and points that are not wanted.
function sift() {
  const wanted = range(facts.contexts.length).filter(isWanted);
  const isShown = new Set(wanted);
  for (const node of root.querySelectorAll("[data-context]")) {
    const hidden = !isShown.has(Number(node.dataset.context));
    (node.closest("li") ?? node).classList.toggle("hidden", hidden);
  }
  const count = root.querySelector("[data-count]");
  count.textContent = `${wanted.length} of ${facts.contexts.length} contexts`;
}

function search() {
  const input = el("input", { type: "search", placeholder: "words in the context", "aria-label": "find contexts" });
  input.value = state.wanted;
  input.addEventListener("input", () => {
    state.wanted = input.value;
    sift();
  });
  return el("div", { class: "bar" }, el("label", {}, "Find ", input), el("span", { "data-count": "" }));
}

// The sign of a group, which turns its contexts off and on.
function groupButton(name, n) {
  const button = el("button", { class: "legend", "aria-pressed": !state.hidden.has(n), onclick: turn }, key(n), name);
  function turn() {
    if (!state.hidden.delete(n)) state.hidden.add(n);
    button.setAttribute("aria-pressed", !state.hidden.has(n));
    sift();
  }
  return button;
}

function similarity(width) {
  const title = "Mean cosine, by layer (0: embeddings)";
  const drawn = chart(title, facts.own.length, 1, width);
  curve(drawn, facts.others, "soft", "4 4");
  curve(drawn, facts.own, "first");
  const at = { cx: drawn.x(state.layer), cy: drawn.y(facts.own[state.layer]), r: 5, fill: colour("first") };
  drawn.picture.append(svg("circle", at));
  const words = `Between “${facts.word}” in different contexts: ${facts.own[state.layer].toFixed(2)} (line). ` +
    `Between other words: ${facts.others[state.layer].toFixed(2)} (dashes).`;
  return el("figure", {}, el("figcaption", {}, title), drawn.picture, el("p", { class: "note" }, words));
}

function slider() {
  const last = facts.points.length - 1;
  const input = el("input", { type: "range", min: 0, max: last, value: state.layer });
  const name = el("b", {}, String(state.layer));
  input.addEventListener("input", () => {
    state.layer = Number(input.value);
    name.textContent = input.value;
    drawCharts();
  });
  return el("label", {}, "Layer ", input, " ", name);
}

function drawCharts() {
  const charts = root.querySelector(".charts");
  const width = chartWidth(charts);
  const title = `“${facts.word}” in two dimensions`;
  const map = el("figure", {}, el("figcaption", {}, title), scatter(width, 320));
  charts.replaceChildren(map, similarity(width));
  choose(state.shown);
  sift();
}

function render() {
  const legend = facts.groups ? GROUPS.map(groupButton) : [];
  root.replaceChildren(
    el("nav", { class: "bar" }, slider(), ...legend),
    el("output", { "aria-live": "polite" }, HINT),
    el("div", { class: "charts" }),
    search(),
    contexts(),
    el("p", { class: "note" }, NOTE),
  );
  drawCharts();
}

const NOTE = "The two directions of most variance among these vectors, found for each layer by itself (principal component analysis). " +
  "Mean cosine of a word with itself: self-similarity (Ethayarajh, 2019); other words: the first of each in these texts.";

keepDrawn(render);
