"use strict";
/* A GPT that learns in this page: its settings and reports, the controls, the loss, its size, and the reader's text. */

/** What all panels look at: the settings of this run, its reports and curves, and the curves of the run before. */
class Learning {
  constructor(data) {
    this.settings = { ...data.settings, run: 0, running: true, factor: 1 };
    this.listeners = [];
    this.before = null;
    this.training = startTraining(
      (report) => this.take(report),
      () => this.begin(),
    );
    this.learnText(data.texts[0].text);
  }

  /** Call this function after every report. */
  onReport(listener) {
    this.listeners.push(listener);
  }

  /** Begin with another text; its first line is what the attention maps show. */
  learnText(text) {
    const line = text.split("\n").find((one) => one.trim().length > 8) ?? text;
    this.begin({ text, line: Array.from(line).slice(0, 40).join("") });
  }

  /** Begin again, with these settings changed. */
  begin(changes = {}) {
    if (this.curve?.losses.length >= HELD_OUT_EVERY) this.before = this.curve;
    const { shape, text, steps } = Object.assign(this.settings, changes, { running: true });
    shape.attention_scale = (12 * shape.n_head) / shape.n_embd; // scores from -12 to 12, as with nano.py's settings
    this.characters = charactersOf(text);
    const V = this.characters.length + 1;
    this.parameters = V * shape.n_embd + 12 * shape.n_layer * shape.n_embd ** 2;
    this.curve = { losses: [], tests: [], steps, V };
    this.look = null;
    this.settings.run++;
    this.send(this.settings);
  }

  /** Change settings of the run. */
  set(changes) {
    Object.assign(this.settings, changes);
    this.send(changes);
  }

  send(message) {
    const { rate, factor } = this.settings;
    this.training.send({ ...message, rate: rate * factor });
  }

  take(report) {
    if (report.run !== this.settings.run) return; // of a model that is gone
    this.curve.losses.push(...report.losses);
    this.curve.tests.push(...report.tests);
    this.look = report.look ?? this.look;
    this.report = report;
    for (const listener of this.listeners) listener(report);
  }

  /** The mean loss of the last steps: that of one step depends on its batch. */
  get loss() {
    const last = this.curve.losses.slice(-20);
    return last.length ? last.reduce((a, b) => a + b) / last.length : Math.log(this.curve.V);
  }

  /** What there is to say when something has changed. */
  get news() {
    const { step, failed, seconds } = this.report;
    if (failed) return `After step ${grouped(step)} the loss is not a number any more: lower the rate and start again.`;
    if (step === this.settings.steps) return `Done: ${grouped(step)} steps in ${seconds.toFixed(0)} s.`;
    if (!this.settings.running) return `Paused after step ${grouped(step)}.`;
    return `A model of ${grouped(this.parameters)} parameters learns ${this.training.place}.`;
  }
}

// --- controls -------------------------------------------------------------------------------------------------

/** Run, pause, start again, and how far it is: always in sight. */
function controlBar(learning) {
  const pause = button("Pause", () => learning.set({ running: !learning.settings.running }), { class: "main" });
  const again = button("Start again", () => learning.begin());
  const state = element("span", { class: "soft" }); // not an output, which would be read aloud at every change
  document.querySelector("main").prepend(element("div", { class: "sticky top controls" }, pause, again, state));
  learning.onReport(({ step, failed }) => {
    const { running, steps } = learning.settings;
    pause.textContent = running ? "Pause" : "Run";
    pause.disabled = failed || step === steps;
    state.textContent = `step ${grouped(step)} of ${grouped(steps)}, loss ${learning.loss.toFixed(2)}`;
  });
}

/** A switch with its question, and the answer to unfold. */
function experiment(name, question, answer, change) {
  const input = element("input", { type: "checkbox", onchange: () => change(input.checked) });
  const summary = element("summary", {}, `Predict first: ${question}`);
  const unfolded = element("details", {}, summary, element("p", {}, answer));
  return element("div", { class: "experiment" }, element("label", {}, input, name), unfolded);
}

function lossPanel(learning) {
  const names = ["step", "loss, nats", "bits per character", "held out, nats", "steps per second"];
  const values = names.map(() => element("b", {}, "–"));
  const figures = names.map((name, i) => element("div", {}, element("span", {}, name), values[i]));
  const plot = element("div", { class: "room" });
  const news = element("p", { class: "note", "aria-live": "polite", id: "news" });
  const lines = { first: "this run", second: "held out: the last tenth of the text", third: "the run before" };
  const { settings } = learning;
  const shaped = (name) => (broken) => learning.begin({ shape: { ...settings.shape, [name]: !broken } });
  bodyOf("loss").append(
    element("div", { class: "figures" }, ...figures),
    plot,
    legend(lines),
    news,
    slider("learning rate", {
      ...{ min: -3.3, max: -1, step: 0.1, value: Math.log10(settings.rate), hint: "the largest step size of a weight" },
      words: (power) => (10 ** power).toPrecision(2),
      change: (power) => learning.set({ rate: 10 ** power }),
    }),
    element("h3", {}, "Break it"),
    experiment(
      "rate × 30",
      "switch it on in the middle of a run. What will the loss do?",
      "Each update then changes the weights by more than they have learned: within a few steps the loss jumps to 3 " +
        "nats or more, as if only the frequencies of letters were known; it falls as the schedule lowers the rate.",
      (on) => learning.set({ factor: on ? 30 : 1 }),
    ),
    experiment(
      "no mask",
      "every position sees the whole window. What will the loss be, and what will the model write?",
      "The loss falls almost to 0, because the answer is in sight, one position further on; but a model that has " +
        "learned to copy it writes nonsense, since the next character does not exist while it writes.",
      shaped("mask"),
    ),
    experiment(
      "no residual connections",
      "each part replaces what it reads, instead of adding to it. What will two layers learn?",
      "The loss stays near 3 nats, the frequencies of letters, because what a character is reaches the end only " +
        "through all parts in turn, and these begin as random ones (a single layer can still learn: try it).",
      shaped("residual"),
    ),
  );
  learning.onReport((report) => {
    const { loss, curve } = learning;
    const test = curve.tests.at(-1)[1].toFixed(3);
    const shown = [grouped(report.step), loss.toFixed(3), (loss / Math.LN2).toFixed(3), test];
    [...shown, report.perSecond.toFixed(1)].forEach((text, i) => (values[i].textContent = text));
    if (news.textContent !== learning.news) news.textContent = learning.news;
  });
  learning.onReport(whenVisible("loss", () => plot.replaceChildren(curvePlot(learning.curve, learning.before))));
}

/** Training and held-out loss over the steps, in nats (left) and bits (right); dotted, those of the run before. */
function curvePlot(curve, before) {
  const [width, height, left, right, bottom] = [640, 260, 34, 606, 232];
  const start = Math.log(curve.V);
  const top = Math.ceil(Math.max(start, ...[...thinned(curve), ...curve.tests].map(([, loss]) => loss)) + 0.3);
  const x = (step) => left + ((right - left) * step) / curve.steps;
  const y = (loss) => bottom - ((bottom - 12) * Math.min(loss, top)) / top;
  const line = (points, kind) => {
    const within = points.filter(([step]) => step <= curve.steps);
    return svg("polyline", { class: kind, points: within.map(([step, loss]) => `${x(step)},${y(loss)}`).join(" ") });
  };
  const across = (loss, kind) => svg("line", { class: kind, x1: left, x2: right, y1: y(loss), y2: y(loss) });
  const label = (text, x, y, anchor = "start") => svg("text", { x, y, "text-anchor": anchor }, text);
  const nats = Array.from({ length: top + 1 }, (_, i) => i);
  const bits = nats.map((i) => 2 * i).filter((i) => i * Math.LN2 <= top);
  const equal = `ln ${curve.V} = ${start.toFixed(2)}: all characters equally probable`;
  return svg(
    "svg",
    { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The loss over the steps" },
    ...nats.map((loss) => across(loss, "axis")),
    ...nats.map((loss) => label(String(loss), left - 8, y(loss) + 4, "end")),
    ...bits.map((bit) => label(String(bit), right + 8, y(bit * Math.LN2) + 4)),
    label("nats", 0, height - 6),
    label("bits", width, height - 6, "end"),
    label(`step ${grouped(curve.steps)}`, right - 10, height - 6, "end"),
    across(start, "start"),
    label(equal, left + 40, y(start) - 5),
    ...(before ? [line(thinned(before), "third"), line(before.tests, "third")] : []),
    line(thinned(curve), "first"),
    line(curve.tests, "second"),
  );
}

/** At most 200 points of a curve, each the mean of consecutive losses: [step, loss]. */
function thinned({ losses, steps }) {
  const size = Math.ceil(steps / 200);
  return Array.from({ length: Math.ceil(losses.length / size) }, (_, i) => {
    const some = losses.slice(i * size, (i + 1) * size);
    return [i * size + some.length, some.reduce((a, b) => a + b) / some.length];
  });
}

// --- what is learned by what ----------------------------------------------------------------------------------

function sizePanel(learning) {
  const { shape, steps } = learning.settings;
  const note = element("p", { class: "note" });
  let timer = 0;
  const begin = () => {
    const [n_embd, n_head, n_layer, steps] = choices.map(({ values, made }) => values[made.value()]);
    learning.begin({ shape: { ...learning.settings.shape, n_embd, n_head, n_layer }, steps });
  };
  const change = () => {
    clearTimeout(timer);
    timer = setTimeout(begin, 300); // a slider passes other values on its way
  };
  const choices = [
    ["width C", shape.n_embd, [16, 32, 48, 64], "numbers for each character"],
    ["heads H", shape.n_head, [1, 2, 4, 8], "of attention, in each layer"],
    ["layers", shape.n_layer, [1, 2, 3, 4], "one after another"],
    ["steps", steps, [500, 1000, 2000, 5000, 20000], "updates of all weights"],
  ].map(([name, value, values, hint]) => {
    const scale = { min: 0, max: values.length - 1, step: 1, value: values.indexOf(value) };
    return { values, made: slider(name, { ...scale, hint, words: (i) => grouped(values[i]), change }) };
  });
  bodyOf("size").append(element("div", { class: "sliders" }, ...choices.map(({ made }) => made)), note);
  learning.onReport(() => {
    const { n_embd: C, n_layer } = learning.settings.shape;
    note.textContent =
      `${learning.curve.V} · ${C} numbers in the table of characters and ${n_layer} · 12 · ${C}² in the layers: ` +
      `${grouped(learning.parameters)} parameters.`;
  });
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

function textPanel(learning, { texts, limits }) {
  const box = element("textarea", { "aria-label": "Text to learn", spellcheck: "false", dir: "auto", rows: 9 });
  const note = element("p", { class: "note", "aria-live": "polite" });
  box.value = texts[0].text;
  const learn = () => {
    const text = box.value.replace(/\r\n?/g, "\n").normalize("NFC");
    const problem = problemOf(text, limits);
    note.classList.toggle("bad", Boolean(problem));
    const [count, kinds] = [Array.from(text).length, charactersOf(text).length];
    note.textContent =
      problem ||
      `The model learns this text: ${grouped(count)} characters, ${kinds} different ones, and one more for all others.`;
    if (!problem) learning.learnText(text);
  };
  const choices = texts.map(({ name, text }) =>
    button(name, () => {
      box.value = text;
      learn();
    }),
  );
  bodyOf("text").append(
    box,
    element("div", { class: "controls" }, button("Learn this text", learn, { class: "main" }), ...choices),
    note,
  );
}

startAfterPaint((data) => {
  const learning = new Learning(data);
  controlBar(learning);
  lossPanel(learning);
  samplePanel(learning);
  attentionPanel(learning);
  charactersPanel(learning);
  sizePanel(learning);
  textPanel(learning, data);
  window.learning = learning; // for the console: learning.report
});
