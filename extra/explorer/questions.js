"use strict";
/*
 * The questions of the tour. Each belongs to a panel, which shows the answer after the guess, and is answered by the
 * model of this page: {question, choices: [[words, is right], ...], answer}.
 */

const LONGEST_CHOICE = 40; // tokens or characters to choose from

const QUESTIONS = {
  text(session) {
    const count = session.read.length;
    const characters = Array.from(session.text(session.read)).length;
    const others = [characters, Math.ceil(characters / 6), 2 * count, count + 3].filter((n) => n > 0 && n !== count);
    const numbers = [count, ...new Set(others)].slice(0, 4).sort((a, b) => a - b);
    return {
      question: "In how many tokens does the model read this text?",
      choices: numbers.map((n) => [grouped(n), n === count]),
      answer: `${counted(count, "token")} for ${counted(characters, "character")}.`,
    };
  },

  next(session) {
    const ranked = best(session.probabilities(session.selected), 10);
    const offered = [0, 2, 5, 9].filter((rank) => rank < ranked.length).map((rank) => ranked[rank]);
    return {
      question: "Which token is the most probable one after this text?",
      choices: shuffled(offered.map((one) => [session.label(one.token), one === ranked[0]])),
      answer: `${session.label(ranked[0].token)}, with ${percent(ranked[0].p)}.`,
    };
  },

  attention(session) {
    const row = session.attention(...session.head)[session.selected];
    const first = Math.max(0, row.length - LONGEST_CHOICE);
    const [{ token: at, p }] = best(row.slice(first), 1);
    return {
      question: `At which token does the last one look most, in ${headName(...session.head)}?`,
      choices: session.read.slice(first).map((token, i) => [session.label(token), i === at]),
      answer: `At ${session.label(session.read[first + at])}, position ${first + at + 1}: ${percent(p)} of the weight.`,
    };
  },

  stream(session) {
    const L = session.data.config.n_layer;
    const early = Array.from({ length: L + 1 }, (_, l) => session.early(l, session.selected)[0].token);
    const layer = early.indexOf(early[L]);
    return {
      question: `If the rest did nothing: where is ${session.label(early[L])} the best for the first time?`,
      choices: early.map((_, l) => [l ? `after layer ${l}` : "in the embedding", l === layer]),
      answer: layer ? `After layer ${layer} of ${L}.` : "In the embedding: before any layer.",
    };
  },

  wanted(session) {
    const [{ token }] = best(session.probabilities(session.selected), 1);
    const parts = partsOf(session.model(), session.seen[session.selected], token);
    if (!parts) return null;
    const [most] = parts.sort((a, b) => b.value - a.value);
    const kinds = [["a head", most.head], ["a feed-forward part", most.feed !== undefined]];
    kinds.push(["something else", !most.head && most.feed === undefined]);
    return {
      question: `Who speaks loudest for ${session.label(token)}?`,
      choices: kinds.map(([words, isRight]) => [words, Boolean(isRight)]),
      answer: `The ${most.name}: it adds ${most.value.toFixed(2)} to the logit.`,
    };
  },

  surprise(session) {
    const { characters, bits } = characterBits(session);
    const first = Math.max(0, characters.length - LONGEST_CHOICE);
    const highest = Math.max(...bits.slice(first));
    if (!(highest > 0)) return null;
    const at = bits.lastIndexOf(highest);
    return {
      question: "Which character was the hardest to foresee?",
      choices: characters.slice(first).map((character, i) => [visible(character), first + i === at]),
      answer: `${visible(characters[at])}, with ${highest.toFixed(1)} bits.`,
    };
  },
};

function shuffled(list) {
  return list.map((one) => [Math.random(), one]).sort((a, b) => a[0] - b[0]).map(([, one]) => one);
}
