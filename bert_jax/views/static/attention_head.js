// One head: tokens twice, with lines between. A token shows its row on the left, its
// column on the right.
function head() {
  const { rows, columns } = sides();
  const values = matrix(state.layer, state.head);
  const canvas = el("canvas", { "aria-hidden": "true" });
  const told = el("output", { "aria-live": "polite" });
  const left = column("from", "looks", rows);
  const right = column("to", "is looked at", columns);
  const parts = { rows, columns, values, canvas, told, left, right };
  for (const side of [left, right]) listen(side, (token) => show(parts, token ?? state.token));
  requestAnimationFrame(() => show(parts, state.token));
  const drawn = el("div", {}, el("div", { class: "caption" }, "\u00a0"), canvas);
  return el("div", {}, told, el("div", { class: "head" }, left.box, drawn, right.box));
}

function column(side, caption, tokens) {
  const buttons = tokens.map((i) => {
    const button = el("button", { class: "token", title: labelled(side, i), "aria-pressed": false });
    button.append(el("bdi", {}, TOKENS[side][i]), el("small"));
    button.style.setProperty("--tint", `var(--${NAMES[segment(i)]})`);
    return button;
  });
  roving(buttons, 1);
  const box = el("div", { class: side }, el("div", { class: "caption" }, caption), ...buttons);
  return { side, tokens, buttons, box };
}

// Pointing at a token and moving to it show it; a click or a tap keeps it.
function listen({ side, tokens, buttons }, show) {
  const same = (token) => token && state.token?.side === side && state.token.i === token.i;
  buttons.forEach((button, n) => {
    const token = { side, i: tokens[n] };
    button.addEventListener("pointerenter", (event) => {
      if (event.pointerType === "mouse") show(token);
    });
    button.addEventListener("pointerleave", () => show(null));
    button.addEventListener("focus", () => show(token));
    button.addEventListener("blur", () => show(null));
    button.addEventListener("click", () => {
      state.token = same(token) ? null : token;
      show(state.token);
    });
  });
}

function show({ rows, columns, values, canvas, told, left, right }, token) {
  const seen = token && (token.side === "from" ? rows : columns).includes(token.i);
  const weight = (side, i) => {
    if (!seen || side === token.side) return null;
    return side === "to" ? values[token.i * SEEN + i] : values[i * SEEN + token.i];
  };
  for (const side of [left, right]) mark(side, seen ? token : null, weight);
  told.textContent = seen ? sentence(token, weight, rows, columns) : HINT;
  const width = canvas.clientWidth;
  const step = left.buttons[0]?.offsetHeight || 22;
  const height = step * Math.max(rows.length, columns.length);
  canvas.style.height = `${height}px`;
  // One token's lines keep their places: the others are made nothing.
  const kept = seen ? alone(values, token) : values;
  const look = seen ? { thick: 2.5, strength: asRoot } : { thick: 1.5, strength: asIs };
  drawLines(sharp(canvas, width, height), width, height, kept, rows, columns, look);
}

const HINT = "Point at a token, tap it, or move to it by tab and arrows: its weights appear.";

function alone(values, { side, i }) {
  const kept = new Float32Array(CELLS);
  for (let n = 0; n < (side === "from" ? SEEN : LENGTH); n++) {
    const at = side === "from" ? i * SEEN + n : n * SEEN + i;
    kept[at] = values[at];
  }
  return kept;
}

function mark({ side, tokens, buttons }, token, weight) {
  buttons.forEach((button, n) => {
    const value = weight(side, tokens[n]);
    const own = token?.side === side && token.i === tokens[n];
    const pinned = state.token?.side === side && state.token.i === tokens[n];
    button.classList.toggle("shown", own);
    button.setAttribute("aria-pressed", pinned);
    button.style.setProperty("--share", value === null ? 0 : asRoot(value));
    button.lastChild.textContent = value === null ? "" : value.toFixed(3);
  });
}

function sentence({ side, i }, weight, rows, columns) {
  const [other, tokens] = side === "from" ? ["to", columns] : ["from", rows];
  const best = tokens.map((j) => [weight(other, j), j]).sort((a, b) => b[0] - a[0]);
  const most = best.slice(0, 5).map(([value, j]) => `${labelled(other, j)} ${value.toFixed(3)}`);
  return `${labelled(side, i)} ${side === "from" ? "looks at" : "is looked at by"} ${most.join(", ")}`;
}
