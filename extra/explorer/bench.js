"use strict";
/* The first screen of the page in which a model learns: its loss, what it writes, three ways to break it, its text. */

/** What can be broken: its name in the address, the button, the question, the answer, and the settings for it. */
const BREAKS = [
  {
    name: "rate",
    words: "Rate × 30",
    does: "every step is 30 times as long",
    question: "What will the loss do?",
    answer:
      "Each update then changes the weights by more than they have learned: within a few steps the loss jumps to 3 " +
      "nats or more, as if only the frequencies of letters were known; it falls as the schedule lowers the rate.",
    isOn: ({ factor }) => factor > 1,
    turn: (learning, on) => learning.set({ factor: on ? 30 : 1 }),
  },
  {
    name: "mask",
    words: "No mask",
    does: "every position sees the whole window, what comes after it too",
    question: "What will the loss be, and what will the model write?",
    answer:
      "The loss falls almost to 0, because the answer is in sight, one position further on; but a model that has " +
      "learned to copy it writes nonsense, since the next character does not exist while it writes.",
    isOn: ({ shape }) => !shape.mask,
    turn: (learning, on) => learning.begin({ shape: { ...learning.settings.shape, mask: !on } }),
  },
  {
    name: "residual",
    words: "No residuals",
    does: "each part replaces what it reads, instead of adding to it",
    question: "What will two layers learn?",
    answer:
      "The loss stays near 3 nats, the frequencies of letters, because what a character is reaches the end only " +
      "through all parts in turn, and these begin as random ones (a single layer can still learn: try it).",
    isOn: ({ shape }) => !shape.residual,
    turn: (learning, on) => learning.begin({ shape: { ...learning.settings.shape, residual: !on } }),
  },
];

function makeBench(learning) {
  const card = (title, parts) => element("div", { class: "card" }, element("h2", {}, title), ...parts);
  const root = element("div", { class: "bench", id: "bench" });
  document.querySelector("main").prepend(controlBar(learning), root);
  document.querySelector("header .why").append(document.querySelector("header nav")); // the first screen is the bench
  root.append(
    card("Its loss", curve(learning)),
    card("It writes", writing(learning)),
    card("Break it: what do you expect?", breaking(learning)),
    card("Its text: paste your own over it", textField(learning)),
  );
}

/** Run, pause, start again, and how far it is: always in sight. */
function controlBar(learning) {
  const pause = button("Pause", () => learning.set({ running: !learning.settings.running }), { class: "main" });
  const again = button("Start again", () => learning.begin());
  const state = element("span", { class: "soft" }); // not an output, which would be read aloud at every change
  learning.onReport(({ step, failed }) => {
    const { running, steps } = learning.settings;
    pause.textContent = running ? "Pause" : "Run";
    pause.disabled = failed || step === steps;
    state.textContent = `step ${grouped(step)} of ${grouped(steps)}, loss ${learning.loss.toFixed(2)}`;
  });
  return element("div", { class: "sticky top controls" }, pause, again, copyLink(learning, ""), state);
}

// --- the loss -------------------------------------------------------------------------------------------------

function curve(learning) {
  const plot = element("div", { class: "room" });
  const draw = whenVisible("bench", () => {
    plot.replaceChildren(curvePlot(learning.curve, learning.before, plot.clientWidth, plot.clientHeight));
  });
  const news = element("p", { class: "note", "aria-live": "polite", id: "news" });
  learning.onReport(() => {
    draw();
    if (news.textContent !== learning.news) news.textContent = learning.news;
  });
  new ResizeObserver(draw).observe(plot);
  return [legend({ first: "this run", second: "held out", third: "run before" }), plot, news];
}

/** The losses of the steps so far, in nats; dotted, the run before. In pixels: letters are as large everywhere. */
function curvePlot(curve, before, width, height) {
  const [left, right, bottom] = [20, width - 14, height - 20];
  const start = Math.log(curve.V);
  const points = thinned(curve);
  const steps = Math.max(10, curve.losses.length);
  const top = Math.max(start, ...[...points, ...curve.tests].map(([, loss]) => loss));
  const x = (step) => left + ((right - left) * step) / steps;
  const y = (loss) => bottom - ((bottom - 18) * Math.min(loss, top)) / top;
  const line = (points, kind) => {
    const within = points.filter(([step]) => step <= steps);
    return svg("polyline", { class: kind, points: within.map(([step, loss]) => `${x(step)},${y(loss)}`).join(" ") });
  };
  const across = (loss, kind) => svg("line", { class: kind, x1: left, x2: right, y1: y(loss), y2: y(loss) });
  const label = (text, x, y, anchor) => svg("text", { x, y, "text-anchor": anchor }, text);
  return svg(
    "svg",
    { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The loss over the steps" },
    ...ticks(top).flatMap((loss) => [across(loss, "axis"), label(grouped(loss), left - 6, y(loss) + 4, "end")]),
    label("step 0", x(0), height - 4, "start"),
    ...ticks(steps).slice(1).map((step) => label(grouped(step), x(step), height - 4, "middle")),
    across(start, "start"),
    label(`ln ${curve.V} = ${start.toFixed(2)} nats: all equally probable`, right, y(start) - 5, "end"),
    ...(before ? [line(thinned(before), "third"), line(before.tests, "third")] : []),
    line(points, "first"),
    line(curve.tests, "second"),
  );
}

/** At most six round numbers from 0 to a limit. */
function ticks(limit) {
  const unit = 10 ** Math.floor(Math.log10(limit));
  const gap = [0.2, 0.5, 1, 2].map((part) => part * unit).find((gap) => limit / gap <= 5.5);
  return Array.from({ length: Math.floor(limit / gap) + 1 }, (_, i) => i * gap);
}

/** At most 200 points of a curve, each the mean of consecutive losses: [step, loss]. */
function thinned({ losses }) {
  const size = Math.ceil(losses.length / 200);
  return Array.from({ length: Math.ceil(losses.length / size) || 0 }, (_, i) => {
    const some = losses.slice(i * size, (i + 1) * size);
    return [i * size + some.length, some.reduce((a, b) => a + b) / some.length];
  });
}

// --- what it writes -------------------------------------------------------------------------------------------

/** The sample that is being written, over the one before it, which is pale. */
function writing(learning) {
  const sample = element("pre", { class: "sample", "aria-label": "What the model writes now", tabindex: 0 });
  const note = element("p", { class: "note" });
  let [now, before] = [{ text: "", from: 0 }, ""];
  const draw = whenVisible("bench", () => {
    const { prompt, text: learned } = learning.settings;
    const known = new Set(learned.match(/\p{L}+/gu));
    const shown = now.text.replace(/(^|\n)(?=\n)/g, "$1↵"); // it may write nothing but empty lines
    const parts = shown.split(/(\p{L}+)/u); // words are the parts 1, 3, 5, ...
    const found = parts.filter((_, i) => i % 2).filter((word) => known.has(word)).length;
    const pen = element("span", { class: "pen" });
    sample.replaceChildren(
      element("span", { class: "soft" }, prompt),
      ...parts.map((part, i) => (i % 2 && known.has(part) ? element("b", {}, part) : part)),
      pen,
      element("span", { class: "old" }, Array.from(before).slice(Array.from(now.text).length).join("")),
    );
    const line = parseFloat(getComputedStyle(sample).lineHeight);
    sample.scrollTop = line * Math.ceil((pen.offsetTop + 1.5 * line - sample.clientHeight) / line);
    const of = Math.floor(parts.length / 2);
    note.textContent = `Begun after step ${grouped(now.from)}. In bold: words of the text, ${found} of ${of}.`;
  });
  const inside = button("Look inside", () => lookInside(learning), { class: "aside" });
  learning.onReport(({ sample, run, failed }) => {
    const { mask, residual } = learning.settings.shape;
    inside.disabled = failed || !learning.look || !mask || !residual;
    inside.title = mask && residual ? "open the model as it is now" : "only with mask and residuals";
    if (sample.from !== now.from || run !== now.run || sample.text.length < now.text.length) before = now.text;
    now = { ...sample, run };
    draw();
  });
  return [inside, sample, note];
}

// --- what the reader changes ----------------------------------------------------------------------------------

/** A button for each break, and after a press its question, with the answer to unfold. */
function breaking(learning) {
  const saying = ({ words, does }) => element("p", { class: "note" }, `${words}: ${does}.`);
  const guess = element("div", { id: "guess", class: "untried", "aria-live": "polite" }, ...BREAKS.map(saying));
  const buttons = BREAKS.map(({ words, does, question, answer, isOn, turn }) => {
    const press = () => {
      turn(learning, !isOn(learning.settings));
      const summary = element("summary", {}, `${words}: ${does}. ${question}`);
      const unfolded = element("details", {}, summary, element("p", {}, answer));
      const on = isOn(learning.settings);
      guess.replaceChildren(...(on ? [unfolded] : BREAKS.map(saying)));
      guess.classList.toggle("untried", !on);
      show();
    };
    return button(words, press);
  });
  const show = () => buttons.forEach((one, i) => one.setAttribute("aria-pressed", BREAKS[i].isOn(learning.settings)));
  show();
  return [element("div", { class: "controls" }, ...buttons), guess];
}

/** Why a text cannot be learned here, as a sentence; empty if it can. */
function problemOf(text, { window, shortest, longest, kinds }) {
  const count = Array.from(text).length;
  const odd = text.match(/[\p{Cs}\ufffd]|(?![\n\t])\p{Cc}/u);
  if (odd) return `Something in it is no text: ${visible(odd[0])}. Paste letters, not the contents of another file.`;
  if (count < shortest)
    return (
      `It has ${grouped(count)} characters, and at least ${shortest} are needed: the tenth that is held out has to ` +
      `fill a window of ${window}.`
    );
  if (count > longest) return `It has ${grouped(count)} characters, and this page takes ${grouped(longest)}.`;
  const different = charactersOf(text).length;
  if (different > kinds)
    return `It has ${grouped(different)} different characters, and this page takes ${kinds}: each must occur often.`;
  return "";
}

/** The text that it learns, to be written over; what replaces all of it is learned at once. */
function textField(learning) {
  const { texts, limits } = learning.data;
  const box = element("textarea", { "aria-label": "Text to learn", spellcheck: "false", dir: "auto", rows: 3 });
  const note = element("p", { class: "note", "aria-live": "polite" });
  box.value = learning.settings.text;
  const learn = () => {
    const text = box.value.replace(/\r\n?/g, "\n").normalize("NFC");
    const problem = problemOf(text, limits);
    note.classList.toggle("bad", Boolean(problem));
    const [count, kinds] = [Array.from(text).length, charactersOf(text).length];
    const isLinked = count <= MAX_LINKED ? "" : ` For a link it is too long: the limit is ${grouped(MAX_LINKED)}.`;
    note.textContent =
      problem || `The model learns this text: ${grouped(count)} characters, ${kinds} different ones.${isLinked}`;
    if (!problem) learning.begin({ text });
  };
  let fresh = true; // the first click selects all, so that a paste replaces it
  box.addEventListener("click", () => fresh && box.select());
  box.addEventListener("click", () => (fresh = false));
  box.addEventListener("blur", () => (fresh = true));
  box.addEventListener("paste", () => {
    if (box.selectionEnd - box.selectionStart === box.value.length) setTimeout(learn);
  });
  const choices = texts.map(({ name, text }) =>
    button(name, () => {
      box.value = text;
      learn();
    }),
  );
  const start = button("Learn this text", learn, { class: "main" });
  return [box, element("div", { class: "controls" }, start, ...choices), note];
}
