"use strict";
/* The stage: the text, what the model would write after it, and the buttons that let it write. It stays in view. */

const CANDIDATES = 6;
const SOFTLY = { after: 900, wait: 420, tokens: 40 }; // what it writes by itself, once the page is open
const SPANS = 300; // tokens of the text that are shown one by one, so that a long text costs no more

const EXAMPLES = [
  "Habe nun, ach! Philosophie,",
  "Es irrt der Mensch, so lang er strebt. Und der",
  "Wer reitet so spät durch Nacht und Wind?\nEs ist",
  "Das Leben ist",
  "Liebe Lotte, ich",
  "ROMEO:\nBut, soft! what light",
  "To be, or not to be: that is",
  "My lord, I",
  "The statement is",
  "If a class defines",
];

function makeStage(session) {
  const root = element("div", { class: "stage", id: "stage" });
  const write = element("button", { type: "button", class: "main write", onclick: () => writer.toggle() });
  const desk = element("div", { class: "desk" });
  const room = element("div", {}, desk);
  document.querySelector("main").prepend(root);
  document.querySelector("header .why").append(document.querySelector("header nav")); // the first screen is the stage
  const settings = session.data.sampling;
  const ahead = session.live ? planAhead(session, () => changed()) : null;

  /** One token more; a recording walks to the next one. */
  const step = () => {
    if (!session.live) return session.select((session.selected + 1) % session.read.length);
    if (session.ended) return; // the next turn is the reader's
    if (session.selected < session.read.length - 1) session.select(Infinity);
    const after = session.read.at(-1);
    const { token, u, probabilities } = ahead.take();
    session.append(token);
    session.drawn = { probabilities, u, after, state: session.state + JSON.stringify(settings) };
    session.showText();
  };
  const writer = makeWriter(session, step, (running) => {
    write.textContent = running ? "Pause" : session.live ? "Write" : "Walk";
    root.classList.toggle("writing", running);
  });
  session.writer = writer;

  const field = session.data.talk ? null : textField(session, writer);
  const text = field?.made ?? talkBar(session);
  const next = button("Next", step, { title: session.live ? "one token more" : "the next token" });
  const controls = element("div", { class: "controls" }, write, next);
  if (field && session.live) {
    const back = () => (session.removeLast(), session.showText());
    controls.append(button("⌫", back, { "aria-label": "Remove the last", title: "remove the last token" }));
    controls.append(button("Surprise me", () => surprise(session, writer)));
  }
  controls.append(copyLink(session, ""));
  desk.append(text, controls);
  const says = element("p", { class: "says soft" });
  const taken = (token) => {
    if (session.selected < session.read.length - 1) {
      session.setIds(session.ids.slice(0, session.first + session.selected + 1)); // another way from here on
    }
    session.append(token);
    session.showText();
  };
  const candidates = candidateList(session, taken);
  root.append(room, says, candidates.made);
  if (field && session.live) root.append(promptList(session));
  keepInView(room, desk);

  const changed = whenVisible("stage", () => {
    const loud = loudest(session);
    field?.draw(ahead?.tokens() ?? [], loud);
    candidates.draw();
    says.replaceChildren(...saying(session, loud));
  });
  session.onChange(changed);
  if (field) new ResizeObserver(changed).observe(field.made);
}

/** Calls step() again and again: until it is paused, or until the reader touches anything. */
function makeWriter(session, step, show) {
  let run = 0; // the newest; older ones stop
  let running = false;
  const stop = () => {
    run++;
    show((running = false));
  };
  const start = async ({ wait, tokens } = { wait: 80, tokens: Infinity }) => {
    const own = ++run;
    show((running = true));
    for (let i = 0; i < tokens && !session.ended; i++) {
      step();
      await new Promise((resolve) => setTimeout(resolve, wait));
      if (own !== run) return;
    }
    stop();
  };
  const softly = () => {
    if (isStill()) return;
    const listening = new AbortController();
    const timer = setTimeout(start, SOFTLY.after, SOFTLY);
    const touched = (event) => {
      clearTimeout(timer);
      listening.abort();
      if (running && !event.target.closest?.(".write")) stop();
    };
    const how = { capture: true, passive: true, signal: listening.signal };
    for (const kind of ["pointerdown", "keydown", "wheel", "input"]) window.addEventListener(kind, touched, how);
  };
  show(false);
  return { start, stop, softly, toggle: () => (running ? stop() : start()) };
}

/** The text, with the continuation behind it and arcs over it; without a box to type in if the text is recorded. */
function textField(session, writer) {
  const mirror = element("div", { class: "mirror", "aria-hidden": String(session.live) });
  const drawing = svg("svg", { class: "arcs", "aria-hidden": "true" });
  const made = element("div", { class: "field" }, mirror, drawing);
  const plain = { spellcheck: "false", autocomplete: "off", dir: "auto", rows: 1 };
  const box = session.live ? element("textarea", { "aria-label": "Text for the model", ...plain }) : null;
  let [spans, written, follow, drawn] = [[], 0, false, ""];
  if (box) {
    made.append(box);
    box.addEventListener("input", () => {
      writer.stop();
      mirror.replaceChildren(box.value);
      drawing.replaceChildren();
      session.type(box.value);
    });
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      session.settle();
      writer.toggle();
    });
    box.addEventListener("click", ({ clientX: x, clientY: y }) => {
      const isIn = ({ left, right, top, bottom }) => left <= x && x <= right && top <= y && y <= bottom;
      const hit = spans.findIndex((span) => Array.from(span.getClientRects()).some(isIn));
      session.select(hit < 0 ? Infinity : hit + session.ids.length - spans.length - session.first);
    });
  }
  session.showText = () => {
    if (box) box.value = session.text(session.ids);
    follow = true; // what is new is at the end
  };

  const after = element("span", { class: "ghost" });
  const drawText = (loud) => {
    const texts = textsOf(session, session.ids);
    const isSame = !box || texts.join("") === box.value; // an unknown word, for one, is shown as it was typed
    const cut = isSame ? Math.max(0, texts.length - SPANS) : texts.length;
    const selected = session.first + session.selected;
    const kind = (i) => (i === selected ? "now" : i < session.first ? "left" : "");
    spans = texts.slice(cut).map((text, i) => element("span", { class: kind(i + cut) }, text));
    if (session.ids.length === written + 1) spans.at(-1)?.classList.add("new");
    written = session.ids.length;
    mirror.replaceChildren(isSame ? texts.slice(0, cut).join("") : box.value, ...spans, after);
    drawArcs(drawing, mirror, spans.slice(-session.read.length), loud);
  };
  const draw = (ghost, loud) => {
    const state = [session.state, session.selected, loud.head, mirror.clientWidth, box?.value].join();
    after.textContent = `\u200b${session.text(ghost)}`;
    if (state !== drawn || !spans.at(-1)?.isConnected) drawText(loud);
    drawn = state;
    if (follow && spans.length) {
      const height = parseFloat(getComputedStyle(mirror).lineHeight);
      const line = Math.floor((spans.at(-1).offsetTop - mirror.offsetTop) / height);
      made.scrollTop = mirror.offsetTop + (line + 2) * height - made.clientHeight; // and one line of what may follow
    }
    follow = false;
    made.classList.toggle("scrolled", made.scrollTop > 4);
  };
  return { made, draw };
}

/** The text of each token; the bytes of an incomplete character come with the token that completes it. */
function textsOf(session, ids) {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return ids.map((id) => decoder.decode(Uint8Array.from(session.pieces[id]), { stream: true }));
}

/** The most probable tokens after the selected one, as bars; taken(token) is called for the one that is chosen. */
function candidateList(session, taken) {
  const count = Math.min(CANDIDATES, session.data.config.vocab_size);
  const bars = Array.from({ length: count }, () => {
    const [name, share, fill] = [element("b"), element("span", { class: "number" }), element("i")];
    const click = () => taken(Number(made.dataset.token));
    const made = session.live ? button("", click) : element("div");
    made.classList.add("candidate");
    made.append(fill, name, share);
    return { made, name, share, fill };
  });
  const group = element("div", { class: "candidates", role: "group", "aria-label": "What may come next" });
  group.append(...bars.map(({ made }) => made));
  const draw = () => {
    best(session.probabilities(session.selected), count).forEach(({ token, p }, i) => {
      const { made, name, share, fill } = bars[i];
      made.dataset.token = token;
      name.textContent = session.label(token);
      share.textContent = percent(p);
      fill.style.width = `${100 * p}%`;
    });
  };
  return { made: group, draw };
}

/** Three beginnings that the model can continue: those of the examples that surprise it least. */
function promptList(session) {
  const made = element("div", { class: "prompts", role: "group", "aria-label": "Beginnings" });
  const begin = (text) => {
    session.writer.stop();
    session.setText(text);
    session.showText();
  };
  const find = async () => {
    const found = [];
    for (const text of EXAMPLES.filter((one) => !session.tokenizer.unknown(one).size)) {
      await pause();
      const [cache, ids] = [session.model().newCache(), session.encode(text).slice(0, session.data.context)];
      const logits = ids.map((id) => session.model().predict(id, cache).logits);
      found.push([sum(bitsOf(ids, (t) => logits[t])) / text.length, text]);
    }
    const texts = found.sort((a, b) => a[0] - b[0]).slice(0, 3).map(([, text]) => text);
    made.replaceChildren(...texts.map((text) => button(text.replaceAll("\n", " "), () => begin(text))));
  };
  setTimeout(find, 600);
  return made;
}

/** The model begins by itself: with a word that it would begin a line with. */
function surprise(session, writer) {
  writer.stop();
  session.setIds(session.encode("\n"));
  const p = session.probabilities(session.read.length - 1);
  const isWord = (_, token) => !session.forbidden.includes(token) && /^\s?\p{L}/u.test(session.text([token]));
  const words = p.map((share, token) => (isWord(share, token) ? share : 0));
  const total = sum(words);
  if (total > 0) session.setText(session.text([draw(words.map((share) => share / total), Math.random()).token]).trim());
  session.showText();
  writer.start();
}

/** The desk stays at the top of the window, smaller, once its place has scrolled out of sight. */
function keepInView(room, desk) {
  new IntersectionObserver(([{ isIntersecting, boundingClientRect }]) => {
    const isAway = !isIntersecting && boundingClientRect.top < 0;
    if (isAway === desk.classList.contains("stuck")) return;
    room.style.height = isAway ? `${boundingClientRect.height}px` : "";
    desk.classList.toggle("stuck", isAway);
  }).observe(room);
}
