"use strict";
/* Arcs over the text of the stage: where the head looks that says most for the token that comes next. */

/**
 * The head that brings most from other tokens for the best next one, and what that adds to its logit; the chosen head
 * where the stream is not a sum of parts, or is not in the page.
 */
function loudest(session) {
  const position = session.selected;
  const state = [session.state, position, session.head].join();
  if (session.loud?.state === state) return session.loud; // two panels ask
  const [{ token }] = best(session.probabilities(position), 1);
  const parts = session.live ? partsOf(session.model(), fromOthers(session, position), token) : null;
  const heads = parts?.filter(({ head }) => head) ?? [];
  const [most] = heads.sort((a, b) => b.value - a.value);
  const head = most?.head ?? session.head;
  session.loud = { state, token, head, value: most?.value, row: session.attention(...head)[position] };
  return session.loud;
}

/** What was computed at a position, with heads that have returned only the values of the tokens before it. */
function fromOthers(session, position) {
  const { n_head: H, n_kv_head: G, head_dim: D } = session.data.config;
  const seen = session.seen[position];
  const heads = seen.heads.map((joined, layer) => {
    const own = session.cache[layer].values[position];
    const weight = (head) => (session.off.has(`${layer}.${head}`) ? 0 : seen.attention[layer][head][position]);
    const part = (head, d) => weight(head) * own[Math.floor((head * G) / H)][d];
    return joined.map((value, i) => value - part(Math.floor(i / D), i % D));
  });
  return { ...seen, heads };
}

function saying(session, { token, head, value }) {
  const name = button(headName(...head), () => session.openHead(...head), { class: "link" });
  if (value === undefined) return ["Arcs: where ", name, " looks."];
  return ["The arcs: ", name, " brings most for ", tokenOf(session, token), "."];
}

/** Draw arcs from the selected token to those that it looks at; spans are the elements of the tokens that are read. */
function drawArcs(drawing, mirror, spans, { row }) {
  const origin = mirror.getBoundingClientRect();
  const place = (span) => {
    const box = span.getClientRects()[0];
    return box && [(box.left + box.right) / 2 - origin.left, box.top - origin.top];
  };
  const from = spans.length >= row.length && place(spans[row.length - 1]);
  drawing.replaceChildren();
  if (!from) return;
  row.forEach((weight, s) => {
    const to = weight > 0.03 && s < row.length - 1 && place(spans[s]);
    if (!to) return;
    const top = Math.min(from[1], to[1]);
    const lift = from[1] === to[1] ? Math.min(26, 8 + Math.abs(from[0] - to[0]) / 6) : 26;
    const curve = `M ${from} C ${from[0]} ${top - lift}, ${to[0]} ${top - lift}, ${to}`;
    const look = { "stroke-width": 1.5 + 5 * weight, "stroke-opacity": 0.3 + 0.7 * weight };
    drawing.append(svg("path", { d: curve, class: "arc", pathLength: 1, ...look }));
    drawing.append(svg("circle", { cx: to[0], cy: to[1], r: 2 + 3 * weight }));
  });
}
