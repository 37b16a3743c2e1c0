"use strict";
/* A part of the model, opened beside the picture: a head, a feed-forward part, or the stream between two layers. */

function openedPart(session, { kind, layer }) {
  if (kind === "head") return openedHead(session, ...session.head);
  const position = session.selected;
  const { stream, added } = session.norms(position);
  const said = (l) => element("p", {}, ...session.early(l, position).map((one) => choiceOf(session, one)));
  const spoken = spokenBy(session, { layer });
  if (kind === "stream") {
    return [
      element("h3", {}, layer ? `The stream after layer ${layer}` : "The embedding"),
      element("p", {}, `A vector of length ${stream[layer].toFixed(1)}. Read here, it predicts:`),
      said(layer),
      element("p", {}, goLink("stream", "all layers")),
    ];
  }
  return [
    element("h3", {}, `Layer ${layer + 1}, feed-forward`),
    element("p", {}, `Length ${added[layer][1].toFixed(1)}, added to a stream of ${stream[layer].toFixed(1)}. `, ...spoken),
    element("p", { class: "soft" }, "Before this layer:"),
    said(layer),
    element("p", { class: "soft" }, "After it:"),
    said(layer + 1),
  ];
}

function openedHead(session, layer, head) {
  const position = session.selected;
  const rows = session.attention(layer, head);
  const canvas = element("canvas");
  paintMap(canvas, rows);
  const seen = best(rows[position], 4).map(({ token: s, p }) => [tokenOf(session, session.read[s]), ` ${percent(p)}`]);
  const spoken = spokenBy(session, { layer, head });
  const name = `${layer}.${head}`;
  const controls = [];
  if (session.live) {
    const words = session.off.has(name) ? "Switch on" : "Switch off";
    controls.push(button(words, () => session.toggleHead(name), { class: "switch" }));
  }
  return [
    element("h3", {}, headName(layer, head).replace("layer", "Layer")),
    element("p", {}, tokenOf(session, session.read[position]), " looks at ", ...enumerated(seen), ". ", ...spoken),
    element("div", { class: "small-map" }, canvas),
    element("div", { class: "controls" }, ...controls, goLink("attention", "the map")),
  ];
}

function goLink(panel, words) {
  return element("a", { href: `#${panel}` }, words);
}

/** What a part adds to the logit of the best next token, where that can be said. */
function spokenBy(session, { layer, head }) {
  if (!session.live) return [];
  const [{ token }] = best(session.probabilities(session.selected), 1);
  const parts = partsOf(session.model(), session.seen[session.selected], token);
  const own = (one) => (head === undefined ? one.feed === layer : one.head?.[0] === layer && one.head[1] === head);
  const part = parts?.find(own);
  return part ? [`It adds ${signed(part.value)} to the logit of `, tokenOf(session, token), "."] : [];
}
