// Where one token's row comes from: its query with every key, cell by cell, their sum
// over the root of the size, and the softmax of it.
function vectors(values) {
  const box = el("div", { class: "vectors" });
  let drawn = null;
  const draw = () => {
    const i = lookingToken();
    if (drawn === i) return;
    drawn = i;
    box.replaceChildren(...vectorLines(values, i));
    // The list of tokens is above.
    for (const list of root.querySelectorAll("select[data-tokens]")) list.selectedIndex = i;
  };
  draw();
  shows.push(draw);
  return el("div", {}, box, el("p", { class: "note" }, STEPS(facts.vectors.size)));
}

// The token whose query is shown: the chosen one, unless it is of the other text.
function lookingToken() {
  const isOther = facts.source && state.token?.side === "to";
  return isOther ? 0 : (state.token?.i ?? 0);
}

function vectorLines(values, i) {
  const { layer, head } = state;
  const size = facts.vectors.size;
  const query = vector(0, layer, head, i);
  const keys = range(SEEN).map((j) => vector(1, layer, head, j));
  const products = keys.map((key) => key.map((value, k) => value * query[k]));
  const most = (rows) => rows.reduce((x, row) => Math.max(x, ...row.map(Math.abs)), 1e-9);
  const scale = { key: most([...keys, query]), product: most(products) };
  const titles = (...texts) => texts.map((text) => el("span", { class: "head-line" }, text));
  const name = (side, i) => el("bdi", { title: labelled(side, i) }, TOKENS[side][i]);
  const lines = products.flatMap((product, j) => {
    const score = product.reduce((x, value) => x + value, 0) / Math.sqrt(size);
    return [
      name("to", j),
      el("span", { class: "number" }, rounded(score)),
      meter(values[i * SEEN + j]),
    ];
  });
  return [
    ...titles("", "query", "", "", ""),
    ...[name("from", i), strips([query], scale.key), el("span"), el("span"), el("span")],
    ...titles("", "key", "query × key", "score", "weight"),
    ...[strips(keys, scale.key, 2), strips(products, scale.product, 3), ...lines],
  ];
}

// As many digits as are right.
const SCORE_DIGITS = [0.005, 0.05].filter((error) => facts.vectors?.error <= error).length;

// Through a number, so that there is no -0.00.
const rounded = (score) => Number(score.toFixed(SCORE_DIGITS)).toFixed(SCORE_DIGITS);

const STEPS = (size) =>
  `Cells: ${size} features, blue for positive, orange for negative. Score: the sum of ` +
  `query × key over √${size}. Weight: the softmax of the scores, as the model computed it.`;

function meter(weight) {
  const bar = el("i");
  bar.style.width = `${(weight * 100).toFixed(2)}%`;
  return el("span", { class: "number meter" }, bar, weight.toFixed(3));
}

// Rows of numbers as cells: positive in the first colour, negative in the second. One
// picture beside all of the rows is many times faster than one for each.
function strips(rows, most, column) {
  const size = rows[0].length;
  const thick = Math.max(1, Math.min(8, Math.floor(16000 / rows.length)));
  const gap = thick > 3 ? 1 : 0;
  const canvas = el("canvas", { class: "strip", width: size, height: thick * rows.length });
  if (column) canvas.style.gridArea = `4 / ${column} / span ${rows.length}`;
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  const paper = channels("field");
  const inks = NAMES.map(channels);
  rows.forEach((values, row) =>
    values.forEach((value, k) => {
      const ink = inks[value < 0 ? 1 : 0];
      const share = Math.min(Math.abs(value) / most, 1);
      const shade = [0, 1, 2].map((c) => paper[c] + (ink[c] - paper[c]) * share);
      for (let line = gap; line < thick; line++)
        image.data.set([...shade, 255], 4 * ((row * thick + line) * size + k));
    }),
  );
  pen.putImageData(image, 0, 0);
  return canvas;
}
