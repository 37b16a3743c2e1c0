"use strict";
/*
 * One cell of an attention map, opened: how the weight that token t gives token s comes about, and what it fetches.
 *
 *   score = scale * (q_1 k_1 + ... + q_D k_D)     weight = e^score / sum of e^score over the positions up to t
 */

/**
 * The map of one head, with the tokens on its axes. Its cells are one stop for the Tab key: the arrow keys move, and
 * pointing or moving calls point(t, s); a click or the Enter key calls open(t, s).
 */
function largeMap(session, point, open) {
  const canvas = element("canvas");
  const box = element("button", { type: "button", class: "map", "aria-label": "Map" }, canvas);
  const value = element("p", { class: "soft", "aria-live": "polite" });
  const { frame: made, name } = mapFrame(box);
  let [map, at, drawn] = [[], [0, 0], ""];
  const mark = (t, s) => {
    [t, s] = at = [t, s].map((position) => Math.max(0, Math.min(position, map.length - 1)));
    const [from, to] = at.map((position) => `${session.label(session.read[position])} (position ${position + 1})`);
    value.textContent =
      s > t ? `${from} cannot look at ${to}, which comes later.` : `${from} gives ${percent(map[t][s])} to ${to}.`;
    box.setAttribute("aria-label", `Map: ${value.textContent} Arrow keys move, Enter opens the cell.`);
    made.style.setProperty("--row", t);
    made.style.setProperty("--column", s);
  };
  const show = (t, s) => {
    mark(t, s);
    point(at[0]);
  };
  const cellAt = (event) =>
    [event.offsetY / box.clientHeight, event.offsetX / box.clientWidth].map((share) => Math.floor(share * map.length));
  box.addEventListener("pointermove", (event) => show(...cellAt(event)));
  box.addEventListener("click", (event) => {
    if (event.detail) show(...cellAt(event)); // not by the keyboard
    if (at[1] <= at[0]) open(...at);
  });
  box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    show(at[0] + step[0], at[1] + step[1]);
  });
  /** Draw the map of this head, its strongest cell chosen. */
  const draw = (weights, head) => {
    map = weights;
    paintMap(canvas, map);
    name(session.read.map((id) => session.label(id)));
    const state = `${head} ${session.read.join()}`;
    if (drawn !== state) at = strongestCell(map);
    drawn = state;
    mark(...at);
  };
  return { parts: [made, value], draw };
}

/** The position of the largest weight, [t, s], of a row t with something to choose from. */
function strongestCell(map) {
  const strongest = map.map((row) => best(row, 1)[0]);
  const [{ token: t }] = best(strongest.map(({ p }, row) => (row ? p : 0)), 1);
  return [t, strongest[t].token];
}

/** The numbers of a vector as bars above and below a line; `highest` is the size of a full bar. */
function vectorBars(name, x, highest, kind = "") {
  const [width, height] = [Math.max(4, Math.min(14, 420 / x.length)), 46];
  const size = (number) => (Math.min(Math.abs(number) / highest, 1) * height) / 2;
  const bars = Array.from(x, (number, i) =>
    svg("rect", {
      ...{ x: i * width, width: width - 1, height: Math.max(size(number), 0.5) },
      y: height / 2 - (number > 0 ? size(number) : 0),
    }, svg("title", {}, `${name}, number ${i + 1}: ${number.toFixed(3)}`)),
  );
  const total = width * x.length;
  const line = svg("line", { class: "axis", x1: 0, x2: total, y1: height / 2, y2: height / 2 });
  const drawing = { class: `vector ${kind}`, width: total, height, viewBox: `0 0 ${total} ${height}`, role: "img" };
  drawing["aria-label"] = `${name}: ${x.length} numbers, the largest ${Math.max(...Array.from(x, Math.abs)).toFixed(2)}`;
  return element("div", { class: "vector-row" }, element("span", {}, name), svg("svg", drawing, line, ...bars));
}

/** The steps from a query and a key to the weight, and the value that is fetched. */
function openedCell(session, layer, head, t, s) {
  const { query, key, value, scale, weights } = session.cell(layer, head, t, s);
  const products = Array.from(query, (number, i) => number * key[i]);
  const largest = (...vectors) => Math.max(...vectors.flatMap((x) => Array.from(x, Math.abs))) || 1;
  const [product, weight] = [sum(products), weights[s]];
  const total = sum(Array.from(weights, (_, other) => Math.exp(session.cell(layer, head, t, other).score)));
  const [from, to] = [t, s].map((position) => tokenOf(session, session.read[position]));
  const line = (...words) => element("p", {}, ...words);
  const rows = best(weights, 8);
  return [
    element("h3", {}, `Layer ${layer + 1}, head ${head + 1}: `, from, " looks at ", to),
    vectorBars("query q", query, largest(query, key)),
    vectorBars("key k", key, largest(query, key)),
    vectorBars("products q k", products, largest(products), "other"),
    line(`The products sum to ${product.toFixed(3)}; times the scale ${scale.toFixed(4)} gives the score `,
      element("b", {}, (product * scale).toFixed(3)), ". The mask lets ", from.cloneNode(true),
      ` look at the ${counted(t + 1, "position")} up to its own. Softmax: e^score is ` +
      `${Math.exp(product * scale).toPrecision(3)}, and over all these positions they sum to ${total.toPrecision(3)}; ` +
      "their ratio is the weight, ", element("b", {}, percent(weight)), "."),
    table(`The largest weights of this row, of ${weights.length}`, ["token", "share", "#weight"],
      element("tbody", {}, ...rows.map(({ token: position, p }) =>
        element("tr", { class: position === s ? "chosen" : "" },
          element("td", {}, tokenOf(session, session.read[position]), ` at ${position + 1}`),
          element("td", { class: "wide" }, bar({ kept: p })),
          element("td", { class: "number" }, percent(p)))))),
    line("What it fetches: the value v of this token, which enters the head's result multiplied by the weight."),
    vectorBars("value v", value, largest(value)),
    vectorBars("weight · v", value.map((number) => number * weight), largest(value), "other"),
  ];
}
