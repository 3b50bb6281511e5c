// LENGTH tokens look at SEEN: at each other, or at those of another text.
const [LAYERS, HEADS, LENGTH, SEEN] = facts.shape;
const CELLS = LENGTH * SEEN;
const COUNTS = [LENGTH, SEEN]; // of queries and of keys
const TOKENS = { from: facts.tokens, to: facts.source ?? facts.tokens };
// What heads become together. Through several layers only what looks at itself goes.
const TOGETHER = facts.source ? ["mean"] : ["mean", "rollout"];
const NAMES = ["first", "second"];
const data = {};
const means = new Map();

const segment = (i) => (facts.segments ? facts.segments[i] : 0);

const labelled = (side, i) => `${TOKENS[side][i]} (${i})`;

// Upper bytes of all numbers stand before the lower ones, see packed.py.
async function numbers() {
  const text = atob(part("numbers"));
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const halves = new Uint8Array(await new Response(stream).arrayBuffer());
  const count = halves.length / 2;
  const found = new Uint16Array(count);
  for (let i = 0; i < count; i++) found[i] = (halves[i] << 8) | halves[count + i];
  return found;
}

async function unpack() {
  const found = await numbers();
  let at = 0;
  const next = (count) => found.subarray(at, (at += count));
  const shares = (x) => Float32Array.from(x, (value) => value / (2 ** facts.bits - 1));
  data.weights = shares(next(LAYERS * HEADS * CELLS));
  if (TOGETHER.includes("rollout")) data.rolled = shares(next(LAYERS * CELLS));
  if (!facts.vectors) return;
  data.vectors = COUNTS.map((count) => next(LAYERS * HEADS * count * facts.vectors.size));
}

const matrixOf = (layer, head) => {
  const at = (layer * HEADS + head) * CELLS;
  return data.weights.subarray(at, at + CELLS);
};

// Who looks at whom: row i of SEEN numbers is that of token i. A layer or a head is a
// number or "mean", and the head may be "rollout".
function matrix(layer, head) {
  if (head === "rollout") {
    const at = (layer === "mean" ? LAYERS - 1 : layer) * CELLS;
    return data.rolled.subarray(at, at + CELLS);
  }
  if (layer !== "mean" && head !== "mean") return matrixOf(layer, head);
  const key = `${layer} ${head}`;
  if (!means.has(key)) means.set(key, mean(layer, head));
  return means.get(key);
}

function mean(layer, head) {
  const layers = layer === "mean" ? range(LAYERS) : [layer];
  const heads = head === "mean" ? range(HEADS) : [head];
  const sum = new Float32Array(CELLS);
  for (const n of layers)
    for (const h of heads) matrixOf(n, h).forEach((value, i) => (sum[i] += value));
  return sum.map((value) => value / (layers.length * heads.length));
}

// The vector of one token; which is 0 for its query and 1 for its key.
function vector(which, layer, head, i) {
  const { size, bits, steps } = facts.vectors;
  const at = ((layer * HEADS + head) * COUNTS[which] + i) * size;
  const step = steps[which][layer][head];
  const rounded = data.vectors[which].subarray(at, at + size);
  return Float32Array.from(rounded, (value) => (value - 2 ** (bits - 1)) * step);
}
