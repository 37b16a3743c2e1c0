"use strict";
/* The whole model in one picture, drawn from its settings, with the numbers of the selected token in it; and a tour. */

const TERMS = {
  token: "a piece of text with a number: a character, a syllable, a word",
  stream: "the vector of numbers that stands for a token, and runs through all layers, which add to it",
  layer: "attention, which brings in other tokens, and a feed-forward part, which works on each token alone",
  head: "one of several attentions side by side in a layer, each with weights of its own",
  logit: "the score of a token as the next one, before softmax: any number",
  softmax: "turns scores into probabilities: e^score, divided by the sum of all e^score",
  bit: "the unit of surprise, -log2 p: 0 if something was certain, 1 if it had one half",
};

function wholePanel(session) {
  const { n_layer: L, n_head: H, n_embd: C, vocab_size: V } = session.data.config;
  const link = (panel, name, onclick = () => {}) => {
    const number = element("output");
    return { number, made: element("a", { href: `#${panel}`, onclick }, element("b", {}, name), number) };
  };
  const box = (heading, ...links) =>
    element("li", {}, element("span", {}, heading), ...links.map((one) => one.made));
  const tokens = link("text", "tokens");
  const embedding = link("stream", "embedding");
  const open = (layer) => () => session.chooseHead(layer, session.head[1]);
  const layers = Array.from({ length: L }, (_, layer) =>
    [link("attention", "attention", open(layer)), link("stream", "feed-forward")]);
  const logits = link(session.live ? "wanted" : "next", "logits");
  const chances = link("next", "softmax");
  const names = ["what is read", `${C} numbers each`, `scores of all ${grouped(V)} tokens`, "probabilities"];
  const diagram = element(
    "ol",
    { class: "diagram" },
    box(names[0], tokens),
    box(names[1], embedding),
    ...layers.map((parts, i) => box(`layer ${i + 1}, ${counted(H, "head")}`, ...parts)),
    box(names[2], logits),
    box(names[3], chances),
  );
  const terms = Object.entries(TERMS).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]);
  bodyOf("whole").append(diagram, element("dl", { class: "terms" }, ...terms));
  addTour(session, bodyOf("whole"));

  session.onChange(
    whenVisible("whole", () => {
      const position = session.selected;
      const { stream, added } = session.norms(position);
      tokens.number.textContent = `${session.label(session.read[position])} at ${position + 1}`;
      embedding.number.textContent = `length ${stream[0].toFixed(1)}`;
      layers.forEach((parts, i) =>
        parts.forEach(({ number }, part) => (number.textContent = `adds ${added[i][part].toFixed(1)}`)),
      );
      const scores = session.logits(position);
      const [first] = best(scores, 1);
      logits.number.textContent = `highest ${first.p.toFixed(1)}`;
      chances.number.textContent = `${session.label(first.token)} ${percent(session.probabilities(position)[first.token])}`;
    }),
  );
}

/** What the tour asks, under which panel's heading, and what the model of this page answers. */
const TOUR = [
  ["text", "In how many tokens does the model read this text?", describeTokens],
  [
    "next",
    "Which token is the most probable after the last one? How probable, about?",
    (session) =>
      best(session.probabilities(session.read.length - 1), 3)
        .map(({ token, p }) => `${session.label(token)} with ${percent(p)}`).join(", "),
  ],
  [
    "attention",
    "At which token does the last one look most, in the first head of the last layer?",
    (session) => lookText(session, session.data.config.n_layer - 1, 0),
  ],
  [
    "attention",
    "And in the first layer? Do early heads look nearer, or farther?",
    (session) => lookText(session, 0, 0),
  ],
  [
    "stream",
    "If the remaining layers did nothing: after which layer is the final answer the best for the first time?",
    (session) => {
      const last = session.read.length - 1;
      const early = Array.from({ length: session.data.config.n_layer + 1 }, (_, l) => session.early(l, last)[0].token);
      const layer = early.indexOf(early.at(-1));
      return layer ? `After layer ${layer} of ${early.length - 1}.` : "At once: the embedding alone says so.";
    },
  ],
  [
    "wanted",
    "Who speaks loudest for this answer, a head or a feed-forward part?",
    (session) => {
      const last = session.read.length - 1;
      const [answer] = best(session.probabilities(last), 1);
      const parts = partsOf(session.model(), session.seen[last], answer.token);
      if (!parts) return "In this model it cannot be said: the panel tells why.";
      const [{ name, value }] = parts.sort((a, b) => b.value - a.value);
      return `The ${name}: it adds ${value.toFixed(2)} to the logit of ${session.label(answer.token)}.`;
    },
  ],
  [
    "surprise",
    "Which character was the hardest to foresee?",
    (session) => {
      const { characters, bits } = characterBits(session);
      const highest = Math.max(...bits);
      if (!(highest > 0)) return "There is only one token, which nothing predicts: type more.";
      return `${visible(characters[bits.indexOf(highest)])}, with ${highest.toFixed(1)} bits.`;
    },
  ],
];

function lookText(session, layer, head) {
  const [{ token: at, p }] = best(session.attention(layer, head).at(-1), 1);
  return `${session.label(session.read[at])} at position ${at + 1}, with ${percent(p)} of its weight.`;
}

/** A card that asks one question after the other; what shows the answers is out of sight until the reader asks. */
function addTour(session, place) {
  const stops = TOUR.filter(([panel]) => session.data.panels.includes(panel));
  const words = element("p", { "aria-live": "polite" });
  const card = element("div", { class: "tour", role: "group", "aria-label": "Tour" });
  let stop = -1;
  const answer = button("Show the answer", () => {
    words.append(element("b", {}, ` ${stops[stop][2](session)}`));
    card.classList.remove("asks");
    answer.disabled = true;
    further.focus();
  });
  const go = (step) => {
    stop = step;
    if (stop >= stops.length) {
      card.remove();
      start.focus();
      return;
    }
    const [panel, question] = stops[stop];
    words.textContent = `${stop + 1} of ${stops.length}. Predict: ${question}`;
    card.classList.add("asks");
    answer.disabled = false;
    further.textContent = stop + 1 < stops.length ? "Next question" : "End the tour";
    document.querySelector(`#${panel} .body`).before(card);
    card.scrollIntoView({ block: "center" });
    answer.focus({ preventScroll: true });
  };
  const further = button("Next question", () => go(stop + 1));
  const start = button(`Take the tour: ${stops.length} questions`, () => go(0), { class: "main" });
  card.append(words, element("div", { class: "controls" }, answer, further));
  place.append(start);
}
