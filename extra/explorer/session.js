"use strict";
/*
 * What all panels look at: the tokens, what the model computed for each of them, and which token is selected.
 *
 * A LiveSession computes with the model in this page; a RecordedSession shows what was computed before, for one text.
 */

const EARLY = 3; // predictions that are shown of each layer

class Session {
  constructor(data, pieces) {
    this.data = data;
    this.pieces = pieces; // the UTF-8 bytes of each token
    this.forbidden = data.textless; // tokens that are never generated
    this.ids = []; // all tokens of the text
    this.first = 0; // the first of them that the model reads: those before it have left its context
    this.head = [data.config.n_layer - 1, 0]; // the chosen one: layer, head
    this.off = new Set(); // heads that are switched off: "2.0" is layer 2, head 0
    this.selected = 0; // the selected one of those that it reads, counted from `first`
    this.listeners = [];
  }

  /** Call this function after every change. */
  onChange(listener) {
    this.listeners.push(listener);
  }

  /** What all numbers of the page depend on: the text, the heads that are off, the checkpoint. */
  get state() {
    return JSON.stringify([this.ids, Array.from(this.off), this.checkpoint]);
  }

  /** Read what was typed; here nothing can be. */
  settle() {}

  changed() {
    for (const listener of this.listeners) listener();
  }

  select(position) {
    this.settle();
    this.selected = Math.max(0, Math.min(Math.trunc(position) || 0, this.read.length - 1)); // an address may name any
    this.changed();
  }

  chooseHead(layer, head) {
    this.head = [layer, head];
    this.headChosen = true; // before, the panels choose one that says much
    this.changed();
  }

  /** The tokens that the model reads. */
  get read() {
    return this.ids.slice(this.first);
  }

  /** The text of tokens. */
  text(ids) {
    return decode(this.pieces, ids);
  }

  label(token) {
    return labelOf(this.pieces, this.data.specials, token);
  }

  /** The probabilities of what follows a position: (V). */
  probabilities(position) {
    return softmax(Float64Array.from(this.logits(position)));
  }

  /** Bits of each token that the model reads, -log2 p; none of the first, which nothing predicts. */
  bits() {
    return bitsOf(this.read, (position) => this.logits(position));
  }

  /** Bits of a text, divided by its characters; of the tokens that were predicted, so without the first. */
  perCharacter(bits) {
    return sum(bits.slice(1)) / Math.max(Array.from(this.text(this.read.slice(1))).length, 1);
  }
}

function bitsOf(ids, logits) {
  return ids.map((token, i) => (i === 0 ? null : -logSoftmax(logits(i - 1))[token] / Math.LN2));
}

class LiveSession extends Session {
  constructor(data) {
    const tokenizer = makeTokenizer(data.tokenizer);
    super(data, tokenizer.pieces);
    this.tokenizer = tokenizer;
    this.live = true;
    this.models = new Map();
    this.checkpoint = data.selected;
    this.typed = null; // a text that was typed and is not read yet
    this.took = 0; // milliseconds that reading the last text took
    this.forget();
  }

  /** The model of a checkpoint; its weights are decoded when they are first needed. */
  model(checkpoint = this.checkpoint) {
    if (!this.models.has(checkpoint)) {
      const weights = readWeights(`weights-${checkpoint}`, this.data.tensors);
      this.models.set(checkpoint, new GPT(this.data.config, weights));
    }
    return this.models.get(checkpoint);
  }

  /** Compute everything again at the next change. */
  forget() {
    this.known = []; // the tokens that the cache holds
    this.seen = []; // what was computed for each: see GPT.predict
    this.cache = null;
  }

  /** Where reading a text takes long, it is read when the typing pauses, or before anything else happens. */
  type(text) {
    clearTimeout(this.timer);
    this.typed = text;
    if (this.took < 100) this.settle();
    else this.timer = setTimeout(() => this.settle(), 300);
  }

  settle() {
    if (this.typed === null) return;
    const begin = performance.now();
    this.setText(this.typed);
    this.took = performance.now() - begin;
  }

  setText(text) {
    clearTimeout(this.timer);
    this.typed = null;
    const ids = this.encode(text);
    this.unknown = this.tokenizer.unknown(normalise(text));
    this.setIds(ids.length ? ids : this.tokenizer.encode("\n")); // a prediction needs something to start from
  }

  encode(text) {
    return this.tokenizer.encode(normalise(text));
  }

  setIds(ids) {
    this.ids = ids.length ? ids : [0];
    this.first = Math.max(0, this.ids.length - this.data.context);
    this.compute();
    this.select(Infinity);
  }

  /** When the context is full, its last half is read again, as in tinygrad_lite/generator.py, Generator.step. */
  append(token) {
    this.settle();
    this.ids = [...this.ids, token];
    if (this.read.length > this.data.context) {
      this.first = this.ids.length - Math.max(1, Math.floor(this.data.context / 2));
    }
    this.compute();
    this.select(Infinity);
  }

  removeLast() {
    this.settle();
    if (this.ids.length < 2) return;
    this.ids = this.ids.slice(0, -1);
    this.first = Math.min(this.first, this.ids.length - 1);
    this.compute();
    this.select(Infinity);
  }

  toggleHead(name) {
    if (!this.off.delete(name)) this.off.add(name);
    this.recompute();
  }

  allHeadsOn() {
    this.off.clear();
    this.recompute();
  }

  setCheckpoint(checkpoint) {
    this.checkpoint = checkpoint;
    this.recompute();
  }

  recompute() {
    this.settle();
    this.forget();
    this.compute();
    this.changed();
  }

  /** Read the tokens that the cache does not hold; what text before and now begin with is not read again. */
  compute() {
    const read = this.read;
    let same = 0;
    while (same < this.known.length && this.known[same] === read[same]) same++;
    this.cache = this.cache ?? this.model().newCache();
    for (const layer of this.cache) layer.keys.length = layer.values.length = same;
    this.seen.length = same;
    for (const token of read.slice(same)) this.seen.push(this.model().predict(token, this.cache, this.off));
    this.known = read;
  }

  /** The logits after each of some tokens, by another checkpoint, or without some heads. */
  logitsWith(off, checkpoint, ids) {
    const model = this.model(checkpoint);
    const cache = model.newCache();
    return ids.map((token) => model.predict(token, cache, off).logits);
  }

  /** Bits of each token, likewise. */
  bitsWith(off, checkpoint = this.checkpoint) {
    const logits = this.logitsWith(off, checkpoint, this.read);
    return bitsOf(this.read, (position) => logits[position]);
  }

  logits(position) {
    return this.seen[position].logits;
  }

  /** Weights of a head: row t has t + 1 of them, one for each position that t sees. */
  attention(layer, head) {
    return this.seen.map((one) => one.attention[layer][head]);
  }

  /** What the weight comes from that position t gives s: query, key and value (D), scale, score, and row t. */
  cell(layer, head, t, s) {
    const { n_head, n_kv_head, scale } = this.data.config;
    const group = Math.floor((head * n_kv_head) / n_head);
    const query = this.seen[t].queries[layer][head];
    const { keys, values } = this.cache[layer];
    const [key, value] = [keys[s][group], values[s][group]];
    const weights = this.seen[t].attention[layer][head];
    return { query, key, value, scale, score: dot(query, key) * scale, weights };
  }

  /** The lengths |x| of the stream before each layer and at the end, and of what each part adds. */
  norms(position) {
    const { stream, added } = this.seen[position];
    return { stream: stream.map(norm), added: added.map((parts) => parts.map(norm)) };
  }

  /** The best predictions if the layers from this one on did nothing. */
  early(layer, position) {
    return best(softmax(this.model().read(this.seen[position].stream[layer])), EARLY);
  }
}

class RecordedSession extends Session {
  constructor(data) {
    const { recording } = data;
    super(data, recording.pieces.map((piece) => Array.from(piece, (character) => character.charCodeAt(0))));
    this.live = false;
    this.ids = recording.ids;
    this.selected = this.ids.length - 1;
    this.allLogits = readHalves("recorded-logits"); // (T, V), log-probabilities
    this.rows = recordedRows([data.config.n_layer, data.config.n_head, this.ids.length]);
  }

  logits(position) {
    const V = this.data.config.vocab_size;
    return this.allLogits.subarray(position * V, (position + 1) * V);
  }

  attention(layer, head) {
    return this.rows(layer, head).map((row, t) => row.subarray(0, t + 1));
  }

  norms(position) {
    const { stream, added } = this.data.recording;
    const here = (lengths) => lengths[position];
    return { stream: stream.map(here), added: added.map((parts) => parts.map(here)) };
  }

  early(layer, position) {
    return this.data.recording.early[layer][position].slice(0, EARLY).map(([token, p]) => ({ token, p }));
  }
}
