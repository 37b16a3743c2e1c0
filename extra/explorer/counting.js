"use strict";
/*
 * A model that only counts: six-grams of characters with Kneser-Ney smoothing, as in extra/studies/baselines.py, whose
 * description explains each idea.
 *
 *   P(w | h) = max(c(hw) - D, 0) / c(h) + D N(h) / c(h) * P'(w | h')
 *
 * c(hw) how often the context h was followed by w; c(h) by anything; N(h) by how many different characters; h' is h
 * without its first character, and P' counts after how many different characters, not how often. D = n1 / (n1 + 2 n2).
 */

const PORTION = 20000; // characters that are counted at once

class KneserNey {
  /** Nothing is counted yet: count() yields again and again, so that the page can answer meanwhile. */
  constructor(text, order, vocabSize) {
    this.order = order;
    this.vocabSize = vocabSize;
    this.levels = [];
    // Each character as one unit of a JavaScript string, which an emoji is not.
    const units = new Map(Array.from(new Set(text), (character, i) => [character, String.fromCharCode(i)]));
    this.unit = (character) => units.get(character) ?? "\uffff";
    this.text = Array.from(text, this.unit).join("");
  }

  *count() {
    for (let length = 1; length < this.order; length++) {
      // Each distinct n-gram that is longer by one is one character before this one.
      const longer = new Set();
      for (let i = 0; i + length < this.text.length; i++) {
        longer.add(this.text.slice(i, i + length + 1));
        if (i % PORTION === 0) yield;
      }
      const counts = new Map();
      for (const gram of longer) increase(counts, gram.slice(1), 1);
      this.levels.push(makeLevel(counts));
      yield;
    }
    const counts = new Map();
    for (let i = 0; i + this.order <= this.text.length; i++) {
      increase(counts, this.text.slice(i, i + this.order), 1);
      if (i % PORTION === 0) yield;
    }
    this.levels.push(makeLevel(counts));
  }

  /** P of each character of a text from those before it. */
  probabilities(text) {
    const units = Array.from(text, this.unit).join("");
    return Array.from(units, (w, i) => this.probability(w, units.slice(Math.max(0, i - this.order + 1), i)));
  }

  /** From the bottom up: 1 / V, then with 0, 1, 2 ... characters of context. */
  probability(w, context) {
    let p = 1 / this.vocabSize;
    for (const [length, level] of this.levels.slice(0, context.length + 1).entries()) {
      const h = context.slice(context.length - length);
      const total = level.totals.get(h);
      if (!total) break;
      const kept = Math.max((level.counts.get(h + w) ?? 0) - level.discount, 0);
      p = (kept + level.discount * level.followers.get(h) * p) / total;
    }
    return p;
  }
}

function increase(counts, key, by) {
  counts.set(key, (counts.get(key) ?? 0) + by);
}

/** What one order needs: the counts c(hw), their sums c(h), the numbers N(h), and the discount D. */
function makeLevel(counts) {
  const [totals, followers] = [new Map(), new Map()];
  let [once, twice] = [0, 0];
  for (const [gram, count] of counts) {
    increase(totals, gram.slice(0, -1), count);
    increase(followers, gram.slice(0, -1), 1);
    once += count === 1;
    twice += count === 2;
  }
  return { counts, totals, followers, discount: once && twice ? once / (once + 2 * twice) : 0.5 };
}
