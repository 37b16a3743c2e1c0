"use strict";
/*
 * Training that can be watched: it learns in slices, and between them takes messages, writes a little, and reports.
 *
 * This file runs in a worker, a second thread, so that the page answers meanwhile. The worker is made of the scripts of
 * the page, since a page that is a file may load no other. Where that is refused, the page's own thread trains, in
 * shorter slices.
 */

const BATCH = 4; // sequences of a step
const WARMUP = 100; // steps; these two, the share held out and the schedule are those of nano.py's train
const HELD_OUT_EVERY = 50; // steps
const WRITTEN = 220; // characters of a sample
const LOOK_EVERY = 400; // milliseconds

class Training {
  /**
   * @param post takes reports
   * @param slice milliseconds until the next message can be taken
   */
  constructor(post, slice) {
    Object.assign(this, { post, slice, settings: {}, awake: false });
  }

  /** Take settings; with a text among them, begin again. */
  receive(message) {
    Object.assign(this.settings, message);
    if ("text" in message) this.begin();
    if ("text" in message || "temperature" in message || "prompt" in message) this.startWriting();
    if (!this.awake) setTimeout(() => this.loop());
    this.awake = true;
  }

  begin() {
    const { text, shape } = this.settings;
    const characters = charactersOf(text);
    this.model = new GPT(characters, shape, BATCH);
    this.optimizer = new AdamW(this.model);
    this.random = randomNumbers(1); // of the batches; those of what is written are others, so that runs are repeated
    this.dice = randomNumbers(2);
    const ids = this.model.encode(text);
    const cut = Math.floor(0.9 * ids.length);
    [this.known, this.heldOut] = [ids.slice(0, cut), ids.slice(cut)];
    const size = BATCH * shape.block_size;
    Object.assign(this, { inputs: new Int32Array(size), targets: new Int32Array(size) });
    Object.assign(this, { step: 0, failed: false, seconds: 0, rate: 0, lookAt: 0, losses: [], tests: [] });
    this.test();
  }

  get isLearning() {
    return this.settings.running && !this.failed && this.step < this.settings.steps;
  }

  /** A slice: steps of learning, some characters of writing, a report. It ends where there is nothing left to do. */
  loop() {
    const began = performance.now();
    const before = this.step;
    while (this.isLearning && performance.now() < began + this.slice) this.learn();
    this.write(Math.ceil(this.slice / 12));
    const seconds = (performance.now() - began) / 1000;
    if (this.step > before) {
      const rate = (this.step - before) / seconds;
      this.rate = this.seconds < 1 ? rate : 0.95 * this.rate + 0.05 * rate;
      this.seconds += seconds;
    }
    this.report();
    this.awake = this.isLearning || (this.written.length < WRITTEN && !this.failed);
    if (this.awake) setTimeout(() => this.loop());
  }

  /** Copy the window that begins at `begin` into row b of the batch: ids, and for each the one that follows. */
  copyWindow(ids, begin, b) {
    const T = this.settings.shape.block_size;
    for (let t = 0; t < T; t++) {
      this.inputs[b * T + t] = ids[begin + t];
      this.targets[b * T + t] = ids[begin + t + 1];
    }
  }

  /** One step: the loss of a random batch, its gradient, an update. */
  learn() {
    const { shape, steps, rate } = this.settings;
    const T = shape.block_size;
    for (let b = 0; b < BATCH; b++) this.copyWindow(this.known, Math.floor(this.random() * (this.known.length - T)), b);
    const loss = this.model.loss(this.inputs, this.targets, BATCH, T);
    this.model.backward(BATCH, T);
    const falling = (steps - this.step) / (0.6 * steps);
    this.optimizer.step(rate * Math.min(1, (this.step + 1) / (WARMUP + 1), falling));
    this.step++;
    this.failed = !Number.isFinite(loss);
    if (!this.failed) this.losses.push(loss);
    if (this.step % HELD_OUT_EVERY === 0) this.test();
    if (this.step === steps) this.startWriting(); // the last word is that of the trained model
  }

  /** The loss on windows from the last tenth of the text, which no step learns from. */
  test() {
    const T = this.settings.shape.block_size;
    const last = this.heldOut.length - T - 1;
    const count = Math.min(BATCH, 1 + Math.floor(last / T));
    for (let b = 0; b < count; b++) this.copyWindow(this.heldOut, Math.round((last * b) / Math.max(count - 1, 1)), b);
    const inputs = this.inputs.subarray(0, count * T);
    this.tests.push([this.step, this.model.loss(inputs, this.targets, count, T)]);
  }

  startWriting() {
    const { prompt, text } = this.settings;
    this.ids = this.model.encode(prompt || (text.includes("\n") ? "\n" : text[0]));
    this.written = [];
    this.writtenFrom = this.step;
  }

  /** Write some characters more; a full sample stays for a moment, and while the model learns, another follows. */
  write(count) {
    if (this.written.length >= WRITTEN && this.isLearning && performance.now() > this.nextSample) this.startWriting();
    for (let i = 0; i < count && this.written.length < WRITTEN && !this.failed; i++) {
      this.ids.push(this.model.sample(this.ids, this.settings.temperature, this.dice));
      this.written.push(this.model.characters[this.ids.at(-1)]);
      this.nextSample = performance.now() + 1500;
    }
  }

  report() {
    const { model, step, failed, losses, tests } = this;
    const report = { run: this.settings.run, step, failed, losses, tests, perSecond: this.rate, seconds: this.seconds };
    report.isLearning = this.isLearning;
    report.sample = { text: this.written.join(""), from: this.writtenFrom, isWhole: this.written.length >= WRITTEN };
    if (performance.now() > this.lookAt || !this.isLearning) {
      const line = model.encode(this.settings.line);
      const [H, T] = [model.shape.n_head, line.length];
      model.forward(line, 1, T);
      report.look = { attention: model.layers.map(({ p }) => p.slice(0, H * T * T)), weights: model.data.slice() };
      this.lookAt = performance.now() + LOOK_EVERY;
    }
    this.post(report);
    [this.losses, this.tests] = [[], []];
  }
}

/** The characters of a text, each once, in the order of their numbers in Unicode. */
function charactersOf(text) {
  return Array.from(new Set(text)).sort((a, b) => a.codePointAt(0) - b.codePointAt(0));
}

/**
 * Start training, in a worker if one can be started. Returns a function that takes settings, and says where it runs.
 * @param post takes reports
 * @param restart is called if the worker could not start after all: then settings must be given again
 */
function startTraining(post, restart) {
  const here = new Training(post, 15);
  const training = { place: "in the page's own thread", send: (message) => here.receive(message) };
  const sources = Array.from(document.scripts, (script) => script.textContent);
  const parts = sources.filter((text) => /^\/\/ (derivatives|nano|training)\.js\n/.test(text));
  try {
    const worker = new Worker(URL.createObjectURL(new Blob(parts, { type: "text/javascript" })));
    const inWorker = { place: "in a worker, a second thread", send: (message) => worker.postMessage(message) };
    worker.onmessage = (event) => post(event.data);
    worker.onerror = (event) => {
      event.preventDefault();
      worker.terminate();
      Object.assign(inWorker, training);
      restart();
    };
    return inWorker;
  } catch {
    return training;
  }
}

if (typeof document === "undefined") {
  const training = new Training((report) => postMessage(report), 100);
  onmessage = (event) => training.receive(event.data);
}
