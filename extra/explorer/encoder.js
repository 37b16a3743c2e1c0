"use strict";
/*
 * A recorded walk through an encoder: a text or a picture, the attention of every layer and head, and the stream.
 * Everything here was computed in Python; extra/explorer/encoders.py says how.
 */

/** The tokens as buttons; pressing one calls choose(position). */
function tokenButtons(data, choose) {
  return data.tokens.map((text, t) =>
    button(visible(text), () => choose(t), {
      class: "token",
      title: `token ${data.ids[t]}, position ${t + 1}, segment ${data.segments[t] + 1}`,
    }),
  );
}

/** A table of names with their probabilities as bars; the right one, if it is known, is marked. */
function chances(caption, column, pairs, name, right = null) {
  const rows = pairs.map(([text, p]) =>
    element("tr", { class: text === right ? "chosen" : "" },
      element("td", {}, name(text), text === right ? " ← the true label" : ""),
      element("td", { class: "wide" }, bar({ kept: p })),
      element("td", { class: "number" }, percent(p))));
  return table(caption, [column, "share", "#probability"], element("tbody", {}, ...rows));
}

function streamPanel(data) {
  const heading = element("p");
  const rows = element("div", { class: "rows", role: "table", "aria-label": "The stream, layer by layer" });
  const positions = data.rows && positionsOf(data);
  const mean = (numbers) => numbers.reduce((all, number) => all + number / numbers.length, 0);
  const at = (numbers) => (walk.position === null ? mean(numbers) : numbers[walk.position]);
  bodyOf("stream").append(heading, rows);
  walk.listeners.push(() => {
    if (walk.position === null) heading.textContent = "The mean of the lengths at all patches:";
    else if (positions) heading.textContent = `${positions.chosenName()}:`;
    else heading.replaceChildren("At ", token(data.tokens[walk.position]), ` (position ${walk.position + 1}):`);
    const added = data.added.map((parts) => parts.map(at));
    rows.replaceChildren(...lengthRows(data.stream.map(at), added));
  });
}

const PANELS = {
  tokens: tokensPanel,
  words: wordsPanel,
  labels: labelsPanel,
  attention: attentionPanel,
  picture: picturePanel,
  looks: looksPanel,
  rollout: rolloutPanel,
  stream: streamPanel,
};

startAfterPaint((data) => {
  for (const panel of data.panels) PANELS[panel](data);
  moveTo(data.start);
  walkAlone(() => moveTo(((walk.position ?? -1) + 1) % data.shape[2]), data.shape[2]);
});
