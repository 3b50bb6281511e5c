// The text in a line above every view, tinted by the weights of the token that is shown,
// and the same in words.

// A text that looks at itself stands there once.
const SIDES = facts.source ? ["from", "to"] : ["from"];

// Functions that show a token in what is drawn.
let shows = [];

// Shows a token, or else the chosen one.
const show = (token) => shows.forEach((shown) => shown(token ?? state.token));

const isChosen = ({ side, i }) => state.token?.side === side && state.token.i === i;

// Pointing at a token and moving to it show it; a click or a tap keeps it.
function listen(button, token) {
  button.addEventListener("pointerenter", (event) => {
    if (event.pointerType === "mouse") show(token);
  });
  button.addEventListener("pointerleave", () => show(null));
  button.addEventListener("focus", () => show(token));
  button.addEventListener("blur", () => show(null));
  button.addEventListener("click", () => choose(token));
}

function choose(token) {
  state.token = isChosen(token) ? null : token;
  show(null);
}

// How strongly the shown token and others look at each other, in one direction.
function weightsOf(values, token) {
  const { rows, columns } = sides();
  const [own, others] = token.side === "from" ? [rows, columns] : [columns, rows];
  if (!own.includes(token.i)) return null;
  const other = token.side === "from" ? "to" : "from";
  const at = (i) => (token.side === "from" ? token.i * SEEN + i : i * SEEN + token.i);
  const weights = new Map(others.map((i) => [i, values[at(i)]]));
  // Full strength is that of the strongest, unless all are about even.
  const top = Math.max(3 / others.length, ...weights.values());
  return { other, weights, share: (i) => asRoot((weights.get(i) ?? 0) / top) };
}

function reading(values) {
  const told = el("output", { "aria-live": "polite" });
  const passages = SIDES.map(passage);
  shows.push((token) => {
    const found = token && weightsOf(values, token);
    told.replaceChildren(...(found ? sentence(token, found) : [HINT]));
    passages.forEach(({ mark }) => mark(token, found));
  });
  return el("div", { class: "reading" }, ...passages.map(({ box }) => box), told);
}

function passage(side) {
  const buttons = TOKENS[side].map((text, i) => {
    const button = el("button", { title: labelled(side, i) }, el("bdi", {}, text));
    button.style.setProperty("--tint", `var(--${NAMES[segment(i)]})`);
    listen(button, { side, i });
    return button;
  });
  roving(buttons, 1);
  const attributes = { class: "passage", role: "group", "aria-label": "the text" };
  const box = el("div", { ...attributes, dir: direction(TOKENS[side]) }, ...buttons);
  function mark(token, found) {
    const { rows, columns } = sides();
    const inView = new Set(facts.source ? (side === "from" ? rows : columns) : [...rows, ...columns]);
    const tinted = found && (!facts.source || found.other === side);
    const is = (other, i) => other?.i === i && (!facts.source || other.side === side);
    buttons.forEach((button, i) => {
      button.style.setProperty("--share", tinted ? found.share(i) : 0);
      button.classList.toggle("own", is(token, i));
      button.classList.toggle("faint", !inView.has(i));
      button.setAttribute("aria-pressed", is(state.token, i));
    });
    const own = token && buttons[token.i];
    // Only the line itself moves, not the page.
    if (own?.classList.contains("own") && box.scrollHeight > box.clientHeight) {
      const above = own.offsetTop - box.offsetTop;
      const low = above + own.offsetHeight - box.clientHeight;
      if (box.scrollTop > above || box.scrollTop < low) box.scrollTop = above - box.clientHeight / 2;
    }
  }
  return { box, mark };
}

const HINT = "Point at a token, tap it, or move to it by tab and arrows: its weights appear.";

function sentence({ side, i, at }, { other, weights }) {
  const verb = side === "from" ? " looks at " : " is looked at by ";
  const most = [...weights].sort((a, b) => b[1] - a[1]).slice(0, 5);
  const listed = (pairs) =>
    pairs.flatMap(([j, value], n) => [n ? ", " : "", ...named(other, j), ` ${value.toFixed(3)}`]);
  const own = weights.has(at) ? [...listed([[at, weights.get(at)]]), "; most at "] : [];
  return [...named(side, i), verb, ...own, ...listed(most)];
}
