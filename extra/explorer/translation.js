"use strict";
/*
 * A translation: both sentences, the cross-attention between them, and the tree of the beam search. The first one was
 * recorded in Python, as extra/explorer/translation.py says; the page translates what the reader types, greedily, unless
 * it lacks the model.
 */

/** A box for a sentence of the reader's own; show(translation) gets what the model in this page makes of it. */
function ownSentence(data, show) {
  const tokenizer = makeTokenizer(data.tokenizer);
  const model = new Translator(data.config, readWeights("weights-0", data.tensors));
  const { n_layer: L, n_head: H } = data.config;
  const labels = (ids) => ids.map((id) => labelOf(tokenizer.pieces, data.tokenizer.specials, id));
  const note = element("p", { class: "note", "aria-live": "polite" });
  let [read, took] = [data.sentence, 0];
  const typed = ({ type }) => {
    const text = normalise(input.value).split(/\s+/).join(" ").trim();
    if (text === read || (type === "input" && took > 100)) return; // where it takes long, Enter says when
    read = text;
    const begin = performance.now();
    const source = tokenizer.encode(text).slice(0, data.context);
    const unknown = Array.from(tokenizer.unknown(text), visible).join(" ");
    note.textContent = unknown && `The model never saw ${unknown}, and reads <unk> there.`;
    if (!source.length) return show(data);
    const most = Math.min(16 + 12 * Math.ceil(source.length / 8), data.context - 1); // as in seq2seq/translate.py
    const { tokens, attention } = model.translate(source, data, most);
    took = performance.now() - begin;
    const translation = decode(tokenizer.pieces, tokens).trim();
    const rows = (layer, head) => attention.map((step) => step[layer][head]);
    const shape = [L, H, tokens.length, source.length];
    show({ source: labels(source), target: labels(tokens), translation, rows, shape });
  };
  const events = { oninput: typed, onchange: typed, dir: "auto", autocomplete: "off", spellcheck: "false" };
  const input = element("input", { type: "text", class: "own", value: data.sentence, ...events });
  bodyOf("sentences").before(element("label", {}, "Your own: ", input), note);
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
    steps.set(walk.position);
    target.replaceChildren(
      ...data.target.map((text, t) => {
        const made = token(text, { "aria-current": t === walk.position ? "step" : undefined });
        made.classList.toggle("later", t > walk.position);
        return made;
      }),
    );
  });
}

/** The weights of every head as a map, and those of one head as lines between the sentences. */
function crossPanel(data) {
  const { rows, shape: [L, H] } = data;
  const { grid, heads, mark } = headGrid(L, H, chooseHead);
  for (const { layer, head, canvas } of heads) paintMap(canvas, rows(layer, head));
  const strip = element("div", { class: "strip" });
  const words = element("p", { "aria-live": "polite", id: "looks" });
  bodyOf("cross").append(grid, strip, words);

  const sizes = (texts) => texts.map((text) => tokenWidth(visible(text)));
  const middles = (widths) => widths.map((width, i) => sum(widths.slice(0, i)) + width / 2);
  const [upper, lower] = [sizes(data.source), sizes(data.target)];
  const [above, below] = [middles(upper), middles(lower)];
  const [width, height] = [Math.max(sum(upper), sum(lower)), 130];
  const lines = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const named = (texts, weight) => {
    const name = ({ token: i, p }) => [token(texts[i]), ` ${percent(p)}`];
    return enumerated(best(texts.map((_, i) => weight(i)), 3).map(name));
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

  const line = (texts, widths, isTarget) => {
    const made = texts.map((text, i) =>
      button(visible(text), () => (isTarget ? moveTo(i) : show(i, false)), { class: "token" }),
    );
    made.forEach((one, i) => (one.style.width = `${widths[i]}px`));
    onPoint(made, (i) => show(i, isTarget));
    return element("div", { class: "row", role: "group", "aria-label": isTarget ? "Translation" : "Source" }, ...made);
  };
  const written = line(data.target, lower, true);
  const read = line(data.source, upper, false);
  Array.from(read.children).forEach((made, s) => (made.tabIndex = s ? -1 : 0));
  arrowKeys(read);
  arrowKeys(written);
  strip.append(read, lines, written);
  walk.listeners.push(() => {
    mark(...walk.head);
    press(Array.from(written.children), walk.position);
    show(walk.position, true);
  });
}

/** Every hypothesis as a button, a column for each step; lines lead to what it continues. */
function beamPanel(data, recorded) {
  if (!data.nodes) {
    const words = "Your sentence is translated greedily. The search that was recorded is that of ";
    return bodyOf("beam").append(element("p", {}, words, token(recorded.sentence), "."));
  }
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
    const best = data.nodes.find((node) => node.step === walk.position && node.won) ?? data.nodes[0];
    const chosen = walk.node ?? best;
    for (const node of data.nodes) {
      node.made.classList.toggle("now", node.step === walk.position);
      node.made.setAttribute("aria-pressed", String(node === walk.node));
      node.made.tabIndex = node === chosen ? 0 : -1;
    }
    const x = 10 + walk.position * width;
    if (!walk.node && (x < scroll.scrollLeft || x + width > scroll.scrollLeft + scroll.clientWidth)) {
      scroll.scrollLeft = x - width; // a hypothesis that was chosen is in sight
    }
    chosen.tell();
  });
}

startAfterPaint((recorded) => {
  walk.head = [recorded.shape[0] - 1, 0];
  recorded.rows = recordedRows(recorded.shape);
  const show = (data, step = data.target.length - 1) => {
    Object.assign(walk, { listeners: [], data }); // walk.data.rows(0, 0) are the weights of the first head
    for (const [name, panel] of Object.entries({ sentences: sentencesPanel, cross: crossPanel, beam: beamPanel })) {
      bodyOf(name).replaceChildren();
      panel(data, recorded);
    }
    moveTo(step);
  };
  if (recorded.tensors) ownSentence(recorded, show);
  show(recorded, 0);
  walkAlone(() => moveTo((walk.position + 1) % recorded.target.length), ONLY ? Infinity : recorded.target.length - 1);
});
