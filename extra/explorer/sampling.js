"use strict";
/*
 * From logits to one token: temperature, top-k, top-p and min-p, and the random number that decides.
 * The formulas of text/decoding/sampling.py, in the same order.
 */

const ROUNDING = 1e-6; // of ln p in float32: so that 0.5 + 0.3 reaches 0.8

/** ln p of each token: x_i - ln sum_j e^(x_j). */
function logSoftmax(logits) {
  const highest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const logTotal = highest + Math.log(sum(Float64Array.from(logits, (x) => Math.exp(x - highest))));
  return Float64Array.from(logits, (x) => x - logTotal);
}

/**
 * Sharpen or flatten the distribution, then remove improbable tokens: (V) -> (V) probabilities, 0 where removed.
 *   1. temperature T: p_i becomes p_i^(1/T), so ln p_i is divided by T; at 0 only the best token stays
 *   2. top-k: the k most probable tokens stay (0: all)
 *   3. top-p: of these the smallest set with at least this total probability stays (1: all)
 *   4. min-p: tokens with at least this fraction of the largest probability stay (0: all)
 * Among equal ones, lower ids stay.
 */
function filterTokens(logProbs, { temperature, topK, topP, minP }, forbidden = []) {
  let values = Float64Array.from(logProbs);
  for (const token of forbidden) values[token] = -Infinity;
  const highest = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (temperature === 0) {
    const best = values.indexOf(highest);
    return values.map((_, i) => (i === best ? 1 : 0));
  }
  values = values.map((value) => (value - highest) / temperature);
  const order = Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b); // best first
  let count = topK > 0 ? Math.min(topK, order.length) : order.length;
  if (topP < 1) {
    const powers = order.slice(0, count).map((token) => Math.exp(values[token]));
    const enough = (topP - ROUNDING) * sum(powers);
    let [total, n] = [0, 0];
    while (n < count && total < enough) total += powers[n++];
    count = Math.max(n, 1);
  }
  const kept = new Float64Array(values.length);
  for (const token of order.slice(0, count)) {
    if (minP === 0 || values[token] >= Math.log(minP) - ROUNDING) kept[token] = Math.exp(values[token]);
  }
  const total = sum(kept);
  return kept.map((value) => value / total);
}

/**
 * The token whose interval holds the number u: the probabilities, in the order of the ids, divide 0 .. 1 into one
 * interval for each token. Returns the token, and where its interval begins and ends.
 */
function draw(probabilities, u) {
  let [begin, last] = [0, null];
  for (let token = 0; token < probabilities.length; token++) {
    const end = begin + probabilities[token];
    if (probabilities[token] > 0) last = { token, begin, end };
    if (u < end) return last;
    begin = end;
  }
  return last; // u is 1, or rounding left a gap there
}
