// Every head of every layer; a click opens one.
function grid() {
  const columns = [...range(HEADS), ...TOGETHER];
  const cells = [];
  const box = el("div", { class: "grid", role: "group", "aria-label": "layers and heads" });
  box.style.gridTemplateColumns = `auto repeat(${columns.length}, minmax(38px, 160px))`;
  box.append(el("span", {}, "layer"), ...columns.map((head) => el("span", {}, headName(head))));
  for (const layer of range(LAYERS)) {
    box.append(el("span", {}, String(layer)));
    for (const head of columns) {
      cells.push(thumbnail(layer, head));
      box.append(cells.at(-1).button);
    }
  }
  roving(cells.map(({ button }) => button), columns.length);
  const bar = el("div", { class: "caption" });
  whenInPage(box, () => {
    if (state.as === "matrix") bar.append("The same colours in all pictures: ", drawMatrices(cells));
    else drawWebs(cells);
  });
  return el("div", {}, el("div", { class: "wide" }, box), bar);
}

function thumbnail(layer, head) {
  const name = `layer ${layer}, ${headName(head)}`;
  const canvas = el("canvas");
  const open = () => {
    Object.assign(state, { view: "head", layer, head });
    render();
  };
  const button = el("button", { "aria-label": name, title: name, onclick: open }, canvas);
  return { canvas, button, values: () => shown(layer, head) };
}

// All with one scale, which is returned as a picture.
function drawMatrices(cells) {
  const { rows, columns } = sides();
  const pictures = cells.map(({ canvas, values }) => {
    const size = Math.round(canvas.clientWidth * (devicePixelRatio || 1));
    return pooled(values(), rows, columns, size, size);
  });
  const full = fullWeight(pictures);
  cells.forEach(({ canvas }, n) => paint(canvas, pictures[n], full));
  return scale(full);
}

// The lines of each head, and over them those of the chosen token.
function drawWebs(cells) {
  const { rows, columns } = sides();
  let chosen = null;
  function draw({ canvas, values }) {
    const size = canvas.clientWidth;
    const pen = sharp(canvas, size, size);
    const weights = values();
    const least = leastDrawn(weights, rows, columns, MOST.thumbnail);
    drawLines(pen, size, size, weights, rows, columns, { thick: 1, strength: asIs, least });
    if (!chosen) return;
    const look = { thick: 1.5, strength: asIs, least: FAINTEST, ink: "ink" };
    drawLines(pen, size, size, alone(weights, chosen), rows, columns, look);
  }
  shows.push(() => {
    if (chosen === state.token) return;
    chosen = state.token;
    cells.forEach(draw);
  });
  chosen = state.token;
  cells.forEach(draw);
}
