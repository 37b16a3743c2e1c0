"use strict";
/* The stream: what the model would say after each layer, and how much each part adds. */

function streamPanel(session) {
  const L = session.data.config.n_layer;
  const heading = element("p");
  const rows = element("div", { class: "rows", role: "table", "aria-label": "The stream, layer by layer" });
  bodyOf("stream").append(
    heading,
    element(
      "p",
      { class: "soft" },
      "Bars and numbers are the lengths of vectors, |x| = sqrt(x₁² + x₂² + ...): grey, the ",
      "stream; in colour, what a part adds to it. Below the stream, what it would predict: its five best tokens.",
    ),
    rows,
  );

  session.onChange(
    whenVisible("stream", () => {
      const position = session.selected;
      const { stream, added } = session.norms(position);
      const longest = Math.max(...stream, ...added.flat());
      const follows = session.read[position + 1];
      heading.replaceChildren(
        "At ",
        tokenOf(session, session.read[position]),
        ` (position ${position})`,
        ...(follows === undefined
          ? [", the last token:"]
          : [", which is followed by ", tokenOf(session, follows), ":"]),
      );
      const line = (name, length, kind, layer) =>
        element(
          "div",
          { role: "row" },
          element("span", { role: "rowheader" }, name),
          element("span", { role: "cell" }, bar({ [kind]: length / longest })),
          element("span", { role: "cell", class: "number" }, length.toFixed(2)),
          ...(layer === undefined ? [] : [said(layer)]),
        );
      const said = (layer) =>
        element(
          "span",
          { role: "cell", class: "said" },
          ...session.early(layer, position).map((one) => choiceOf(session, one, follows)),
        );
      const lines = [line("embedding", stream[0], "stream", 0)];
      for (let layer = 0; layer < L; layer++) {
        lines.push(
          line(`attention ${layer + 1}`, added[layer][0], "attention"),
          line(`feed-forward ${layer + 1}`, added[layer][1], "mlp"),
          line(`after layer ${layer + 1}`, stream[layer + 1], "stream", layer + 1),
        );
      }
      rows.replaceChildren(...lines);
    }),
  );
}
