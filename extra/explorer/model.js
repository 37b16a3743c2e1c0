"use strict";
/*
 * The GPT of this page: the same formulas as gpt/model.py and tinygrad_lite/transformer.py, for one position at a time.
 *
 *   token -> embedding (+ position) -> n_layer blocks -> norm -> logits (V)
 *
 * C width (n_embd)   H heads   G heads of keys and values   D width of a head   F width of the feed-forward part
 * V vocabulary       t the position that is computed now; it sees the positions 0 .. t
 *
 * A vector is an array of numbers. A weight is {shape, data}: a matrix of shape (rows, columns), row after row.
 */

// --- maps of one vector ---------------------------------------------------------------------------------------

/** y = W x + b: (columns) -> (rows). tinygrad_lite/functional/linear.py */
function linear(x, weight, bias) {
  const [rows, columns] = weight.shape;
  const w = weight.data;
  const y = new Float64Array(rows);
  for (let r = 0, i = 0; r < rows; r++) {
    let sum = bias ? bias.data[r] : 0;
    for (let c = 0; c < columns; c++) sum += w[i++] * x[c];
    y[r] = sum;
  }
  return y;
}

/** Mean 0 and variance 1, then gain and shift: y = (x - mean) / sqrt(var + eps) * weight + bias. */
function layerNorm(x, weight, bias, eps) {
  const mean = sum(x) / x.length;
  const centred = x.map((value) => value - mean);
  const r = 1 / Math.sqrt(dot(centred, centred) / x.length + eps);
  return centred.map((value, i) => value * r * weight.data[i] + (bias ? bias.data[i] : 0));
}

/** Size 1: y = x / sqrt(mean(x^2) + eps) * weight; the gain may be missing. */
function rmsNorm(x, weight, eps) {
  const r = 1 / Math.sqrt(dot(x, x) / x.length + eps);
  return x.map((value, i) => value * r * (weight ? weight.data[i] : 1));
}

/**
 * Turn the points (x_i, x_(i + D/2)) of a head by the angles t f_i: scores then depend on distances.
 * tinygrad_lite/functional/rotary.py
 */
function rotary(x, t, frequencies) {
  const half = x.length / 2;
  const y = new Float64Array(x.length);
  for (let i = 0; i < half; i++) {
    const [cos, sin] = [Math.cos(t * frequencies[i]), Math.sin(t * frequencies[i])];
    y[i] = x[i] * cos - x[i + half] * sin;
    y[i + half] = x[i + half] * cos + x[i] * sin;
  }
  return y;
}

/** The fixed position code: PE[t, 2i] = sin(t / 10000^(2i/C)), PE[t, 2i+1] = cos of the same. */
function sinusoidal(t, width) {
  const code = new Float64Array(width);
  for (let i = 0; i < width; i++) {
    const angle = t * 10000 ** (-(i - (i % 2)) / width);
    code[i] = i % 2 ? Math.cos(angle) : Math.sin(angle);
  }
  return code;
}

/** What happens between the two matrices of a feed-forward part, number by number. */
const ACTIVATIONS = {
  gelu: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2,
  gelu_tanh: (x) => (x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))) / 2,
  relu: (x) => Math.max(x, 0),
  relu2: (x) => Math.max(x, 0) ** 2,
  swiglu: (x) => x / (1 + Math.exp(-x)), // of the gate; see feedForward
  linear: (x) => x,
};

/** erf to seven digits. Abramowitz, Stegun 1964, formula 7.1.26. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const factors = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
  const polynomial = factors.reduce((value, factor) => (value + factor) * t, 0);
  return Math.sign(x) * (1 - polynomial * Math.exp(-x * x));
}

/** p_i = e^(x_i) / sum_j e^(x_j). The largest is subtracted first, so that nothing overflows. */
function softmax(x) {
  const highest = x.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = x.map((value) => Math.exp(value - highest));
  const total = sum(powers);
  return powers.map((value) => value / total);
}

function sum(x) {
  let total = 0;
  for (const value of x) total += value;
  return total;
}

function dot(x, y) {
  let total = 0;
  for (let i = 0; i < x.length; i++) total += x[i] * y[i];
  return total;
}

function add(x, y) {
  return x.map((value, i) => value + y[i]);
}

/** The length of a vector: |x| = sqrt(x_1^2 + x_2^2 + ...). */
function norm(x) {
  return Math.sqrt(dot(x, x));
}

// --- the model ------------------------------------------------------------------------------------------------

class GPT {
  /**
   * @param config the settings of gpt/config.py, and head_dim, scale and frequencies computed from them
   * @param weights by name, as in a checkpoint: weights["blocks.0.mixer.query.weight"] = {shape, data}
   */
  constructor(config, weights) {
    this.config = config;
    this.weights = weights;
  }

  /** Of each layer the keys and values of the positions so far, each of G heads of D numbers; at first none. */
  newCache() {
    return Array.from({ length: this.config.n_layer }, () => ({ keys: [], values: [] }));
  }

  /**
   * Read one token after those in the cache: the logits of the next one (V).
   *
   * Returns also what was computed on the way: logits; attention[layer][head], t + 1 weights; queries[layer][head] (D);
   * heads[layer], what the heads return side by side (H D); stream[layer], what each block reads, and last what the last
   * one returns; added[layer], what attention and feed-forward part return.
   *
   * @param off the heads that are switched off, as a set of names such as "2.0": layer 2, head 0
   * @param patch {layer, x}: the stream x that this layer reads instead of the model's own
   */
  predict(token, cache, off = new Set(), patch = null) {
    const seen = { attention: [], queries: [], heads: [], stream: [], added: [] };
    let x = this.embed(token, cache[0].keys.length);
    for (let layer = 0; layer < this.config.n_layer; layer++) {
      if (patch?.layer === layer) x = patch.x;
      seen.stream.push(x);
      x = this.block(x, layer, cache[layer], off, seen);
    }
    seen.stream.push(x);
    seen.logits = this.read(x);
    return seen;
  }

  /** What the token is, plus where it stands, unless attention says that or nothing does: -> (C). */
  embed(token, t) {
    const x = this.row("token_embedding.weight", token);
    if (this.config.positions === "learned") return add(x, this.row("position_embedding.weight", t));
    if (this.config.positions !== "sinusoidal") return x;
    const lifted = x.map((value) => value * Math.sqrt(x.length)); // to the scale of the codes
    return add(lifted, sinusoidal(t, x.length));
  }

  /**
   * One layer: (C) -> (C).
   *   norm first:  x = x + attention(norm(x)),  x = x + feedForward(norm(x))
   *   otherwise:   x = norm(x + attention(x)),  x = norm(x + feedForward(x))
   */
  block(x, layer, cache, off, seen) {
    const name = `blocks.${layer}`;
    const parts = [
      ["mixer_norm", (input) => this.attention(input, `${name}.mixer`, layer, cache, off, seen)],
      ["mlp_norm", (input) => this.feedForward(input, `${name}.mlp`)],
    ];
    seen.added.push([]);
    for (const [normName, part] of parts) {
      const y = part(this.config.norm_first ? this.norm(x, `${name}.${normName}`) : x);
      seen.added[layer].push(y);
      const result = this.config.residual ? add(x, y) : y;
      x = this.config.norm_first ? result : this.norm(result, `${name}.${normName}`);
    }
    return x;
  }

  /**
   * Each head looks at all positions so far and returns a mean of their values, weighted by how well they match.
   *   p = softmax(scale q K^T),  y = p V;   the heads side by side go through one more matrix: (H D) -> (C)
   * With fewer heads of keys and values, H / G queries share one.
   */
  attention(x, name, layer, cache, off, seen) {
    this.remember(x, name, cache);
    const isOff = (head) => off.has(`${layer}.${head}`);
    const { queries, weights, joined, y } = this.attend(x, name, cache.keys.length - 1, cache, isOff);
    seen.attention.push(weights);
    seen.queries.push(queries);
    seen.heads.push(joined);
    return y;
  }

  /** Append the keys and values of the next position to those in the cache. */
  remember(x, name, cache) {
    cache.keys.push(this.heads(this.map(x, `${name}.key`), `${name}.key_norm`, cache.keys.length));
    cache.values.push(cut(this.map(x, `${name}.value`), this.config.head_dim));
  }

  /** What position t gets from all positions in the cache, by head and (y) as a vector (C). */
  attend(x, name, t, cache, isOff = () => false) {
    const { n_head: H, n_kv_head: G, head_dim: D, scale } = this.config;
    const queries = this.heads(this.map(x, `${name}.query`), `${name}.query_norm`, t);
    const joined = new Float64Array(H * D);
    const weights = queries.map((query, head) => {
      const group = Math.floor(head / (H / G));
      const p = softmax(cache.keys.map((key) => dot(query, key[group]) * scale));
      for (let s = 0; s < p.length && !isOff(head); s++) { // of a head that is off, the part of `joined` stays 0
        const value = cache.values[s][group];
        for (let d = 0; d < D; d++) joined[head * D + d] += p[s] * value[d];
      }
      return Float32Array.from(p);
    });
    return { queries, weights, joined, y: this.map(joined, `${name}.output`) };
  }

  /** (H D) -> H vectors of D numbers: queries or keys, after their norm and their turn, where the model has these. */
  heads(x, normName, t) {
    const { head_dim, qk_norm, norm_eps, positions, frequencies } = this.config;
    return cut(x, head_dim).map((head) => {
      if (qk_norm) head = rmsNorm(head, this.weights[`${normName}.weight`], norm_eps);
      return positions === "rotary" ? rotary(head, t, frequencies) : head;
    });
  }

  /** y = activation(x W1 + b1) W2 + b2, with a gate silu(x Wg) * x W1 for swiglu: (C) -> (F) -> (C). */
  feedForward(x, name) {
    const activate = ACTIVATIONS[this.config.activation];
    let hidden = this.map(x, `${name}.up`);
    if (this.config.activation === "swiglu") {
      const gate = this.map(x, `${name}.gate`);
      hidden = hidden.map((value, i) => activate(gate[i]) * value);
    } else {
      hidden = hidden.map(activate);
    }
    return this.map(hidden, `${name}.down`);
  }

  /** The logits that a stream stands for: (C) -> (V). Read early, it says what the model would predict so far. */
  read(x) {
    const tied = this.weights["lm_head.weight"] || this.weights["token_embedding.weight"];
    return linear(this.config.norm_first ? this.norm(x, "final_norm") : x, tied);
  }

  norm(x, name) {
    const [weight, bias] = [this.weights[`${name}.weight`], this.weights[`${name}.bias`]];
    if (this.config.norm === "rmsnorm") return rmsNorm(x, weight, this.config.norm_eps);
    return layerNorm(x, weight, bias, this.config.norm_eps);
  }

  map(x, name) {
    return linear(x, this.weights[`${name}.weight`], this.weights[`${name}.bias`]);
  }

  /** One row of a table. */
  row(name, index) {
    const { shape, data } = this.weights[name];
    return Float64Array.from(data.subarray(index * shape[1], (index + 1) * shape[1]));
  }
}

/** A vector in pieces of D numbers. */
function cut(x, D) {
  return Array.from({ length: x.length / D }, (_, i) => x.subarray(i * D, (i + 1) * D));
}
