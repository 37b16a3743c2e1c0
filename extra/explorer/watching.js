"use strict";
/* What a model that learns can be seen doing: writing, attending, placing its characters. */

/** How it writes, and earlier samples: a next one is kept when 1.6 times as many steps are done. */
function samplePanel(learning) {
  const note = element("p", { class: "note", "aria-live": "polite" });
  const rows = element("tbody");
  const { settings } = learning;
  const plain = { spellcheck: "false", autocomplete: "off" };
  const prompt = element("input", { type: "text", value: settings.prompt, maxlength: 60, ...plain });
  prompt.addEventListener("input", () => {
    const unknown = Array.from(new Set(prompt.value)).filter((one) => !learning.characters.includes(one));
    const words = `Not in the text: ${unknown.map(visible).join(" ")}. The model reads its unknown character there.`;
    note.textContent = unknown.length ? words : "";
    learning.set({ prompt: prompt.value });
  });
  const temperature = slider("temperature", {
    ...{ min: 0, max: 2, step: 0.05, value: settings.temperature, hint: "below 1 sharpens, above 1 flattens" },
    words: (value) => (value ? value.toFixed(2) : "0: best"),
    change: (value) => learning.set({ temperature: value }),
  });
  const begin = element("label", { class: "slider wide" }, element("span", {}, "begin with"), prompt);
  bodyOf("writes").append(
    element("div", { class: "sliders" }, temperature, begin),
    element("div", { class: "controls" }, button("Write another", () => learning.set({ prompt: prompt.value }))),
    note,
    table("Earlier samples: their beginnings.", ["#step", "#loss", "written"], rows),
  );

  let [run, kept] = [0, 0];
  learning.onReport((report) => {
    if (report.run !== run) [run, kept] = [report.run, 0];
    if (!kept) rows.replaceChildren();
    const { text, from, isWhole } = report.sample;
    if (!isWhole || from < 1.6 * kept) return;
    kept = Math.max(from, 1);
    const cells = [grouped(from), learning.curve.losses[from - 1]?.toFixed(2) ?? "–"];
    const numbers = cells.map((cell) => element("td", { class: "number" }, cell));
    const beginning = element("code", {}, visible(Array.from(text).slice(0, 60).join("")));
    rows.append(element("tr", {}, ...numbers, element("td", {}, beginning)));
  });
}

/** The maps of all heads on the first line of the text, and the arcs of one head and character. */
function attentionPanel(learning) {
  const body = bodyOf("attends");
  const chosen = { layer: 0, head: 0, position: 0, shape: null, line: null };
  const place = element("div", { class: "room" });
  const said = element("p", { id: "attends-said" });
  body.append(place, said);
  let parts = null;

  const rowsOf = (layer, head) => {
    const T = Array.from(learning.settings.line).length;
    const p = learning.look.attention[layer];
    return Array.from({ length: T }, (_, t) => p.subarray((head * T + t) * T, (head * T + t + 1) * T));
  };
  const build = () => {
    const { shape, line } = learning.settings;
    const labels = Array.from(line, visible);
    Object.assign(chosen, { shape, line, layer: shape.n_layer - 1, head: 0 });
    chosen.position = Math.min(Math.max(chosen.position, 6), labels.length - 1);
    const { grid, heads, mark } = headGrid(shape.n_layer, shape.n_head, (layer, head) => {
      Object.assign(chosen, { layer, head });
      draw();
    });
    const buttons = labels.map((label, t) => button(label, () => point(t), { class: "token", tabindex: t ? -1 : 0 }));
    buttons.forEach((made, t) => made.addEventListener("focus", () => point(t)));
    const strip = element("div", { class: "strip" });
    const { parts: drawn, arcs } = arcLine(labels, buttons);
    strip.append(...drawn);
    arrowKeys(strip);
    place.replaceChildren(grid, strip);
    parts = { heads, mark, arcs, labels };
  };
  const point = (position) => {
    chosen.position = position;
    draw();
  };
  const draw = () => {
    const { settings, look } = learning;
    if (!look) return; // a new model has not reported yet
    if (chosen.shape !== settings.shape || chosen.line !== settings.line) build();
    const { heads, mark, arcs, labels } = parts;
    for (const { layer, head, canvas } of heads) paintMap(canvas, rowsOf(layer, head));
    mark(chosen.layer, chosen.head);
    const t = chosen.position;
    const rows = rowsOf(chosen.layer, chosen.head);
    arcs(rows, t);
    const named = ({ token: s, p }) => [element("code", {}, labels[s]), ` (${s + 1}) ${percent(p)}`];
    said.replaceChildren(
      `Layer ${chosen.layer + 1}, head ${chosen.head + 1}: from `,
      element("code", {}, labels[t]),
      ` (character ${t + 1}) most weight goes to `,
      ...enumerated(best(rows[t], 3).map(named)),
      ".",
    );
  };
  const update = whenVisible("attends", draw);
  learning.onReport(({ look }) => look && update());
}

/** The characters of the text, each where its vector lies along the two widest directions of the table. */
function charactersPanel(learning) {
  const [width, height] = [640, 400];
  const note = element("p", { class: "note" });
  const plot = element("div", { class: "room" });
  const kinds = { first: /[aeiouyäöü]/i, letter: /\p{L}/u, second: /./su };
  const words = { first: "vowels", letter: "other letters", second: "all others" };
  bodyOf("characters").append(plot, legend(words), note);
  let [run, before] = [0, []];
  const update = whenVisible("characters", () => {
    if (!learning.look) return;
    const { characters, settings, look } = learning;
    if (run !== settings.run) [run, before] = [settings.run, []];
    const { points, directions, shares } = widest(look.weights, characters.length, settings.shape.n_embd, before);
    before = directions;
    const scale = 0.9 / Math.max(...points.flat().map(Math.abs), 1e-9);
    const marks = points.map(([x, y], i) => {
      const kind = Object.keys(kinds).find((name) => kinds[name].test(characters[i]));
      const place = { x: (width / 2) * (1 + scale * x), y: (height / 2) * (1 - scale * y) + 5 };
      return svg("text", { ...place, class: `mark ${kind}`, "text-anchor": "middle" }, visible(characters[i]));
    });
    const spoken = "The characters of the text along the two widest directions of their table";
    const shape = { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spoken };
    plot.replaceChildren(svg("svg", shape, ...marks));
    note.textContent =
      `Across and up: the two directions of the ${settings.shape.n_embd} in which the characters differ most, ` +
      `${percent(shares[0])} and ${percent(shares[1])} of their variance. The largest distance fills the picture.`;
  });
  learning.onReport(({ look }) => look && update());
}

/**
 * The first two principal components of n rows of C numbers, by power iteration: w <- X^T X w / |X^T X w|, where X are
 * the rows minus their mean. It begins with the directions `before`, so that a picture continues from the last one.
 */
function widest(table, n, C, before) {
  const rows = Array.from({ length: n }, (_, i) => Float64Array.from(table.subarray(i * C, (i + 1) * C)));
  const along = (x, w) => x.reduce((sum, value, c) => sum + value * w[c], 0);
  for (let c = 0; c < C; c++) {
    const mean = rows.reduce((sum, row) => sum + row[c], 0) / n;
    for (const row of rows) row[c] -= mean;
  }
  const directions = [0, 1].map((k) => before[k] ?? Float64Array.from({ length: C }, (_, c) => Math.cos(c * (k + 1))));
  for (let i = 0; i < 30; i++) {
    directions.forEach((w, k) => {
      const next = new Float64Array(C);
      for (const row of rows) {
        const share = along(row, w);
        for (let c = 0; c < C; c++) next[c] += share * row[c];
      }
      if (k) {
        const shared = along(next, directions[0]); // the second direction is at a right angle to the first
        for (let c = 0; c < C; c++) next[c] -= shared * directions[0][c];
      }
      const length = Math.sqrt(along(next, next)) || 1;
      directions[k] = next.map((value) => value / length);
    });
  }
  const points = rows.map((row) => directions.map((w) => along(row, w)));
  const variance = rows.reduce((sum, row) => sum + along(row, row), 0) || 1;
  const shares = [0, 1].map((k) => points.reduce((sum, point) => sum + point[k] ** 2, 0) / variance);
  return { points, directions, shares };
}
