"use strict";
/* The stream: what the model would say after each layer, and how much each part adds. */

function streamPanel(session) {
  const L = session.data.config.n_layer;
  const heading = element("p");
  const rows = element("tbody");
  bodyOf("stream").append(
    heading,
    element("div", { class: "scroll" }, element("table", {},
      element("caption", {}, "Lengths are those of the vectors, |x| = sqrt(x₁² + x₂² + ...)."),
      element("thead", {}, element("tr", {}, ...["", "the five best predictions, if the rest did nothing", "length", ""].map(
        (name, i) => element("th", { scope: "col", class: i === 2 ? "number" : undefined }, name)))),
      rows)),
  );

  session.onChange(whenVisible("stream", () => {
    const position = session.selected;
    const { stream, added } = session.norms(position);
    const longest = Math.max(...stream, ...added.flat());
    const follows = session.read[position + 1];
    heading.replaceChildren("At ", tokenOf(session, session.read[position]), ` (position ${position})`,
      follows === undefined ? ", the last token:" : ", which is followed by ",
      ...(follows === undefined ? [] : [tokenOf(session, follows), ":"]));
    const line = (name, predictions, length, kind) => element("tr", {},
      element("th", { scope: "row" }, name),
      element("td", {}, ...predictions.map(({ token, p }) => element("span", {
        class: token === follows ? "choice right" : "choice",
      }, tokenOf(session, token), ` ${percent(p)}`))),
      element("td", { class: "number" }, length.toFixed(2)),
      element("td", { class: "wide" }, bar({ [kind]: length / longest })));
    const lines = [line("embedding", session.early(0, position), stream[0], "stream")];
    for (let layer = 0; layer < L; layer++) {
      lines.push(
        line(`+ attention ${layer + 1}`, [], added[layer][0], "attention"),
        line(`+ feed-forward ${layer + 1}`, [], added[layer][1], "mlp"),
        line(`after layer ${layer + 1}`, session.early(layer + 1, position), stream[layer + 1], "stream"),
      );
    }
    rows.replaceChildren(...lines);
  }));
}
