const MARGIN = { left: 40, right: 12, top: 10, bottom: 34 };
const TALL = 260;

// How layers differ: a dot for each head, a line through the means.
function layersView() {
  const told = el("output", { "aria-live": "polite" }, "Each dot is a head; a click opens it.");
  const charts = el("div", { class: "charts" });
  const draw = () => {
    const wide = Math.min(charts.clientWidth, Math.max(charts.clientWidth / 2 - 8, 420));
    const most = Math.log(LENGTH);
    charts.replaceChildren(
      dots("How far heads look: mean distance, in tokens", facts.distance, wide, told, null),
      dots(`How broadly: entropy (at most ln ${LENGTH})`, facts.entropy, wide, told, most),
    );
  };
  requestAnimationFrame(draw);
  return el("div", {}, told, charts);
}

function dots(title, values, width, told, limit) {
  const top = limit ?? Math.max(...values.flat(), 1e-9) * 1.05;
  const x = (n) => spread(n, values.length, width);
  const y = (value) => TALL - MARGIN.bottom - (value / top) * (TALL - MARGIN.top - MARGIN.bottom);
  const picture = svg("svg", { width, height: TALL, role: "group", "aria-label": title });
  picture.append(...axes(values.length, top, width, y));
  const mean = values.map((row) => row.reduce((a, b) => a + b, 0) / row.length);
  const points = mean.map((value, n) => `${x(n)},${y(value)}`).join(" ");
  picture.append(svg("polyline", { points, fill: "none", stroke: colour("second"), "stroke-width": 2 }));
  const circles = values.flatMap((row, layer) =>
    row.map((value, head) => dot(layer, head, value, x(layer), y(value), told)),
  );
  roving(circles, 1);
  picture.append(...circles);
  return el("figure", {}, el("figcaption", {}, title), picture);
}

const spread = (n, count, width) =>
  MARGIN.left + ((n + 0.5) / count) * (width - MARGIN.left - MARGIN.right);

function axes(count, top, width, y) {
  const lines = [0, 0.25, 0.5, 0.75, 1].map((share) => {
    const at = y(share * top);
    const rule = { x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at, stroke: colour("rule") };
    const place = { x: MARGIN.left - 6, y: at + 4, "text-anchor": "end" };
    const number = (share * top).toFixed(top < 10 ? 1 : 0);
    return svg("g", {}, svg("line", rule), svg("text", place, number));
  });
  const names = range(count).map((n) => {
    const place = { x: spread(n, count, width), y: TALL - 18, "text-anchor": "middle" };
    return svg("text", place, String(n));
  });
  const below = { x: (width + MARGIN.left) / 2, y: TALL - 3, "text-anchor": "middle" };
  return [...lines, ...names, svg("text", below, "layer")];
}

function dot(layer, head, value, cx, cy, told) {
  const name = `layer ${layer}, head ${head}: ${value.toFixed(2)}`;
  const tell = () => (told.textContent = name);
  const open = () => {
    Object.assign(state, { view: "head", layer, head });
    render();
  };
  const key = (event) => ["Enter", " "].includes(event.key) && open();
  const listeners = { onclick: open, onkeydown: key, onpointerenter: tell, onfocus: tell };
  const look = { cx, cy, r: 5, fill: colour("first"), "fill-opacity": 0.55, class: "dot" };
  return svg("circle", { ...look, ...listeners, role: "button", "aria-label": name });
}
