"use strict";
/* The panels of a text: its tokens, hidden words, the label and what each token changes, attention as arcs. */

function tokensPanel(data) {
  const line = element("div", { class: "tokens", role: "group", "aria-label": "Tokens; choose one to inspect it" });
  const made = tokenButtons(data, moveTo);
  const words = element("p", { "aria-live": "polite", class: "soft" });
  line.append(...made);
  arrowKeys(line);
  bodyOf("tokens").append(line, words);
  walk.listeners.push(() => {
    const t = walk.position;
    press(made, t);
    const segment = Math.max(...data.segments) ? `, segment ${data.segments[t] + 1}` : "";
    const place = `at position ${t + 1} of ${made.length}${segment}`;
    words.replaceChildren(token(data.tokens[t]), ` is token ${data.ids[t]} of the vocabulary, ${place}.`);
  });
}

function wordsPanel(data) {
  for (const [n, { position, words }] of data.masks.entries()) {
    const context = data.tokens.slice(Math.max(0, position - 3), position + 4);
    bodyOf("words").append(
      element("h3", {}, data.masks.length > 1 ? `[MASK] ${n + 1} of ${data.masks.length}` : "[MASK]"),
      element("p", {}, ...context.flatMap((text) => [token(text), " "])),
      chances(`The ${words.length} most probable tokens at position ${position + 1}`, "token", words, token),
    );
  }
}

/** The probabilities of the labels, and for the chosen one what each token changes, as a coloured text. */
function labelsPanel(data) {
  const { names, probabilities, hidden } = data.labels;
  const line = element("div", { class: "tokens", role: "group", "aria-label": "Tokens; focus one to see its change" });
  const made = tokenButtons(data, (t) => moveTo(t));
  const words = element("p", { "aria-live": "polite", id: "changes" });
  let label = 0;
  const choices = names.map((name, n) => button(visible(name), () => choose(n)));
  const group = element("div", { class: "controls", role: "group", "aria-label": "Labels; choose one" }, ...choices);
  line.append(...made);
  arrowKeys(line);
  arrowKeys(group);
  const change = (t) => (hidden[t] ? probabilities[label] - hidden[t][label] : 0);

  function tell(t) {
    const rest = hidden[t]
      ? [
          ` hidden, ${visible(names[label])} would have ${percent(hidden[t][label])} instead of `,
          `${percent(probabilities[label])}: the token changes it by ${signedPoints(change(t))}.`,
        ]
      : [" is part of every text, and never hidden."];
    words.replaceChildren(...(hidden[t] ? ["With "] : []), token(data.tokens[t]), ...rest);
  }

  function choose(n) {
    label = n;
    press(choices, n);
    const most = Math.max(...data.tokens.map((_, t) => Math.abs(change(t)))) || 1;
    made.forEach((one, t) => {
      const share = change(t) / most;
      const colour = share > 0 ? "--heat" : "--heat-second";
      one.style.backgroundColor = share ? shade(Math.abs(share), colour) : "var(--tint)";
    });
    tell(walk.position);
  }

  onPoint(made, tell);
  bodyOf("labels").append(
    chances("What the model answers", "label", names.map((name, n) => [name, probabilities[n]]), visible),
    element("h3", {}, "What each token changes"),
    group,
    line,
    legend({ first: "for the label", second: "against it" }),
    words,
  );
  walk.listeners.push(() => {
    made.forEach((one, t) => (one.tabIndex = t === walk.position ? 0 : -1));
    tell(walk.position);
  });
  choose(0);
}

function signedPoints(share) {
  return `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(2)} percentage points`;
}

/** The weights of every head as maps, and those of one head as arcs between the tokens. */
function attentionPanel(data) {
  const [L, H, T] = data.shape;
  const rows = recordedRows(data.shape);
  walk.head = [L - 1, 0];
  const { grid, heads, mark } = headGrid(L, H, chooseHead);
  for (const { layer, head, canvas } of heads) paintMap(canvas, rows(layer, head));
  const made = tokenButtons(data, moveTo);
  const { parts, middle, arcs } = arcLine(data.tokens.map(visible), made, true);
  const strip = element("div", { class: "strip" }, ...parts);
  const title = element("h3");
  const large = element("canvas", { class: "large", role: "img", "aria-label": "map, as the arcs have it" });
  const map = mapFrame(large);
  map.name(data.tokens.map(visible));
  const words = element("p", { "aria-live": "polite", id: "attends" });
  arrowKeys(strip);
  bodyOf("attention").append(grid, title, strip, words, element("h3", {}, "The whole map"), map.frame);
  const name = ({ token: t, p }) => [token(data.tokens[t]), ` ${percent(p)}`];
  const named = (shares, count) => enumerated(best(shares, count).map(name));

  function point(t) {
    const now = rows(...walk.head);
    const readers = now.map((row, other) => (other === t ? 0 : row[t]));
    arcs(now, t);
    const attends = [` (position ${t + 1}) attends to `, ...named(now[t], 4)];
    const attended = ["; most attended to by ", ...named(readers, 3), "."];
    words.replaceChildren(token(data.tokens[t]), ...attends, ...attended);
  }

  onPoint(made, point);
  // Pointing at a row of the large map shows the arcs of its token.
  large.addEventListener("pointermove", (event) => {
    const row = Math.floor((event.offsetY / large.clientHeight) * T);
    point(Math.max(0, Math.min(row, T - 1)));
  });
  let before = null;
  walk.listeners.push(() => {
    mark(...walk.head);
    title.textContent = `Layer ${walk.head[0] + 1}, head ${walk.head[1] + 1}`;
    paintMap(large, rows(...walk.head));
    press(made, walk.position);
    if (before !== walk.position) strip.scrollLeft = middle(walk.position) - strip.clientWidth / 2;
    before = walk.position;
    point(walk.position);
  });
}
