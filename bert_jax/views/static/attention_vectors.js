// Where one token's row comes from: its query with every key, cell by cell, their sum
// over the root of the size, and the softmax of it.
function vectors() {
  const { layer, head } = state;
  const i = state.token?.i ?? 0;
  const size = facts.vectors.size;
  const query = vector(0, layer, head, i);
  const keys = range(SEEN).map((j) => vector(1, layer, head, j));
  const products = keys.map((key) => key.map((value, k) => value * query[k]));
  const most = (rows) => rows.reduce((x, row) => Math.max(x, ...row.map(Math.abs)), 1e-9);
  const scale = { key: most([...keys, query]), product: most(products) };
  const weights = matrix(layer, head).subarray(i * SEEN, (i + 1) * SEEN);
  const digits = facts.vectors.error < 0.05 ? 2 : 1;
  const box = el("div", { class: "vectors" });
  const line = (...cells) => cells.forEach((cell) => box.append(cell));
  line(...["", "query", "", "", ""].map((text) => el("span", { class: "head-line" }, text)));
  line(el("bdi", { title: labelled("from", i) }, TOKENS.from[i]), strip(query, scale.key));
  line(el("span"), el("span"), el("span"));
  const heading = ["", "key", "query × key", "score", "weight"];
  line(...heading.map((text) => el("span", { class: "head-line" }, text)));
  products.forEach((product, j) => {
    const score = product.reduce((x, value) => x + value, 0) / Math.sqrt(size);
    line(el("bdi", { title: labelled("to", j) }, TOKENS.to[j]));
    line(strip(keys[j], scale.key), strip(product, scale.product));
    line(el("span", { class: "number" }, score.toFixed(digits)), meter(weights[j]));
  });
  return el("div", {}, box, el("p", { class: "note" }, STEPS(size)));
}

const STEPS = (size) =>
  `Cells: ${size} features, blue for positive, orange for negative. Score: the sum of ` +
  `query × key over √${size}. Weight: the softmax of the scores, as the model computed it.`;

function meter(weight) {
  const bar = el("i");
  bar.style.width = `${(weight * 100).toFixed(2)}%`;
  return el("span", { class: "number meter" }, bar, weight.toFixed(3));
}
