"use strict";
/*
 * nano.py's GPT and AdamW in JavaScript, so that a page can train: the same names, formulas and order of weights.
 *
 * This is the one place where the project has a second engine, because a browser cannot run the first: the backward
 * pass is written by hand, with derivatives.js. tests/extra/e2e/test_learning.py compares loss, all gradients and ten
 * updates with those of nano.py.
 *
 * B sequences of T positions are M = B T rows. C width   H heads of width D   V characters, the unknown one included
 * A matrix (rows, columns) is a Float32Array, row after row.
 */

/** Numbers between 0 and 1 that look random, and are the same for the same seed (Marsaglia 2003, "Xorshift RNGs"). */
function randomNumbers(seed) {
  let x = Math.imul(seed, 0x9e3779b9) || 1; // seeds that are near each other begin far apart
  return () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (x >>> 0) / 2 ** 32;
  };
}

class GPT {
  /**
   * @param characters in the order of their ids; one more id is for those that the model does not know
   * @param shape n_layer, n_head, n_embd, block_size, attention_scale; here also mask and residual, which may be false
   * @param B the most sequences that it reads at once
   */
  constructor(characters, shape, B, seed = 1337) {
    Object.assign(this, { characters, shape, weights: {}, V: characters.length + 1 });
    this.numbers = new Map(characters.map((character, i) => [character, i]));
    const C = shape.n_embd;
    const sizes = { token_embedding: [this.V, C] };
    for (let i = 0; i < shape.n_layer; i++) {
      for (const name of ["query", "key", "value", "output"]) sizes[`blocks.${i}.mixer.${name}`] = [C, C];
      Object.assign(sizes, { [`blocks.${i}.mlp.up`]: [4 * C, C], [`blocks.${i}.mlp.down`]: [C, 4 * C] });
    }
    this.size = Object.values(sizes).reduce((sum, [rows, columns]) => sum + rows * columns, 0);
    // All weights lie in one array, one after another, and their gradients in another: AdamW is one loop over both.
    this.data = new Float32Array(this.size);
    this.grad = new Float32Array(this.size);
    const random = randomNumbers(seed);
    const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random()); // Box, Muller 1958
    let begin = 0;
    for (const [name, [rows, columns]] of Object.entries(sizes)) {
      const [data, grad] = [this.data, this.grad].map((all) => all.subarray(begin, begin + rows * columns));
      // What a block adds begins at 0. Without residual connections it is all that is passed on, so it cannot be 0.
      const deviation = /output|down/.test(name) && shape.residual ? 0 : 0.02;
      for (let i = 0; i < data.length; i++) data[i] = deviation * normal();
      this.weights[`${name}.weight`] = { shape: [rows, columns], data, grad };
      begin += data.length;
    }
    this.reserve(B, shape.block_size, C, shape.n_head, shape.n_layer);
  }

  /** The arrays for all that is computed on the way, and for its gradients (d), which all layers share. */
  reserve(B, T, C, H, L) {
    const [M, half] = [B * T, C / H / 2];
    const make = (sizes) => Object.fromEntries(Object.entries(sizes).map(([name, n]) => [name, new Float32Array(n)]));
    const mixer = { x1: M * C, r1: M, q: M * C, k: M * C, v: M * C, rq: M * H, rk: M * H, p: M * H * T, o: M * C };
    this.layers = Array.from({ length: L }, () => make({ ...mixer, x2: M * C, r2: M, h: M * 4 * C, a: M * 4 * C }));
    Object.assign(this, make({ x: M * C, y: M * C, r: M, logits: M * this.V }), { ids: new Int32Array(M) });
    this.d = make({ x: M * C, y: M * C, q: M * C, k: M * C, v: M * C, p: T * T, o: M * C, a: M * 4 * C });
    this.angles = make({ cos: T * half, sin: T * half }); // t * 10000^(-i / (D/2)), for t and i
    for (let j = 0; j < T * half; j++) {
      const angle = Math.floor(j / half) * 10000 ** (-(j % half) / half);
      this.angles.cos[j] = Math.cos(angle);
      this.angles.sin[j] = Math.sin(angle);
    }
  }

  get table() {
    return this.weights["token_embedding.weight"];
  }

  weight(layer, name) {
    return this.weights[`blocks.${layer}.${name}.weight`];
  }

  /** ids (B, T) -> this.logits (B, T, V). The table of characters is used at both ends. */
  forward(ids, B, T) {
    const { n_head: H, n_embd: C, residual } = this.shape;
    const [M, x, table] = [B * T, this.x, this.table];
    this.ids.set(ids);
    for (let m = 0; m < M; m++) for (let c = 0; c < C; c++) x[m * C + c] = table.data[ids[m] * C + c];
    for (const [i, one] of this.layers.entries()) {
      norm(x, one.x1, one.r1, M, C);
      linear(one.x1, this.weight(i, "mixer.query"), one.q, M);
      linear(one.x1, this.weight(i, "mixer.key"), one.k, M);
      linear(one.x1, this.weight(i, "mixer.value"), one.v, M);
      norm(one.q, one.q, one.rq, M * H, C / H);
      norm(one.k, one.k, one.rk, M * H, C / H);
      turn(one.q, this.angles, 1, M, T, H, C / H);
      turn(one.k, this.angles, 1, M, T, H, C / H);
      attend(one, B, T, this.shape);
      linear(one.o, this.weight(i, "mixer.output"), x, M, residual); // x = x + attention(norm(x))
      norm(x, one.x2, one.r2, M, C);
      linear(one.x2, this.weight(i, "mlp.up"), one.h, M);
      relu2(one.h, one.a, M * 4 * C);
      linear(one.a, this.weight(i, "mlp.down"), x, M, residual); // x = x + down(relu(up(norm(x)))^2)
    }
    norm(x, this.y, this.r, M, C);
    linear(this.y, table, this.logits, M);
  }

  /** Mean of -log p(target), in nats. Its gradient, (p - [is target]) / M, takes the place of the logits. */
  loss(ids, targets, B, T) {
    this.forward(ids, B, T);
    const [M, V, x] = [B * T, this.V, this.logits];
    let sum = 0;
    for (let m = 0, row = 0; m < M; m++, row += V) {
      const correct = x[row + targets[m]];
      sum += softmax(x, row, V) - correct;
      x[row + targets[m]] -= 1;
      for (let i = row; i < row + V; i++) x[i] /= M;
    }
    return sum / M;
  }

  /** Leave the gradient of the last loss in the grad of every weight: `forward`, from its last line to its first. */
  backward(B, T) {
    const { n_head: H, n_embd: C, residual } = this.shape;
    const [M, table, d] = [B * T, this.table, this.d];
    this.grad.fill(0);
    linearBackward(this.logits, this.y, table, d.y, M);
    normBackward(d.y, this.y, this.r, d.x, M, C);
    for (const [i, one] of Array.from(this.layers.entries()).reverse()) {
      linearBackward(d.x, one.a, this.weight(i, "mlp.down"), d.a, M);
      relu2Backward(d.a, one.h, M * 4 * C);
      linearBackward(d.a, one.x2, this.weight(i, "mlp.up"), d.y, M);
      normBackward(d.y, one.x2, one.r2, d.x, M, C, residual); // x = x + f(x): dx stays, and f adds its part
      linearBackward(d.x, one.o, this.weight(i, "mixer.output"), d.o, M);
      attendBackward(one, d, B, T, this.shape);
      // A turn changes no length, so the norm's derivative can be taken first, with the turned vectors.
      normBackward(d.q, one.q, one.rq, d.q, M * H, C / H);
      normBackward(d.k, one.k, one.rk, d.k, M * H, C / H);
      turn(d.q, this.angles, -1, M, T, H, C / H);
      turn(d.k, this.angles, -1, M, T, H, C / H);
      linearBackward(d.q, one.x1, this.weight(i, "mixer.query"), d.y, M);
      linearBackward(d.k, one.x1, this.weight(i, "mixer.key"), d.y, M, true);
      linearBackward(d.v, one.x1, this.weight(i, "mixer.value"), d.y, M, true);
      normBackward(d.y, one.x1, one.r1, d.x, M, C, residual);
    }
    for (let m = 0; m < M; m++) for (let c = 0; c < C; c++) table.grad[this.ids[m] * C + c] += d.x[m * C + c];
  }

  /** The number of each character; that after the last one for those that the model does not know. */
  encode(text) {
    return Array.from(text, (character) => this.numbers.get(character) ?? this.characters.length);
  }

  /** The id that follows: drawn from softmax(logits / temperature), or at temperature 0 the most probable one. */
  sample(ids, temperature, random) {
    const read = ids.slice(-this.shape.block_size);
    this.forward(read, 1, read.length);
    const last = (read.length - 1) * this.V;
    const x = this.logits.subarray(last, last + this.V - 1); // without the unknown character
    if (!temperature) return x.indexOf(Math.max(...x));
    for (let i = 0; i < x.length; i++) x[i] /= temperature;
    softmax(x, 0, x.length);
    let i = 0;
    for (let rest = random() - x[0]; rest >= 0 && i < x.length - 1; rest -= x[i]) i++;
    return i;
  }
}

// --- an optimizer ---------------------------------------------------------------------------------------------

/** Steps of about the same size for all weights: the mean gradient, divided by its usual size (arXiv:1711.05101). */
class AdamW {
  constructor(model, betas = [0.9, 0.99], decay = 0.1) {
    Object.assign(this, { model, betas, decay, steps: 0 });
    this.m = new Float32Array(model.size);
    this.v = new Float32Array(model.size);
  }

  step(rate) {
    const { m, v, decay, model } = this;
    const { data, grad } = model;
    const [one, two] = this.betas;
    this.steps++;
    const [seenByMean, seenBySize] = [1 - one ** this.steps, 1 - two ** this.steps];
    let length = 0;
    for (let i = 0; i < grad.length; i++) length += grad[i] * grad[i];
    const clip = Math.min(1, 1 / Math.sqrt(length)); // so that one odd batch cannot undo what was learned
    for (let i = 0; i < data.length; i++) {
      const g = grad[i] * clip;
      m[i] = one * m[i] + (1 - one) * g;
      v[i] = two * v[i] + (1 - two) * g * g;
      data[i] -= rate * (m[i] / seenByMean / (Math.sqrt(v[i] / seenBySize) + 1e-8) + decay * data[i]);
    }
  }
}
