// A matrix as cells of colour, a row for each token that looks.

// The share of cells that may be stronger than what has the full colour. Otherwise a few
// strong weights would leave all others white.
const SATURATED = 0.02;

// Cells for at most `width` x `height` pixels; where several share a pixel, the strongest.
function pooled(values, rows, columns, width, height) {
  const [wide, high] = [Math.min(width, columns.length), Math.min(height, rows.length)];
  const cells = new Float32Array(wide * high);
  const sides = new Uint8Array(high);
  const across = columns.map((_, n) => Math.floor((n * wide) / columns.length));
  rows.forEach((i, row) => {
    const down = Math.floor((row * high) / rows.length);
    sides[down] = segment(i);
    columns.forEach((j, column) => {
      const at = down * wide + across[column];
      const weight = values[i * SEEN + j];
      if (weight > cells[at]) cells[at] = weight;
    });
  });
  return { cells, sides, wide, high };
}

// The weight that has the full colour in some pictures.
function fullWeight(pictures) {
  const count = pictures.reduce((sum, { cells }) => sum + cells.length, 0);
  const every = Math.ceil(count / 100000);
  const sample = Float32Array.from(pictures.flatMap(({ cells }) => [...cells.filter((_, n) => n % every === 0)]));
  return Math.max(sample.sort()[Math.floor((sample.length - 1) * (1 - SATURATED))] ?? 0, FAINTEST);
}

// A pixel for each cell.
function paint(canvas, { cells, sides, wide, high }, full) {
  canvas.width = wide;
  canvas.height = high;
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(wide, high);
  const paper = channels("paper");
  const inks = NAMES.map(channels);
  cells.forEach((weight, n) => {
    const share = asRoot(weight / full);
    const ink = inks[sides[Math.floor(n / wide)]];
    for (const c of [0, 1, 2]) image.data[4 * n + c] = paper[c] + (ink[c] - paper[c]) * share;
    image.data[4 * n + 3] = 255;
  });
  pen.putImageData(image, 0, 0);
  return canvas;
}

// The colours of a matrix and their weights.
function scale(full) {
  const cells = Float32Array.from(range(64), (n) => (n / 63) * full);
  const bar = paint(el("canvas"), { cells, sides: [0], wide: 64, high: 1 }, full);
  return el("span", { class: "scale" }, "0", bar, `${full.toPrecision(2)} and more`);
}

const LABEL = 84; // pixels for a token beside its row
const NUMBER = 34; // and for a number
const LARGEST = 28; // cell
const WIDEST = 760; // with which a matrix fits on a screen

// One head as a matrix with its tokens, or with their numbers where they are many.
function headMatrix(values) {
  const { rows, columns } = sides();
  const canvas = el("canvas", { class: "cells", role: "img", "aria-label": "weights as a matrix" });
  const bar = el("div", { class: "caption" });
  const box = el("div", { class: "matrix" }, canvas, bar);
  whenInPage(canvas, () => {
    const place = placed(Math.min(box.clientWidth, WIDEST), rows, columns);
    const { full, redraw } = drawnMatrix(canvas, place, values, rows, columns);
    bar.append("Rows look, columns are looked at. ", scale(full));
    shows.push(redraw);
    pointAt(canvas, place, rows, columns);
    redraw(state.token);
  });
  return box;
}

function placed(width, rows, columns) {
  const most = Math.max(rows.length, columns.length, 1);
  const hasNames = (width - LABEL) / most >= 11;
  const edge = hasNames ? LABEL : NUMBER;
  return { hasNames, edge, cell: Math.min(LARGEST, (width - edge) / most) };
}

function drawnMatrix(canvas, { hasNames, edge, cell }, values, rows, columns) {
  const [width, height] = [edge + cell * columns.length, edge + cell * rows.length];
  const ratio = devicePixelRatio || 1;
  const size = (tokens) => Math.max(Math.round(tokens.length * cell * ratio), 1);
  const picture = pooled(values, rows, columns, size(columns), size(rows));
  const full = fullWeight([picture]);
  const cells = paint(el("canvas"), picture, full);
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  function redraw(token) {
    const pen = sharp(canvas, width, height);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cells, edge, edge, width - edge, height - edge);
    const label = hasNames ? drawNames : drawNumbers;
    label(pen, edge, cell, "from", rows);
    pen.save();
    pen.translate(0, edge);
    pen.rotate(-Math.PI / 2);
    // Turned, so that the labels of columns are drawn as those of rows.
    label(pen, edge, cell, "to", columns, true);
    pen.restore();
    outline(pen, edge, cell, token, rows, columns);
  }
  return { full, redraw };
}

function write(pen, text, x, y, room, turned) {
  pen.fillStyle = colour("soft");
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.direction = direction([text]);
  pen.textAlign = turned ? "left" : "right";
  while (pen.measureText(text).width > room && text.length > 2) text = `${text.slice(0, -2)}…`;
  pen.fillText(text, x, y);
}

function drawNames(pen, edge, cell, side, tokens, turned) {
  tokens.forEach((i, n) => {
    const y = edge + (n + 0.5) * cell;
    write(pen, TOKENS[side][i], turned ? 5 : edge - 5, y, edge - 8, turned);
  });
}

function drawNumbers(pen, edge, cell, side, tokens, turned) {
  const every = [10, 20, 50, 100, 200, 500].find((count) => count * cell >= 24) ?? 1000;
  tokens.forEach((i, n) => {
    const y = edge + (n + 0.5) * cell;
    if (i % every === 0) write(pen, String(i), turned ? 5 : edge - 5, y, edge, turned);
  });
}

// The row of a token that looks, or the column of one that is looked at.
function outline(pen, edge, cell, token, rows, columns) {
  const isRow = token?.side === "from";
  const at = (isRow ? rows : columns).indexOf(token?.i);
  if (at < 0) return;
  const from = edge + at * cell;
  const thick = Math.max(cell, 2);
  pen.strokeStyle = colour("ink");
  pen.lineWidth = 1.5;
  if (isRow) pen.strokeRect(edge, from - 1, columns.length * cell, thick + 2);
  else pen.strokeRect(from - 1, edge, thick + 2, rows.length * cell);
}

// Pointing at a cell shows its row and its weight; a click or a tap chooses the row.
function pointAt(canvas, { edge, cell }, rows, columns) {
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const number = (at, tokens) => tokens[Math.floor((at - edge) / cell)];
    const i = number(event.clientY - box.top, rows);
    const at = number(event.clientX - box.left, columns);
    return i === undefined || at === undefined ? null : { side: "from", i, at };
  };
  canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && show(under(event)));
  canvas.addEventListener("pointerleave", () => show(null));
  canvas.addEventListener("click", (event) => under(event) && choose(under(event)));
}
