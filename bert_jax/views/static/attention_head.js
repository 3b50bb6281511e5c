// One head, as lines or as a matrix.
const head = (values) => (state.as === "matrix" ? headMatrix(values) : headLines(values));

// The most lines of a picture; more hide each other, and take seconds to draw. As many as
// tokens have room, for one line of each may be the whole head.
const MOST = { head: Math.max(500, LENGTH), thumbnail: Math.max(300, LENGTH) };

// Tokens twice, with lines between. A token shows its row on the left, its column on
// the right.
function headLines(values) {
  const { rows, columns } = sides();
  const canvas = el("canvas", { "aria-hidden": "true" });
  const left = column("from", "looks", rows);
  const right = column("to", "is looked at", columns);
  const least = leastDrawn(values, rows, columns, MOST.head);
  const caption = el("div", { class: "caption" });
  const parts = { rows, columns, values, canvas, left, right, least, caption };
  whenInPage(canvas, () => {
    shows.push((token) => showLines(parts, token));
    showLines(parts, state.token);
  });
  return el("div", { class: "head" }, left.box, el("div", {}, caption, canvas), right.box);
}

function column(side, caption, tokens) {
  const buttons = tokens.map((i) => {
    const button = el("button", { class: "token", title: labelled(side, i), "aria-pressed": false });
    button.append(el("bdi", {}, TOKENS[side][i]), el("small"));
    button.style.setProperty("--tint", `var(--${NAMES[segment(i)]})`);
    listen(button, { side, i });
    return button;
  });
  roving(buttons, 1);
  const box = el("div", { class: side }, el("div", { class: "caption" }, caption), ...buttons);
  return { side, tokens, buttons, box };
}

function showLines(parts, token) {
  const { rows, columns, values, canvas, left, right, least, caption } = parts;
  const found = token && weightsOf(values, token);
  for (const side of [left, right]) markColumn(side, found ? token : null, found);
  const step = left.buttons[0]?.offsetHeight || 22;
  const width = canvas.clientWidth;
  const height = step * Math.max(rows.length, columns.length);
  canvas.style.height = `${height}px`;
  const pen = sharp(canvas, width, height);
  if (found) {
    const top = Math.max(3 / found.weights.size, ...found.weights.values());
    const look = { thick: 2.5, strength: (weight) => asRoot(weight / top), least: FAINTEST };
    drawLines(pen, width, height, alone(values, token), rows, columns, look);
  } else drawLines(pen, width, height, values, rows, columns, { thick: 1.5, strength: asIs, least });
  const isCut = !found && least > FAINTEST;
  if (found && isChosen(token) && parts.chosen !== token) {
    parts.chosen = token;
    const { tokens, buttons } = token.side === "from" ? left : right;
    reveal(buttons[tokens.indexOf(token.i)]);
  }
  caption.textContent = isCut ? `weights of ${least.toPrecision(2)} and more` : "\u00a0";
}

// Scrolls this page alone, a frame in a notebook, to a token that has been chosen.
function reveal(button) {
  const { top, bottom } = button.getBoundingClientRect();
  if (top < 0 || bottom > innerHeight) scrollBy(0, top - innerHeight / 2);
}

function markColumn({ side, tokens, buttons }, token, found) {
  const isOther = found?.other === side;
  buttons.forEach((button, n) => {
    const i = tokens[n];
    button.classList.toggle("shown", token?.side === side && token.i === i);
    button.setAttribute("aria-pressed", isChosen({ side, i }));
    button.style.setProperty("--share", isOther ? found.share(i) : 0);
    button.lastChild.textContent = isOther ? found.weights.get(i).toFixed(3) : "";
  });
}
