// How layers differ: a dot for each head, a line through the means.
function layersView() {
  const told = el("output", { "aria-live": "polite" }, "Each dot is a head, the line is their mean; a click opens a head.");
  const charts = el("div", { class: "charts" });
  whenInPage(charts, () => {
    const width = chartWidth(charts);
    const far = "How far heads look: mean distance, in tokens";
    const broadly = `How broadly: entropy, at most ln ${SEEN} = ${Math.log(SEEN).toFixed(2)}`;
    if (facts.distance) charts.append(dots(far, facts.distance, width, told));
    charts.append(dots(broadly, facts.entropy, width, told));
  });
  return el("div", {}, told, charts);
}

function dots(title, values, width, told) {
  const top = Math.max(...values.flat(), 1e-9) * 1.05;
  const drawn = chart(title, LAYERS, top, width);
  const mean = values.map((row) => row.reduce((a, b) => a + b, 0) / row.length);
  curve(drawn, mean, "second");
  const circles = values.flatMap((row, layer) =>
    row.map((value, head) => dot(layer, head, value, drawn, told)),
  );
  roving(circles, 1);
  drawn.picture.append(...circles);
  return el("figure", {}, el("figcaption", {}, title), drawn.picture);
}

function dot(layer, head, value, { x, y }, told) {
  const name = `Layer ${layer}, head ${head}: ${value.toFixed(2)}`;
  const tell = () => (told.textContent = name);
  const open = () => {
    Object.assign(state, { view: "head", layer, head });
    render();
  };
  const key = (event) => ["Enter", " "].includes(event.key) && open();
  const listeners = { onclick: open, onkeydown: key, onpointerenter: tell, onfocus: tell };
  const look = { cx: x(layer), cy: y(value), r: 5, fill: colour("first"), "fill-opacity": 0.55, class: "dot" };
  return svg("circle", { ...look, ...listeners, role: "button", "aria-label": name });
}
