// LENGTH tokens look at SEEN: at each other, or at those of another text.
const [LAYERS, HEADS, LENGTH, SEEN] = facts.shape;
const CELLS = LENGTH * SEEN;
const COUNTS = [LENGTH, SEEN]; // of queries and of keys
const TOKENS = { from: facts.tokens, to: facts.source ?? facts.tokens };
// What heads become together. Through several layers only what looks at itself goes.
const TOGETHER = facts.source ? ["mean"] : ["mean", "rollout"];
const NAMES = ["first", "second"];
const data = {};

const segment = (i) => (facts.segments ? facts.segments[i] : 0);

const isSpecial = (side, i) => facts.specials.includes(TOKENS[side][i]);

// A token and its number: as text, and as children of an element.
const labelled = (side, i) => `${isolated(TOKENS[side][i])} (${i})`;
const named = (side, i) => [el("bdi", {}, TOKENS[side][i]), ` (${i})`];

// Upper bytes of all numbers stand before the lower ones, see packing.py.
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
  data.weights = next(LAYERS * HEADS * CELLS);
  if (TOGETHER.includes("rollout")) data.rolled = next(LAYERS * CELLS);
  if (!facts.vectors) return;
  data.vectors = COUNTS.map((count) => next(LAYERS * HEADS * count * facts.vectors.size));
}

// The mean of stored matrices, `numbers` of them from the one numbered `first`, each
// `step` after the other.
function mean(stored, first, numbers, step) {
  const sum = new Float32Array(CELLS);
  for (let n = 0; n < numbers; n++) {
    const values = stored.subarray((first + n * step) * CELLS, (first + n * step + 1) * CELLS);
    for (let i = 0; i < CELLS; i++) sum[i] += values[i];
  }
  const scale = 1 / (numbers * (2 ** facts.bits - 1));
  for (let i = 0; i < CELLS; i++) sum[i] *= scale;
  return sum;
}

// Who looks at whom: row i of SEEN numbers is that of token i. A layer or a head is a
// number or "mean", and the head may be "rollout".
function matrix(layer, head) {
  if (layer === "mean" && head === "mean")
    return (data.mean ??= mean(data.weights, 0, LAYERS * HEADS, 1));
  if (head === "rollout") return mean(data.rolled, layer === "mean" ? LAYERS - 1 : layer, 1, 1);
  if (layer === "mean") return mean(data.weights, head, LAYERS, HEADS);
  if (head === "mean") return mean(data.weights, layer * HEADS, HEADS, 1);
  return mean(data.weights, layer * HEADS + head, 1, 1);
}

// The matrix with each row divided by its sum over tokens that are not special.
function rescaled(values) {
  const kept = range(SEEN).filter((j) => !isSpecial("to", j));
  const result = new Float32Array(CELLS);
  for (let row = 0; row < CELLS; row += SEEN) {
    let sum = 0;
    for (const j of kept) sum += values[row + j];
    for (const j of kept) result[row + j] = values[row + j] / (sum || 1);
  }
  return result;
}

// The vector of one token; which is 0 for its query and 1 for its key.
function vector(which, layer, head, i) {
  const { size, bits, steps } = facts.vectors;
  const at = ((layer * HEADS + head) * COUNTS[which] + i) * size;
  const step = steps[which][layer][head];
  const rounded = data.vectors[which].subarray(at, at + size);
  return Float32Array.from(rounded, (value) => (value - 2 ** (bits - 1)) * step);
}
