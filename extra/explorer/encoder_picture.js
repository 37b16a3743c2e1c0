"use strict";
/* The panels of a picture: its patches, attention and rollout over them. */

/** The positions of a picture: patches, after the class token if there is one. */
function positionsOf(data) {
  const first = data.start === 0 ? 1 : 0;
  return {
    first,
    /** The row of weights over all positions, of one position, or (null) the mean of all. */
    rowOf: (rows) =>
      walk.position === null
        ? Array.from(rows[0], (_, s) => rows.reduce((all, row) => all + row[s] / rows.length, 0))
        : Array.from(rows[walk.position]),
    patchName: (s) => {
      const patch = s - first;
      if (patch < 0) return "the class token";
      return `row ${Math.floor(patch / data.rows) + 1}, column ${(patch % data.rows) + 1}`;
    },
    chosenName() {
      if (walk.position === null) return "The mean of all patches";
      return walk.position < first ? "The class token" : `The patch in ${this.patchName(walk.position)}`;
    },
  };
}

/** A row of weights over the patches as a map whose strongest square is 1; squared, as `paintMap` takes the root. */
function patchMap(weights, rows) {
  const most = Math.max(...weights) || 1;
  return Array.from({ length: rows }, (_, r) =>
    Array.from(weights.slice(r * rows, (r + 1) * rows), (weight) => (weight / most) ** 2),
  );
}

/**
 * The picture, a button over each of its patches, and room for a map over it.
 * Returns its element (made) and show(weights), which lays a map over the patches.
 */
function pictureOf(data, label) {
  const { first, patchName } = positionsOf(data);
  const canvas = element("canvas", { role: "img", "aria-label": "the picture" });
  [canvas.width, canvas.height] = [data.size, data.size];
  const context = canvas.getContext("2d");
  const image = context.createImageData(data.size, data.size);
  readBytes("recorded-picture").forEach((grey, i) => image.data.set([grey, grey, grey, 255], 4 * i));
  context.putImageData(image, 0, 0);
  const map = element("canvas", { "aria-hidden": "true" });
  const patches = Array.from({ length: data.rows ** 2 }, (_, patch) =>
    button("", () => moveTo(patch + first), { "aria-label": `patch in ${patchName(patch + first)}` }),
  );
  patches.forEach((made, patch) => made.addEventListener("focus", () => moveTo(patch + first)));
  const grid = element("div", { role: "group", "aria-label": label }, ...patches);
  [grid.style.gridTemplateColumns, grid.style.gridTemplateRows] = Array(2).fill(`repeat(${data.rows}, 1fr)`);
  arrowKeys(grid, data.rows);
  walk.listeners.push(() => {
    press(patches, walk.position === null ? -1 : walk.position - first);
    if (walk.position === null || walk.position < first) patches[0].tabIndex = 0;
  });
  return {
    made: element("div", { class: "patches" }, canvas, map, grid),
    show: (weights) => paintMap(map, patchMap(weights, data.rows), "--glow"),
  };
}

/** The button that leaves the patches, for the position from which the class is read. */
function wholeButton(data) {
  const made = button(data.start === null ? "The mean of all patches" : "The class token", () => moveTo(data.start));
  walk.listeners.push(() => made.setAttribute("aria-pressed", String(walk.position === data.start)));
  return element("div", { class: "controls" }, made);
}

function picturePanel(data) {
  const { made } = pictureOf(data, "Patches; choose one to inspect it");
  const positions = positionsOf(data);
  const words = element("p", { class: "soft" });
  const classes = chances(data.about, "class", data.classes, visible, data.right);
  const patches = element("div", {}, made, wholeButton(data), words);
  bodyOf("picture").append(element("div", { class: "beside" }, patches, classes));
  walk.listeners.push(() => {
    words.textContent = `${positions.chosenName()} is chosen; there are ${data.rows} × ${data.rows} patches.`;
  });
}

/** The largest weights over some patches, in words. */
function strongest(weights, positions) {
  const named = best(weights, 3)
    .map(({ token: patch, p }) => `${positions.patchName(patch + positions.first)} (${percent(p)})`)
    .join("; ");
  return `${named}. If all were equal, each would have ${percent(1 / (weights.length + positions.first))}.`;
}

/** The attention of every head from the chosen position, as maps over the patches. */
function looksPanel(data) {
  const [L, H] = data.shape;
  const rows = recordedRows(data.shape);
  const positions = positionsOf(data);
  walk.head = [L - 1, 0];
  const { grid, heads, mark } = headGrid(L, H, chooseHead);
  const { made, show } = pictureOf(data, "Patches under the attention of the chosen head");
  const title = element("h3");
  const words = element("p", { "aria-live": "polite", id: "attends" });
  bodyOf("looks").append(
    grid,
    title,
    element("div", { class: "beside" }, element("div", {}, made, wholeButton(data)), words),
  );
  walk.listeners.push(() => {
    const weights = (layer, head) => positions.rowOf(rows(layer, head));
    for (const { layer, head, canvas } of heads) {
      paintMap(canvas, patchMap(weights(layer, head).slice(positions.first), data.rows));
    }
    mark(...walk.head);
    title.textContent = `Layer ${walk.head[0] + 1}, head ${walk.head[1] + 1}`;
    const now = weights(...walk.head);
    show(now.slice(positions.first));
    const rest = positions.first ? ` The class token gets ${percent(now[0])}.` : "";
    words.textContent =
      `${positions.chosenName()} gives most weight to the patches in ` +
      `${strongest(now.slice(positions.first), positions)}${rest}`;
  });
}

function rolloutPanel(data) {
  const T = data.shape[2];
  const whole = readHalves("recorded-rollout");
  const rows = Array.from({ length: T }, (_, t) => whole.subarray(t * T, (t + 1) * T));
  const positions = positionsOf(data);
  const { made, show } = pictureOf(data, "Patches under the rollout");
  const words = element("p", { "aria-live": "polite", id: "rolled" });
  bodyOf("rollout").append(element("div", { class: "beside" }, element("div", {}, made, wholeButton(data)), words));
  walk.listeners.push(() => {
    const now = positions.rowOf(rows).slice(positions.first);
    show(now);
    words.textContent =
      `${positions.chosenName()}, at the end, has most from the patches in ${strongest(now, positions)}`;
  });
}
