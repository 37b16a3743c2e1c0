"use strict";
/* Where it looks: the weights of every head as maps and as arcs over the text, and what a head is good for. */

function attentionPanel(session) {
  const { n_layer: L, n_head: H } = session.data.config;
  const costs = new Map(); // of each head: bits per character more without it
  let [measuring, waiting] = [0, 0]; // the newest measurement, and the timer until it begins
  let pointed = null; // the token under the pointer or with the focus; null: the selected one

  const { grid, heads, mark } = headGrid(L, H, (layer, head) => session.chooseHead(layer, head));
  for (const one of heads) {
    one.name = `${one.layer}.${one.head}`;
    one.cost = element("span", { class: "cost" });
    one.made.append(one.cost);
  }
  const opened = element("div", { class: "opened", "aria-live": "polite" });
  let open = null; // the cell that is opened, [t, s]
  const showCell = (t, s) => {
    open = [t, s];
    opened.replaceChildren(...openedCell(session, ...session.head, t, s));
  };
  const large = largeMap(session, (t) => point(t), session.live ? showCell : () => {});
  const title = element("h3", {}, "A head");
  const strip = element("div", { class: "strip" });
  arrowKeys(strip);
  const words = element("p", { "aria-live": "polite", id: "looks" });
  const price = element("p", { "aria-live": "polite", id: "price" });
  const missed = element("p", { "aria-live": "polite" });
  const toggle = button("Switch this head off", () => {
    session.toggleHead(session.head.join("."));
  });
  const allOn = button("Switch all heads on", () => session.allHeadsOn());

  const switches = session.live ? [element("div", { class: "controls" }, toggle, allOn), price, missed] : [];
  bodyOf("attention").append(
    title,
    element("div", { class: "beside maps" }, element("div", {}, ...large.parts), element("div", {}, grid, ...switches)),
    ...[strip, words, opened],
  );

  /** Switch each head off alone, and note what that costs on this text; another text ends it. */
  async function measureAll() {
    const [own, read] = [++measuring, session.read];
    const whole = session.perCharacter(session.bitsWith(new Set()));
    for (const { name } of heads) {
      const [cache, logits] = [session.model().newCache(), []];
      for (const token of read) {
        if (logits.length % 8 === 0) await pause(); // the page answers meanwhile
        if (own !== measuring) return;
        logits.push(session.model().predict(token, cache, new Set([name])).logits);
      }
      costs.set(name, session.perCharacter(bitsOf(read, (position) => logits[position])) - whole);
      showCosts();
    }
    const [worst, most] = Array.from(costs).sort((a, b) => b[1] - a[1])[0];
    missed.textContent = `Missed most: ${nameOf(worst)}, ${signed(most)} bits per character.`;
    if (session.headChosen) draw();
    else session.chooseHead(...worst.split(".").map(Number));
  }

  /** The bars under the maps, the widest under the head that is missed most. */
  function showCosts() {
    const most = Math.max(...costs.values()) || 1;
    for (const { name, cost } of heads) cost.style.width = `${(100 * Math.max(costs.get(name) ?? 0, 0)) / most}%`;
  }

  /** What the heads cost that are switched off; the text is read once more, with all heads, so not while it runs. */
  function showPrice() {
    const off = Array.from(session.off);
    if (!off.length) return;
    const whole = session.perCharacter(session.bitsWith(new Set()));
    const without = session.perCharacter(session.bits());
    price.textContent =
      `Switched off: ${off.map(nameOf).join("; ")}. This text now costs ${without.toFixed(3)} bits per ` +
      `character instead of ${whole.toFixed(3)}: ${signed(without - whole)}. All panels show the model without them.`;
  }

  /** The arcs of one token, and in words where it looks. */
  function point(position) {
    pointed = position;
    const rows = session.attention(...session.head);
    strip.arcs?.(rows, position);
    const later = rows.map((row, t) => (t > position ? row[position] : 0));
    const most = best(later, 3).filter(({ p }) => p > 0.005);
    const name = ({ token: t, p }) => [tokenOf(session, session.read[t]), ` ${percent(p)}`];
    const named = (found) => enumerated(found.map(name));
    const follows = session.read[position + 1];
    words.replaceChildren(
      tokenOf(session, session.read[position]),
      ` (position ${position + 1}, `,
      ...(follows === undefined ? ["the last"] : ["before ", tokenOf(session, follows)]),
      ...[") looks at ", ...named(best(rows[position], 4))],
      ...(most.length ? ["; most looked at by ", ...named(most), "."] : ["."]),
    );
  }

  let timer = 0;

  function showSwitches() {
    const name = session.head.join(".");
    toggle.textContent = session.off.has(name) ? "Switch this head on" : "Switch this head off";
    allOn.hidden = !session.off.size;
    if (!session.off.size) price.textContent = "";
    clearTimeout(timer);
    timer = setTimeout(showPrice, 150);
  }

  function draw() {
    const shown = Math.min(pointed ?? session.selected, session.read.length - 1);
    for (const { layer, head, made, canvas, name } of heads) {
      paintMap(canvas, session.attention(layer, head));
      const isOff = session.off.has(name);
      made.classList.toggle("off", isOff);
      const cost = costs.has(name) ? `, without it ${signed(costs.get(name))} bits per character` : "";
      made.setAttribute("aria-label", `${nameOf(name)}${isOff ? ", switched off" : ""}${cost}`);
    }
    mark(...session.head);
    title.textContent = headName(...session.head).replace("layer", "Layer");
    drawStrip(session, strip, point);
    large.draw(session.attention(...session.head), session.head.join());
    point(shown);
    if (ONLY && !open && session.live) open = strongestCell(session.attention(...session.head));
    if (open && open[0] < session.read.length) showCell(...open);
    else opened.replaceChildren();
    if (session.live) showSwitches();
  }

  let before = {};
  session.onChange(
    whenVisible("attention", () => {
      const now = { text: session.read.join(), selected: session.selected, checkpoint: session.checkpoint };
      if (now.text !== before.text || now.selected !== before.selected) pointed = null;
      if (now.text !== before.text || now.checkpoint !== before.checkpoint) {
        missed.textContent = "";
        measuring++;
        clearTimeout(waiting);
        if (session.live && session.read.length > 1) waiting = setTimeout(measureAll, 400);
        for (const { cost, name } of heads) {
          cost.style.width = 0;
          costs.delete(name);
        }
      }
      before = now;
      draw();
    }),
  );
}

/** The name of a head that is given as in session.off: "2.0" is layer 3, head 1. */
function nameOf(head) {
  return headName(...head.split(".").map(Number));
}

function signed(number) {
  return `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(3)}`;
}

/** All tokens in one line, with room for the arcs above; strip.arcs(rows, position) draws those of one token. */
function drawStrip(session, strip, point) {
  const labels = session.read.map((token) => session.label(token));
  const buttons = tokenButtons(session);
  onPoint(buttons, point);
  const { parts, middle, arcs } = arcLine(labels, buttons);
  strip.arcs = arcs;
  const scrolled = strip.scrollLeft;
  const place = middle(Math.min(session.selected, labels.length - 1));
  refill(strip, ...parts);
  // Stay where the reader has scrolled to, unless another token is selected: then this one is in the middle.
  strip.scrollLeft = strip.place === place ? scrolled : place - strip.clientWidth / 2;
  strip.place = place;
}
