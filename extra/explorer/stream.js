"use strict";
/* The stream: what the model would say after each layer, and how much each part adds. */

function streamPanel(session) {
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
      const follows = session.read[position + 1];
      heading.replaceChildren(
        "At ",
        tokenOf(session, session.read[position]),
        ` (position ${position + 1})`,
        ...(follows === undefined
          ? [", the last token:"]
          : [", which is followed by ", tokenOf(session, follows), ":"]),
      );
      const said = (layer) => [
        element(
          "span",
          { role: "cell", class: "said" },
          ...session.early(layer, position).map((one) => choiceOf(session, one, follows)),
        ),
      ];
      rows.replaceChildren(...lengthRows(stream, added, said));
    }),
  );
}
