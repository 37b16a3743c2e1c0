"use strict";
/*
 * The whole model in one picture. Each token has a band, its stream, as wide as its vector is long; it rises through
 * all layers. Beside the band of the selected token stand the parts that add to it, and strands lead from each head to
 * the tokens that it reads. A click opens a part.
 */

const PICTURE = { layer: 96, top: 26, node: 30 }; // pixels
const LETTER_WIDTH = 7.3; // of the labels, some of which are turned by 40 degrees

/** Where everything stands, for a picture of this width. */
function placesOf(session, width) {
  const { n_layer: L, n_head: H } = session.data.config;
  const columns = Math.min(H, width < 480 ? 4 : 8);
  const longest = (many) => Math.max(...many.map((one) => Array.from(one).length));
  const said = Array.from({ length: L + 1 }, (_, l) => session.label(session.early(l, session.selected)[0].token));
  const side = Math.max(columns * PICTURE.node + 12, 118, Math.min(LETTER_WIDTH * (longest(said) + 7) + 14, width / 2));
  const layer = PICTURE.layer + PICTURE.node * (Math.ceil(H / columns) - 1);
  const position = session.selected;
  const count = Math.min(position + 1, Math.max(3, Math.floor((width - side) / 38)));
  const first = position - count + 1;
  const labels = session.read.slice(first, position + 1).map((token) => session.label(token));
  const margin = Math.max(0, 0.77 * LETTER_WIDTH * longest(labels.slice(0, 2)) - 14); // the first labels end left of it
  const step = Math.min(72, (width - side - margin) / count);
  const bottom = 34 + 0.65 * LETTER_WIDTH * longest(labels);
  const height = PICTURE.top + bottom + L * layer;
  const x = (t) => margin + (t - first + 0.5) * step;
  const y = (l) => height - bottom - l * layer;
  const right = x(position) + step / 2;
  return {
    ...{ first, step, height, x, y, layer, right, position },
    head: (l, h) => [right + 18 + (h % columns) * PICTURE.node, y(l) - 28 - Math.floor(h / columns) * PICTURE.node],
    feed: (l) => [right + 44, y(l + 1) + 28],
  };
}

function wholePanel(session) {
  const { n_layer: L, n_head: H } = session.data.config;
  const drawing = svg("svg", { "aria-hidden": "true" });
  const bands = element("div", { role: "group", "aria-label": "Tokens; choose one" });
  const nodes = element("div", { role: "group", "aria-label": "Parts of the model; choose one to open it" });
  const made = element("div", { class: "picture" }, drawing, bands, nodes);
  const opened = element("div", { class: "part", "aria-live": "polite" });
  bodyOf("whole").append(element("div", { class: "beside" }, made, opened));
  arrowKeys(bands);
  arrowKeys(nodes);
  let part = { kind: "head" }; // a head; or with a layer, a feed-forward part or the stream

  const open = (kind, layer, head) => {
    part = { kind, layer };
    if (kind === "head") session.chooseHead(layer, head);
    else session.changed();
  };
  session.openHead = (layer, head) => {
    open("head", layer, head);
    document.getElementById("whole").scrollIntoView();
    nodes.querySelector(`[data-part="head ${layer} ${head}"]`)?.focus({ preventScroll: true });
  };
  const node = (kind, layer, head, [left, top], name, words) => {
    const [openLayer, openHead] = part.kind === "head" ? session.head : [part.layer];
    const isOpen = part.kind === kind && openLayer === layer && openHead === head;
    const off = session.off.has(`${layer}.${head}`);
    const made = button(words, () => open(kind, layer, head), {
      class: `node-${kind}${off ? " off" : ""}`,
      "aria-label": name,
      "aria-pressed": String(isOpen),
      "data-part": [kind, layer, head].join(" ").trim(),
      tabindex: isOpen ? 0 : -1,
    });
    [made.style.left, made.style.top] = [`${left}px`, `${top}px`];
    return made;
  };

  const draw = () => {
    if (!session.headChosen) session.head = loudest(session).head;
    const width = made.clientWidth;
    const place = placesOf(session, width);
    const { selected } = session;
    const lengths = new Map();
    for (let t = place.first; t <= selected; t++) lengths.set(t, session.norms(t));
    const longest = Math.max(...Array.from(lengths.values(), ({ stream }) => Math.max(...stream)));
    const scale = (0.42 * place.step) / longest;
    made.style.height = `${place.height}px`;
    for (const [name, value] of Object.entries({ width, height: place.height })) drawing.setAttribute(name, value);
    drawing.replaceChildren(fading());
    for (const [t, { stream }] of lengths) {
      const kind = t === selected ? "band now" : "band";
      drawing.append(svg("path", { d: bandPath(place, t, stream, scale), class: kind }));
      const label = { transform: `translate(${place.x(t) + 4} ${place.y(0) + 16}) rotate(-40)`, "text-anchor": "end" };
      drawing.append(svg("text", label, session.label(session.read[t])));
    }
    for (let l = 0; l < L; l++) {
      const { added } = lengths.get(selected);
      for (let h = 0; h < H; h++) drawing.append(...strands(session, place, l, h));
      drawing.append(joint(place, l, 0.42, added[l][0] * scale), joint(place, l, 0.8, added[l][1] * scale));
    }
    drawing.append(...drawing.querySelectorAll(".strand.now")); // above the others
    const columns = Array.from(lengths.keys(), (t) => {
      const name = `${session.label(session.read[t])}, position ${t + 1}`;
      const one = button("", () => session.select(t), { "aria-label": name, title: name, "data-position": t });
      one.tabIndex = t === selected ? 0 : -1;
      [one.style.left, one.style.width] = [`${place.x(t) - place.step / 2}px`, `${place.step}px`];
      return one;
    });
    refill(bands, ...columns);
    const heads = Array.from({ length: L * H }, (_, i) => [Math.floor(i / H), i % H]);
    const said = (l) => {
      const [{ token, p }] = session.early(l, selected);
      return [`${session.label(token)} ${percent(p)}`, l ? `stream after layer ${l}` : "embedding"];
    };
    const stops = document.activeElement?.dataset.part;
    nodes.replaceChildren(
      ...Array.from({ length: L + 1 }, (_, l) => {
        const [words, name] = said(l);
        return node("stream", l, undefined, [place.right + 6, place.y(l)], `${name}: ${words}`, words);
      }),
      ...heads.map(([l, h]) => node("head", l, h, place.head(l, h), `head ${h + 1} of layer ${l + 1}`, h + 1)),
      ...Array.from({ length: L }, (_, l) =>
        node("feed", l, undefined, place.feed(l), `feed-forward part of layer ${l + 1}`, "feed-forward"),
      ),
    );
    if (stops) nodes.querySelector(`[data-part="${stops}"]`)?.focus({ preventScroll: true });
    opened.replaceChildren(...openedPart(session, part));
  };
  const changed = whenVisible("whole", draw);
  session.onChange(changed);
  new ResizeObserver(changed).observe(made);
}

/** The colour of the bands, which becomes stronger on the way up. */
function fading() {
  const stops = [0, 1].map((offset) => svg("stop", { offset, class: offset ? "below" : "above" }));
  return svg("linearGradient", { id: "rising", x1: 0, x2: 0, y1: 0, y2: 1 }, ...stops);
}

/** The outline of a token's band: as wide at each layer as its vector is long. */
function bandPath({ x, y }, t, stream, scale) {
  const side = (sign, l) => `${x(t) + sign * Math.max(1, stream[l] * scale)}`;
  const curve = (sign, from, to) => {
    const middle = (y(from) + y(to)) / 2;
    return ` C ${side(sign, from)} ${middle}, ${side(sign, to)} ${middle}, ${side(sign, to)} ${y(to)}`;
  };
  const last = stream.length - 1;
  const up = stream.slice(1).map((_, l) => curve(-1, l, l + 1));
  const down = stream.slice(1).map((_, i) => curve(1, last - i, last - i - 1));
  return `M ${side(-1, 0)} ${y(0)}${up.join("")} L ${side(1, last)} ${y(last)}${down.join("")} Z`;
}

/** The strands of a head: to each token that it reads, the thicker the more weight. */
function strands(session, place, layer, head) {
  const [left, top] = place.head(layer, head);
  const row = session.attention(layer, head)[session.selected];
  const isChosen = session.head[0] === layer && session.head[1] === head;
  const off = session.off.has(`${layer}.${head}`);
  return Array.from(row.entries())
    .filter(([s, weight]) => s >= place.first && weight > 0.04 && !off)
    .map(([s, weight]) => {
      const [x, y] = [place.x(s), place.y(layer)];
      const curve = `M ${left} ${top} C ${(left + x) / 2} ${top - 8}, ${x} ${top}, ${x} ${y}`;
      const opacity = isChosen ? 0.5 + 0.5 * weight : 0.2 + 0.4 * weight;
      const look = { "stroke-width": 1 + 7 * weight, "stroke-opacity": opacity };
      return svg("path", { d: curve, class: isChosen ? "strand now" : "strand", ...look });
    });
}

/** What a part adds flows into the band of the selected token, at this height within its layer. */
function joint({ x, y, right, layer, position }, l, height, width) {
  const at = y(l) - layer * height;
  const middle = right - 4;
  const curve = `M ${right + 14} ${at + 14} C ${middle} ${at + 12}, ${middle} ${at - 4}, ${x(position)} ${at - 12}`;
  return svg("path", { d: curve, class: "joint", "stroke-width": Math.max(1, width) });
}
