"use strict";
/* The stream: what the model would say after each layer, and how much each part adds. */

function streamPanel(session) {
  const heading = element("p");
  const rows = element("div", { class: "rows", role: "table", "aria-label": "The stream, layer by layer" });
  bodyOf("stream").append(heading, rows);

  session.onChange(
    whenVisible("stream", () => {
      const position = session.selected;
      const { stream, added } = session.norms(position);
      const follows = session.read[position + 1];
      heading.replaceChildren("At ", tokenOf(session, session.read[position]), ` (position ${position + 1}):`);
      const said = (layer) => {
        const choices = session.early(layer, position).map((one) => choiceOf(session, one, follows));
        return [element("span", { role: "cell", class: "said" }, ...choices)];
      };
      rows.replaceChildren(...lengthRows(stream, added, said));
    }),
  );
}
