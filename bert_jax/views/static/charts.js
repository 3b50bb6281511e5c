const MARGIN = { left: 40, right: 12, top: 10, bottom: 34 };
const TALL = 260;

// A step of 1, 2 or 5 times a power of ten, of which about four reach the top.
function step(top) {
  const power = 10 ** Math.floor(Math.log10(top / 4));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => top / n <= 5);
}

// A chart over layers: x(layer) and y(value) are places in it, and `picture` holds what
// is drawn, with axes from 0 to `top`.
function chart(title, count, top, width) {
  const x = (n) => MARGIN.left + ((n + 0.5) / count) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => TALL - MARGIN.bottom - (value / top) * (TALL - MARGIN.top - MARGIN.bottom);
  const picture = svg("svg", { width, height: TALL, role: "group", "aria-label": title });
  const by = step(top);
  for (let n = 0; n * by <= top * 1.0001; n++) {
    const at = y(n * by);
    const rule = { x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at, stroke: colour("rule") };
    const place = { x: MARGIN.left - 6, y: at + 4, "text-anchor": "end" };
    const number = (n * by).toFixed(by < 1 ? 1 : 0);
    picture.append(svg("line", rule), svg("text", place, number));
  }
  const often = Math.ceil((count * 22) / width);
  for (const n of range(count).filter((n) => n % often === 0)) {
    picture.append(svg("text", { x: x(n), y: TALL - 18, "text-anchor": "middle" }, String(n)));
  }
  const below = { x: (width + MARGIN.left) / 2, y: TALL - 3, "text-anchor": "middle" };
  picture.append(svg("text", below, "layer"));
  return { x, y, picture };
}

function curve({ x, y, picture }, values, ink, dashes = "none") {
  const points = values.map((value, n) => `${x(n)},${y(value)}`).join(" ");
  const look = { fill: "none", stroke: colour(ink), "stroke-width": 2, "stroke-dasharray": dashes };
  picture.append(svg("polyline", { points, ...look }));
}

// As wide as one of two charts beside each other (see .charts), or as the page where that
// is narrow.
const chartWidth = ({ clientWidth }) => (clientWidth < 696 ? clientWidth : clientWidth / 2 - 8);
