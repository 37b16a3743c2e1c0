"use strict";
/* A GPT that learns in this page: its settings and reports, numbers, and its size. */

/** The values that a size may have, and the largest text that goes into an address. */
const SIZES = { n_embd: [16, 32, 48, 64], n_head: [1, 2, 4, 8], n_layer: [1, 2, 3, 4] };
SIZES.steps = [500, 1000, 2000, 5000, 20000];
const RATES = [-3.3, -1]; // powers of 10
const MAX_LINKED = 20000; // characters

/** What all panels look at: the settings of this run, its reports and curves, and the curves of the run before. */
class Learning {
  constructor(data) {
    this.data = data;
    this.settings = { ...data.settings, run: 0, running: true, factor: 1, text: data.texts[0].text };
    this.listeners = [];
    this.before = null;
    this.training = startTraining(
      (report) => this.take(report),
      () => this.begin(),
    );
    this.begin(askedOf(data));
    window.addEventListener("hashchange", () => location.hash.includes("=") && location.reload()); // another link
  }

  /** Call this function after every report. */
  onReport(listener) {
    this.listeners.push(listener);
  }

  /** Begin again, with these settings changed. */
  begin(changes = {}) {
    if (this.curve?.losses.length >= HELD_OUT_EVERY) this.before = this.curve;
    const { shape, text, steps } = Object.assign(this.settings, changes, { running: true });
    const line = text.split("\n").find((one) => one.trim().length > 8) ?? text; // which the attention maps show
    this.settings.line = Array.from(line).slice(0, 40).join("");
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
    clearTimeout(this.timer);
    this.timer = setTimeout(() => history.replaceState(null, "", `#${addressOf(this)}`), 300);
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
    return `${grouped(this.parameters)} parameters learn ${this.training.place}.`;
  }
}

// --- the address ----------------------------------------------------------------------------------------------

/** What is not as at first, as the fragment of an address: #text=...&n_layer=3&rate=0.02&break=mask */
function addressOf({ settings, data }) {
  const [state, first, values] = [{}, { ...data.settings, ...data.settings.shape }, { ...settings, ...settings.shape }];
  if (settings.text !== data.texts[0].text && settings.text.length <= MAX_LINKED) state.text = settings.text;
  for (const name of [...Object.keys(SIZES), "rate", "temperature", "prompt"]) {
    if (values[name] !== first[name]) state[name] = values[name];
  }
  const broken = BREAKS.filter(({ isOn }) => isOn(settings)).map(({ name }) => name);
  if (broken.length) state.break = broken.join();
  return new URLSearchParams(state);
}

/** The settings that the address asks for, where it names values that there are. */
function askedOf({ settings, limits }) {
  const asked = new URLSearchParams(location.hash.slice(1));
  const text = asked.get("text");
  const broken = asked.get("break")?.split(",") ?? [];
  const shape = { ...settings.shape, mask: !broken.includes("mask"), residual: !broken.includes("residual") };
  const changes = { shape, factor: broken.includes("rate") ? 30 : 1, prompt: (asked.get("prompt") ?? "").slice(0, 60) };
  for (const [name, values] of Object.entries(SIZES)) {
    const value = Number(asked.get(name));
    if (values.includes(value)) (name in shape ? shape : changes)[name] = value;
  }
  for (const [name, least, most] of [["rate", ...RATES.map((power) => 10 ** power)], ["temperature", 0, 2]]) {
    const value = Number(asked.get(name) ?? NaN);
    if (value >= least && value <= most) changes[name] = value;
  }
  if (text && !problemOf(text, limits)) changes.text = text;
  return changes;
}

// --- numbers, and what is learned by what ----------------------------------------------------------------------

function lossPanel(learning) {
  const names = ["step", "loss, nats", "bits per character", "held out, nats", "steps per second"];
  const values = names.map(() => element("b", {}, "–"));
  const figures = names.map((name, i) => element("div", {}, element("span", {}, name), values[i]));
  const rate = slider("learning rate", {
    ...{ min: RATES[0], max: RATES[1], step: 0.1, value: Math.log10(learning.settings.rate) },
    hint: "the largest step size of a weight",
    words: (power) => (10 ** power).toPrecision(2),
    change: (power) => learning.set({ rate: 10 ** power }),
  });
  bodyOf("loss").append(element("div", { class: "figures" }, ...figures), rate);
  learning.onReport((report) => {
    const { loss, curve } = learning;
    const test = curve.tests.at(-1)[1].toFixed(3);
    const shown = [grouped(report.step), loss.toFixed(3), (loss / Math.LN2).toFixed(3), test];
    [...shown, report.perSecond.toFixed(1)].forEach((text, i) => (values[i].textContent = text));
  });
}

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
    ["width C", shape.n_embd, SIZES.n_embd, "numbers for each character"],
    ["heads H", shape.n_head, SIZES.n_head, "of attention, in each layer"],
    ["layers", shape.n_layer, SIZES.n_layer, "one after another"],
    ["steps", steps, SIZES.steps, "updates of all weights"],
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

startAfterPaint((data) => {
  const learning = new Learning(data);
  makeBench(learning);
  if (ONLY && isStill()) learning.set({ running: false }); // in a frame, until the reader runs it
  lossPanel(learning);
  samplePanel(learning);
  attentionPanel(learning);
  charactersPanel(learning);
  sizePanel(learning);
  window.learning = learning; // for the console: learning.report
});
