// How strong a weight is drawn. Where lines lie over each other it is the weight itself;
// elsewhere its root, for among many tokens most weights are small.
const asIs = (weight) => Math.min(weight, 1);
const asRoot = (weight) => Math.sqrt(asIs(weight));
const FAINTEST = 0.001;
const LEVELS = 32;

// The least weight that is drawn, in thousandths: at most `most` weights are as strong.
function leastDrawn(values, rows, columns, most) {
  const counts = new Uint32Array(1001);
  for (const i of rows)
    for (const j of columns) counts[Math.min(Math.floor(values[i * SEEN + j] * 1000), 1000)]++;
  let level = 1001;
  for (let sum = 0; level > 1; level--) {
    sum += counts[level - 1];
    if (sum > most) break;
  }
  return Math.max(level / 1000, FAINTEST);
}

// Lines from rows on the left to columns on the right, of weights of at least `least`.
// Those of like strength make one path, which is many times faster than each by itself.
function drawLines(pen, width, height, values, rows, columns, { thick, strength, least, ink }) {
  const step = height / Math.max(rows.length, columns.length);
  const paths = NAMES.map(() => range(LEVELS + 1).map(() => new Path2D()));
  rows.forEach((i, row) => {
    columns.forEach((j, column) => {
      const weight = values[i * SEEN + j];
      if (weight < least) return;
      const path = paths[segment(i)][Math.ceil(strength(weight) * LEVELS)];
      path.moveTo(0, (row + 0.5) * step);
      path.lineTo(width, (column + 0.5) * step);
    });
  });
  pen.lineWidth = thick;
  paths.forEach((levels, side) => {
    pen.strokeStyle = colour(ink ?? NAMES[side]);
    levels.forEach((path, level) => {
      pen.globalAlpha = level / LEVELS;
      pen.stroke(path);
    });
  });
}

// The weights of one token alone, in their places.
function alone(values, { side, i }) {
  const kept = new Float32Array(CELLS);
  for (let n = 0; n < (side === "from" ? SEEN : LENGTH); n++) {
    const at = side === "from" ? i * SEEN + n : n * SEEN + i;
    kept[at] = values[at];
  }
  return kept;
}
