"use strict";
/* Drawings that the pages of all models share: maps of weights, heads to choose from, arcs over tokens, lengths. */

/**
 * A square for each weight: row t, column s; rows may differ in length. The stronger the colour, the more weight.
 * @param colour the property of the style sheet that has its red, green and blue
 */
function paintMap(canvas, rows, colour = "--heat") {
  [canvas.width, canvas.height] = [Math.max(...rows.map((row) => row.length)), rows.length];
  canvas.style.aspectRatio = `${canvas.width} / ${canvas.height}`;
  const [red, green, blue] = getComputedStyle(document.documentElement)
    .getPropertyValue(colour)
    .split(",")
    .map(Number);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  rows.forEach((row, t) =>
    row.forEach((weight, s) => {
      // The square root makes small weights visible.
      image.data.set([red, green, blue, 255 * Math.sqrt(weight)], 4 * (t * canvas.width + s));
    }),
  );
  context.putImageData(image, 0, 0);
}

/** A map with the names of tokens on its axes, which name(labels) writes: of many, only those that have room. */
function mapFrame(map) {
  const axes = ["columns", "rows"].map((axis) => element("ol", { class: axis, "aria-hidden": "true" }));
  const frame = element("div", { class: "map-frame" }, ...axes, map);
  const name = (labels) => {
    const every = Math.ceil(labels.length / 40);
    frame.style.setProperty("--tokens", labels.length);
    for (const axis of axes) axis.replaceChildren(...labels.map((label, t) => element("li", {}, t % every ? "" : label)));
  };
  return { frame, name };
}

function headName(layer, head) {
  return `layer ${layer + 1}, head ${head + 1}`;
}

/**
 * A button with a map for each of H heads in L layers, as a grid; pressing one calls choose(layer, head).
 * Returns the grid, its heads, each with its button (made) and map (canvas), and a function that marks the chosen one.
 */
function headGrid(L, H, choose) {
  const grid = element("div", { class: "heads", role: "group", "aria-label": "Heads; choose one" });
  grid.style.gridTemplateColumns = `repeat(${Math.min(H, 8)}, max-content)`;
  arrowKeys(grid, Math.min(H, 8));
  const heads = [];
  for (let layer = 0; layer < L; layer++) {
    for (let head = 0; head < H; head++) {
      const canvas = element("canvas");
      const name = headName(layer, head);
      const made = button("", () => choose(layer, head), { title: name, "aria-label": name });
      made.append(canvas, `${layer + 1}·${head + 1}`);
      grid.append(made);
      heads.push({ layer, head, made, canvas });
    }
  }
  const buttons = heads.map(({ made }) => made);
  return { grid, heads, mark: (layer, head) => press(buttons, layer * H + head) };
}

/**
 * What a reader has chosen of a recording: a position (null: the mean of all), a head, and of a search the hypothesis
 * (null: the one that is continued to the result). Panels redraw when it changes.
 */
const walk = { position: 0, node: null, head: [0, 0], listeners: [] };

function moveTo(position, node = null) {
  Object.assign(walk, { position, node });
  for (const listener of walk.listeners) listener();
}

function chooseHead(layer, head) {
  walk.head = [layer, head];
  moveTo(walk.position);
}

/** The recorded attention of one head as T rows, each with its weights over S positions (S = T without S). */
function recordedRows([, H, T, S = T]) {
  const weights = readHalves("recorded-attention");
  return (layer, head) =>
    Array.from({ length: T }, (_, t) => {
      const begin = ((layer * H + head) * T + t) * S;
      return weights.subarray(begin, begin + S);
    });
}

/** The width in pixels of a token in a line of tokens. */
function tokenWidth(label) {
  return 14 + 8.2 * Array.from(label).length;
}

/**
 * Tokens, given as labels and their buttons, in one line with room for arcs.
 * Returns its elements (parts), where a token's middle is (middle), and a function that draws the arcs of one token,
 * arcs(rows, position): to those that its row gives weight, and from those whose rows give weight to it.
 * @param twoSided a token can have arcs to and from the same other one, so those from others are drawn below
 */
function arcLine(labels, buttons, twoSided = false) {
  const height = 120;
  const widths = labels.map(tokenWidth);
  const starts = [0];
  for (const width of widths) starts.push(starts.at(-1) + width);
  const total = starts.at(-1);
  const middle = (t) => starts[t] + widths[t] / 2;
  const drawing = () =>
    svg("svg", { width: total, height, viewBox: `0 0 ${total} ${height}`, "aria-hidden": "true" });
  const above = drawing();
  const below = twoSided ? drawing() : above;
  if (twoSided) below.classList.add("below");
  buttons.forEach((made, t) => (made.style.width = `${widths[t]}px`));
  const arc = (from, to, weight, kind) => {
    const [a, b] = [middle(from), middle(to)];
    const top = Math.max(6, height - 8 - Math.abs(b - a) / 2);
    const path =
      from === to
        ? `M ${a - 4} ${height} C ${a - 12} ${height - 24}, ${a + 12} ${height - 24}, ${a + 4} ${height}`
        : `M ${a} ${height} C ${a} ${top - height / 4}, ${b} ${top - height / 4}, ${b} ${height}`;
    const look = { "stroke-width": 1 + 5 * weight, "stroke-opacity": 0.15 + 0.85 * weight };
    return svg("path", { d: path, class: `arc ${kind}`, ...look });
  };
  const arcs = (rows, position) => {
    const shown = (weight) => weight > 0.01;
    const others = Array.from(rows.keys()).filter((t) => t !== position && shown(rows[t][position]));
    above.replaceChildren();
    below.replaceChildren(...others.map((t) => arc(t, position, rows[t][position], "from")));
    rows[position].forEach((weight, s) => shown(weight) && above.append(arc(position, s, weight, "to")));
    buttons.forEach((made, s) => {
      const weight = rows[position][s] ?? 0;
      made.style.backgroundColor = shown(weight) ? shade(0.15 + 0.85 * weight) : "";
    });
  };
  const group = { class: "row", role: "group", "aria-label": "Tokens; focus one to see its arcs" };
  const line = element("div", group, ...buttons);
  return { parts: twoSided ? [above, line, below] : [above, line], middle, arcs };
}

/**
 * The lengths of the vectors at one position as bars, layer by layer: the stream, and what each part adds to it.
 * @param stream L + 1 lengths
 * @param added for each layer, those of attention and of the feed-forward part
 * @param said what to write below each line of the stream, as cells
 */
function lengthRows(stream, added, said = () => []) {
  const longest = Math.max(...stream, ...added.flat());
  const line = (name, length, kind, ...more) => {
    const share = element("span", { role: "cell" }, bar({ [kind]: length / longest }));
    const number = element("span", { role: "cell", class: "number" }, length.toFixed(2));
    return element("div", { role: "row" }, element("span", { role: "rowheader" }, name), share, number, ...more);
  };
  const parts = (lengths, layer) => [
    line("attention", lengths[0], "attention"),
    line("feed-forward", lengths[1], "mlp"),
    line(`after layer ${layer + 1}`, stream[layer + 1], "stream", ...said(layer + 1)),
  ];
  return [line("embedding", stream[0], "stream", ...said(0)), ...added.flatMap(parts)];
}
