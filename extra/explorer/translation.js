"use strict";
/*
 * A recorded translation: both sentences, the cross-attention between them, and the tree of the beam search.
 * Everything here was computed in Python; extra/explorer/translation.py says how.
 */

/** The step, and the hypothesis that was chosen in it: if none was, the one that is continued to the result. */
const walk = { step: 0, node: null, head: [0, 0], listeners: [] };

function moveTo(step, node = null) {
  walk.step = step;
  walk.node = node;
  for (const listener of walk.listeners) listener();
}

/** Both sentences, the second as far as it is written, and the slider for the steps. */
function sentencesPanel(data) {
  const target = element("div", { class: "tokens" });
  const steps = slider("Step", {
    min: 0,
    max: data.target.length - 1,
    step: 1,
    value: 0,
    words: (i) => `${i + 1} of ${data.target.length}`,
    change: moveTo,
  });
  steps.classList.add("wide");
  bodyOf("sentences").append(
    element("h3", {}, "Source"),
    element("div", { class: "tokens" }, ...data.source.map((text) => token(text))),
    element("h3", {}, "Translation"),
    target,
    steps,
    element("p", {}, "As text: ", element("b", { dir: "auto" }, data.translation)),
  );
  walk.listeners.push(() => {
    steps.set(walk.step);
    target.replaceChildren(
      ...data.target.map((text, t) => {
        const made = token(text, { "aria-current": t === walk.step ? "step" : undefined });
        made.classList.toggle("later", t > walk.step);
        return made;
      }),
    );
  });
}

/** The weights of every head as a map, and those of one head as lines between the sentences. */
function crossPanel(data) {
  const [L, H, T, S] = data.shape;
  const weights = readHalves("recorded-attention");
  const rows = (layer, head) =>
    Array.from({ length: T }, (_, t) => {
      const begin = ((layer * H + head) * T + t) * S;
      return weights.subarray(begin, begin + S);
    });
  walk.head = [L - 1, 0];
  const { grid, heads, mark } = headGrid(L, H, (layer, head) => {
    walk.head = [layer, head];
    moveTo(walk.step);
  });
  for (const { layer, head, canvas } of heads) paintMap(canvas, rows(layer, head));
  const strip = element("div", { class: "strip" });
  const words = element("p", { "aria-live": "polite", id: "looks" });
  bodyOf("cross").append(grid, strip, words);

  const sizes = (texts) => texts.map((text) => tokenWidth(visible(text)));
  const middles = (widths) => widths.map((width, i) => sumOf(widths.slice(0, i)) + width / 2);
  const [upper, lower] = [sizes(data.source), sizes(data.target)];
  const [above, below] = [middles(upper), middles(lower)];
  const [width, height] = [Math.max(sumOf(upper), sumOf(lower)), 130];
  const lines = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const named = (texts, weight) => {
    const most = texts.map((text, i) => [text, weight(i)]).sort((a, b) => b[1] - a[1]).slice(0, 3);
    return enumerated(most.map(([text, share]) => [token(text), ` ${percent(share)}`]));
  };

  /** Lines from one token of the translation (isTarget) or of the source to all of the other sentence. */
  function show(position, isTarget) {
    const now = rows(...walk.head);
    const others = isTarget ? data.source : data.target;
    const weight = (i) => (isTarget ? now[position][i] : now[i][position]);
    lines.replaceChildren(
      ...others.map((_, i) => {
        const [s, t] = isTarget ? [i, position] : [position, i];
        const look = { "stroke-width": 1 + 6 * weight(i), "stroke-opacity": weight(i) };
        const ends = { x1: above[s], y1: 0, x2: below[t], y2: height };
        return svg("line", { class: isTarget ? "arc" : "arc from", ...ends, ...look });
      }),
    );
    const written = ["To write ", token(data.target[position]), ", the head looks at "];
    const asked = isTarget ? written : [token(data.source[position]), " is most looked at to write "];
    words.replaceChildren(...asked, ...named(others, weight), ".");
  }

  const line = (texts, widths, isTarget) =>
    element(
      "div",
      { class: "row", role: "group", "aria-label": isTarget ? "Translation" : "Source" },
      ...texts.map((text, i) => {
        const made = button(visible(text), () => (isTarget ? moveTo(i) : show(i, false)), { class: "token" });
        made.style.width = `${widths[i]}px`;
        made.addEventListener("pointerenter", () => show(i, isTarget));
        made.addEventListener("focus", () => show(i, isTarget));
        return made;
      }),
    );
  const written = line(data.target, lower, true);
  const read = line(data.source, upper, false);
  Array.from(read.children).forEach((made, s) => (made.tabIndex = s ? -1 : 0));
  arrowKeys(read);
  arrowKeys(written);
  strip.append(read, lines, written);
  walk.listeners.push(() => {
    mark(...walk.head);
    Array.from(written.children).forEach((made, t) => {
      made.setAttribute("aria-pressed", String(t === walk.step));
      made.tabIndex = t === walk.step ? 0 : -1;
    });
    show(walk.step, true);
  });
}

function sumOf(numbers) {
  return numbers.reduce((a, b) => a + b, 0);
}

/** Every hypothesis as a button, a column for each step; lines lead to what it continues. */
function beamPanel(data) {
  const [width, height] = [118, 34];
  const columns = [];
  for (const node of data.nodes) {
    columns[node.step] = columns[node.step] ?? [];
    node.place = [10 + node.step * width, columns[node.step].length * height];
    columns[node.step].push(node);
  }
  const rows = Math.max(...columns.map((column) => column.length));
  const size = { width: columns.length * width + 20, height: rows * height + 10 };
  const lines = svg("svg", { ...size, "aria-hidden": "true" });
  const words = element("p", { "aria-live": "polite", id: "fate" });
  const tree = element("div", { class: "tree", role: "group", "aria-label": "Hypotheses, step by step" });
  [tree.style.width, tree.style.height] = [`${size.width}px`, `${size.height}px`];
  tree.append(lines);
  for (const node of data.nodes) {
    const [x, y] = node.place;
    const [px, py] = node.parent === null ? [10 - width + 100, y] : data.nodes[node.parent].place;
    if (node.parent !== null) {
      const curve = `M ${px + 100} ${py + 14} C ${px + 112} ${py + 14}, ${x - 12} ${y + 14}, ${x} ${y + 14}`;
      lines.append(svg("path", { d: curve, class: node.won ? "arc won" : "arc" }));
    }
    const made = button("", () => moveTo(Math.min(node.step, data.target.length - 1), node), {
      class: `node ${node.fate.replace(" ", "-")}${node.won ? " won" : ""}`,
      "aria-label": `step ${node.step + 1}: ${visible(node.text)}, ${node.why}`,
    });
    made.append(element("span", {}, visible(node.token)), element("small", {}, node.total.toFixed(2)));
    [made.style.left, made.style.top] = [`${x}px`, `${y}px`];
    const numbers = ` log p = ${node.total.toFixed(4)}, of which the last token has ${node.log_prob.toFixed(4)}. `;
    const why = `${node.why[0].toUpperCase()}${node.why.slice(1)}.`;
    node.tell = () => words.replaceChildren(token(node.text), numbers, why);
    made.addEventListener("pointerenter", node.tell);
    made.addEventListener("focus", node.tell);
    node.made = made;
    tree.append(made);
  }
  arrowKeys(tree);
  const scroll = element("div", { class: "scroll" }, tree);
  bodyOf("beam").append(words, scroll);
  walk.listeners.push(() => {
    const best = data.nodes.find((node) => node.step === walk.step && node.won) ?? data.nodes[0];
    const chosen = walk.node ?? best;
    for (const node of data.nodes) {
      node.made.classList.toggle("now", node.step === walk.step);
      node.made.setAttribute("aria-pressed", String(node === walk.node));
      node.made.tabIndex = node === chosen ? 0 : -1;
    }
    const x = 10 + walk.step * width;
    if (!walk.node && (x < scroll.scrollLeft || x + width > scroll.scrollLeft + scroll.clientWidth)) {
      scroll.scrollLeft = x - width; // a hypothesis that was chosen is in sight
    }
    chosen.tell();
  });
}

startAfterPaint((data) => {
  sentencesPanel(data);
  crossPanel(data);
  beamPanel(data);
  moveTo(0);
  if (ONLY && !isStill()) walkAlone(data.target.length);
});

/** In a frame it walks by itself, from step to step, until the reader touches it. */
function walkAlone(steps) {
  const timer = setInterval(() => moveTo((walk.step + 1) % steps), 1100);
  for (const kind of ["pointerover", "pointerdown", "focusin"]) {
    window.addEventListener(kind, () => clearInterval(timer), { once: true });
  }
}
