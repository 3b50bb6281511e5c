// Every head of every layer; a click opens one.
function grid() {
  const columns = [...range(HEADS), ...TOGETHER];
  const cells = [];
  const box = el("div", { class: "grid", role: "group", "aria-label": "layers and heads" });
  box.style.gridTemplateColumns = `auto repeat(${columns.length}, minmax(38px, 1fr))`;
  box.append(el("span", {}, "layer"), ...columns.map((head) => el("span", {}, headName(head))));
  for (const layer of range(LAYERS)) {
    box.append(el("span", {}, String(layer)));
    for (const head of columns) {
      cells.push(thumbnail(layer, head));
      box.append(cells.at(-1));
    }
  }
  roving(cells, columns.length);
  // It has a width once it is in the page.
  requestAnimationFrame(() => cells.forEach((cell) => cell.draw()));
  return el("div", { class: "wide" }, box);
}

function thumbnail(layer, head) {
  const name = `layer ${layer}, ${headName(head)}`;
  const canvas = el("canvas");
  const cell = el("button", { "aria-label": name, title: name, onclick: open }, canvas);
  function open() {
    Object.assign(state, { view: "head", layer, head });
    render();
  }
  cell.draw = () => {
    const { rows, columns } = sides();
    const values = matrix(layer, head);
    if (state.as === "matrix") return drawMatrix(canvas, values, rows, columns);
    const size = canvas.clientWidth;
    const look = { thick: 1, strength: asIs };
    drawLines(sharp(canvas, size, size), size, size, values, rows, columns, look);
  };
  return cell;
}
