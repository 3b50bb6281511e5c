// How strong a weight is drawn. Where lines lie over each other it is the weight itself;
// elsewhere its root, for among many tokens most weights are small.
const asIs = (weight) => Math.min(weight, 1);
const asRoot = (weight) => Math.sqrt(asIs(weight));
const FAINTEST = 0.001;
const LEVELS = 32;

// Lines from rows on the left to columns on the right. Those of like strength make one
// path, which is many times faster than each by itself.
function drawLines(pen, width, height, values, rows, columns, { thick, strength }) {
  const step = height / Math.max(rows.length, columns.length);
  const paths = NAMES.map(() => range(LEVELS + 1).map(() => new Path2D()));
  rows.forEach((i, row) => {
    columns.forEach((j, column) => {
      const weight = values[i * SEEN + j];
      if (weight < FAINTEST) return;
      const path = paths[segment(i)][Math.ceil(strength(weight) * LEVELS)];
      path.moveTo(0, (row + 0.5) * step);
      path.lineTo(width, (column + 0.5) * step);
    });
  });
  pen.clearRect(0, 0, width, height);
  pen.lineWidth = thick;
  paths.forEach((levels, side) => {
    pen.strokeStyle = colour(NAMES[side]);
    levels.forEach((path, level) => {
      pen.globalAlpha = level / LEVELS;
      pen.stroke(path);
    });
  });
}

// A pixel for each row and column.
function drawMatrix(canvas, values, rows, columns) {
  canvas.width = columns.length;
  canvas.height = rows.length;
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(columns.length, rows.length);
  const paper = channels("paper");
  const inks = NAMES.map(channels);
  let at = 0;
  for (const i of rows)
    for (const j of columns) {
      const share = asRoot(values[i * SEEN + j]);
      const ink = inks[segment(i)];
      for (const c of [0, 1, 2]) image.data[at++] = paper[c] + (ink[c] - paper[c]) * share;
      image.data[at++] = 255;
    }
  pen.putImageData(image, 0, 0);
}

// Numbers as a strip of cells: positive in the first colour, negative in the second.
function strip(values, most) {
  const canvas = el("canvas", { class: "strip", width: values.length, height: 1 });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(values.length, 1);
  const paper = channels("field");
  const inks = NAMES.map(channels);
  values.forEach((value, k) => {
    const ink = inks[value < 0 ? 1 : 0];
    const share = Math.min(Math.abs(value) / most, 1);
    for (const c of [0, 1, 2]) image.data[4 * k + c] = paper[c] + (ink[c] - paper[c]) * share;
    image.data[4 * k + 3] = 255;
  });
  pen.putImageData(image, 0, 0);
  return canvas;
}
