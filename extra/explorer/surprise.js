"use strict";
/* Surprise: the bits of every character, by the model and by a model that only counts. */

const BAR = 5; // rem, as in style.css

function surprisePanel(session) {
  const compare = session.data.compare;
  const counts = { begun: false, model: null }; // the six-gram model, once it has counted
  const summary = element("p", { "aria-live": "polite", id: "bits" });
  const cells = element("div", { class: "cells", role: "img", "aria-label": "Bits of every character" });
  const names = compare ? { first: "your model", second: `${compare.order}-grams of ${compare.name}` } : {};
  bodyOf("surprise").append(legend(names), summary, cells);

  const show = () => {
    if (compare && !counts.begun) countAll(compare, counts, changed);
    const own = characterBits(session);
    const other = counts.model?.probabilities(own.characters.join("")).map((p) => -Math.log2(p));
    const predicted = own.bits.map((bits, i) => (bits === null ? -1 : i)).filter((i) => i >= 0);
    const mean = (bits) => sum(predicted.map((i) => bits[i])) / Math.max(predicted.length, 1);
    let words = `${mean(own.bits).toFixed(3)} bits per character`;
    if (other) {
      words += `, ${mean(other).toFixed(3)} by counting ${compare.order}-grams, over the same `;
      words += `${predicted.length} characters`;
      const gain = predicted.map((i) => [other[i] - own.bits[i], i]).sort((a, b) => b[0] - a[0])[0];
      if (gain?.[0] > 1) {
        const before = own.characters.slice(Math.max(0, gain[1] - 12), gain[1]).join("");
        words +=
          `. The model gains most where “${visible(before)}” is followed by ` +
          `“${visible(own.characters[gain[1]])}”: ` +
          `${own.bits[gain[1]].toFixed(1)} bits instead of ${other[gain[1]].toFixed(1)}`;
      }
    } else if (compare) words += "; the six-grams are being counted";
    summary.textContent = words + ".";
    if (compare && !compare.isOwn) summary.textContent += ` (The model did not learn from ${compare.name}.)`;
    const highest = Math.max(8, ...predicted.map((i) => own.bits[i]), ...(other ? predicted.map((i) => other[i]) : []));
    cells.style.setProperty("--step", `${(2 * BAR) / highest}rem`);
    cells.replaceChildren(...own.characters.flatMap((one, i) => cell(one, own.bits[i], other?.[i], highest)));
  };
  const changed = whenVisible("surprise", show);
  session.onChange(changed);
}

/** One character with its bars; a line ends after a line break. */
function cell(character, bits, otherBits, highest) {
  const bars = element("span", { class: "bits" });
  for (const [kind, value] of Object.entries({ first: bits, second: otherBits })) {
    if (bits === null || value === undefined) continue;
    const one = element("span", { class: kind });
    one.style.height = `${(BAR * value) / highest}rem`;
    bars.append(one);
  }
  const words = bits === null ? "not predicted" : `${bits.toFixed(2)} bits`;
  const title = otherBits === undefined ? words : `${words}; counting: ${otherBits.toFixed(2)} bits`;
  const made = element("span", { class: "cell", title: `${visible(character)}: ${title}` }, visible(character), bars);
  return character === "\n" ? [made, element("span", { class: "break" })] : [made];
}

/**
 * The bits of each character of what the model reads: those of a token are shared evenly among its bytes, and a
 * character gets those of its own. null for what belongs to the first token, which nothing predicts.
 */
function characterBits(session) {
  const bytes = []; // the bits of every byte
  session.bits().forEach((bits, i) => {
    const piece = session.pieces[session.read[i]];
    piece.forEach(() => bytes.push(bits === null ? null : bits / piece.length));
  });
  const characters = Array.from(session.text(session.read));
  let at = 0;
  const bits = characters.map((character) => {
    const own = bytes.slice(at, (at += utf8(character).length));
    return own.includes(null) ? null : sum(own);
  });
  return { characters, bits };
}

/** Count in pieces, so that the page answers meanwhile. */
async function countAll(compare, counts, done) {
  counts.begun = true;
  await pause();
  const model = new KneserNey(compare.text, compare.order, compare.vocabSize);
  for (const _ of model.count()) await pause();
  counts.model = model;
  done();
}
