"use strict";
/*
 * Patching between two prompts: copy the stream of one (layer, position) from another text into this one, and see how
 * far the answer moves. Where it does move, the stream holds what makes the difference. (Meng et al. 2022,
 * arXiv:2202.05262, and others before.)
 */

function patchingPanel(session) {
  const body = bodyOf("patching");
  const box = element("textarea", { "aria-label": "Another text, with as many tokens", spellcheck: "false", rows: 2 });
  const words = element("p", { "aria-live": "polite", id: "patched" });
  const grid = element("div");
  let running = 0; // the newest computation; older ones stop
  let suggested = ""; // the other text, until the reader writes one

  const compute = async () => {
    session.settle();
    const own = ++running;
    const problem = comparable(session, box.value);
    grid.replaceChildren();
    words.textContent = problem ?? "Computing ...";
    if (problem) return;
    const result = patched(session, session.encode(box.value));
    if (result.answers[0] === result.answers[1]) {
      words.textContent = "Both texts continue with the same token: change a word that matters for what follows.";
      return;
    }
    for (const _ of result.steps()) {
      words.textContent = `Computing: ${percent(result.done)}`;
      await pause();
      if (own !== running) return;
    }
    show(result);
  };
  const show = ({ first, effects, answers, from, strongest }) => {
    const [answer, other] = answers.map((token) => tokenOf(session, token));
    const tokens = session.read;
    const streams = effects.map((_, layer) => (layer ? `after layer ${layer}` : "embedding"));
    const rows = effects.map((row, layer) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, streams[layer]),
        ...row.map((effect, i) => {
          const name = `${percent(effect)} at ${session.label(tokens[first + i])}, ${streams[layer]}`;
          const cell = element("td", { class: "number", title: name }, `${Math.round(100 * effect)}`);
          cell.style.backgroundColor = shade(Math.max(0, Math.min(effect, 1)), "--heat-second");
          return cell;
        }),
      ),
    );
    const heads = tokens.slice(first).map((id, i) => {
      const replaced = session.label(from[first + i]);
      return `#${from[first + i] === id ? replaced : `${session.label(id)} ← ${replaced}`}`;
    });
    const caption = "How much of the way the answer moves, in per cent; before these positions both texts are the same.";
    grid.replaceChildren(table(caption, ["stream", ...heads], element("tbody", {}, ...rows)));
    const where = ([layer, position, effect]) => [
      ` Before the last token, the largest effect of a single vector is ${percent(effect)}: of `,
      ...[layer ? `the stream after layer ${layer} at ` : "the embedding at ", tokenOf(session, tokens[position])],
      ` (position ${position + 1}).`,
    ];
    const moved = strongest ? where(strongest) : [];
    words.replaceChildren("This text continues with ", answer, ", the other one with ", other, ".", ...moved);
  };
  const start = button("Patch", compute, { class: "main" });
  const waiting = () => {
    running++;
    grid.replaceChildren();
    words.textContent = comparable(session, box.value) ?? "Press Patch to compute.";
  };
  body.append(box, element("div", { class: "controls" }, start), words, grid);
  let before = "";
  session.onChange(
    whenVisible("patching", () => {
      if (session.state === before) return;
      before = session.state;
      const isOurs = !box.value || box.value === suggested;
      if (isOurs && document.activeElement !== box) box.value = suggested = suggestion(session);
      waiting();
    }),
  );
  box.addEventListener("input", waiting);
}

/** This text with one of its last tokens replaced by one like it, so that the model continues with another token. */
function suggestion(session) {
  const own = session.read;
  const kind = (token) => session.text([token]).replace(/\p{Ll}+/gu, "a").replace(/\p{Lu}/gu, "A").replace(/\p{N}+/gu, "0");
  for (let position = Math.max(1, own.length - 4); position > 0 && position > own.length - 10; position--) {
    for (const { token } of best(session.probabilities(position - 1), 10)) {
      if (kind(token) !== kind(own[position])) continue; // no line end in a word
      const text = session.text([...own.slice(0, position), token, ...own.slice(position + 1)]);
      if (comparable(session, text)) continue;
      const [answer, other] = patched(session, session.encode(text)).answers;
      if (answer !== other) return text;
    }
  }
  return session.text(own);
}

/** Why two texts cannot be compared, in a sentence; null if they can. */
function comparable(session, text) {
  const other = session.encode(text);
  const own = session.read;
  if (other.length !== own.length) {
    return `This text has ${counted(own.length, "token")} and the other one ${grouped(other.length)}: they need as many.`;
  }
  if (other.every((token, i) => token === own[i])) return "Both texts are the same: change a word of the other one.";
  const first = other.findIndex((token, i) => token !== own[i]);
  if (own.length - first > 40) return "They differ more than 40 tokens before the end: shorten both.";
  return null;
}

/**
 * The effect of every layer and position from the first difference on. The answer is measured by the difference of two
 * logits, of what the other text and of what this one continues with: 0 if nothing moves, 1 if it becomes the other's.
 */
function patched(session, from) {
  const model = session.model();
  const own = session.read;
  const first = from.findIndex((token, i) => token !== own[i]);
  /** What the model computes for these tokens after the first ones of this text, the first with a patch. */
  const readOn = (tokens, position, patch = null) => {
    const before = (list) => list.slice(0, position);
    const cache = session.cache.map(({ keys, values }) => ({ keys: before(keys), values: before(values) }));
    return tokens.map((token, i) => model.predict(token, cache, session.off, i ? null : patch));
  };
  const others = readOn(from.slice(first), first);
  const ends = [session.seen.at(-1), others.at(-1)];
  const answers = ends.map(({ logits }) => best(logits, 1)[0].token);
  const lean = ({ logits }) => logits[answers[1]] - logits[answers[0]];
  const [start, end] = ends.map(lean);
  const effects = Array.from({ length: session.data.config.n_layer }, () => []);
  const result = { first, from, answers, effects, done: 0, strongest: null };
  /** One position after the other, from the last to the first. */
  result.steps = function* () {
    for (let position = own.length - 1; position >= first; position--) {
      const rest = own.slice(position);
      effects.forEach((row, layer) => {
        const seen = readOn(rest, position, { layer, x: others[position - first].stream[layer] });
        const effect = (row[position - first] = (lean(seen.at(-1)) - start) / (end - start));
        const isBest = rest.length > 1 && effect > (result.strongest?.[2] ?? 0);
        if (isBest) result.strongest = [layer, position, effect];
      });
      result.done = (own.length - position) / (own.length - first);
      yield;
    }
  };
  return result;
}
