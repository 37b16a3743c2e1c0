"use strict";
/*
 * The tour is a game: a question, a guess by a click, and only then the panel that shows the answer. Meanwhile the rest
 * of the page is out of sight, so that nothing tells it. At the end there is a score, and a link with what was found.
 */

function addTour(session) {
  const card = element("div", { class: "tour", role: "group", "aria-label": "Tour" });
  const state = { stop: 0, score: 0, stops: [] };
  let shown = null; // the panel with the answer

  const show = (panel) => {
    shown?.classList.remove("shown");
    shown = panel && document.getElementById(panel);
    shown?.classList.add("shown");
  };
  const end = () => {
    show(null);
    card.remove();
    document.body.classList.remove("touring");
    start.focus();
  };
  const further = (words, click) => button(words, click, { class: "main" });
  const leave = () => button("Leave the tour", end, { class: "link" });
  const fill = (...parts) => {
    card.replaceChildren(...parts);
    card.scrollIntoView({ block: "nearest" });
  };

  const ask = () => {
    show(null);
    const panel = state.stops[state.stop];
    const asked = QUESTIONS[panel](session);
    if (!asked) return go();
    const verdict = element("p", { "aria-live": "polite" });
    const choices = asked.choices.map(([words, isRight]) => {
      const one = button(words, () => guess(one, isRight));
      one.isRight = isRight;
      return one;
    });
    const guess = (chosen, isRight) => {
      if (card.classList.contains("told")) return;
      card.classList.add("told");
      state.score += isRight;
      chosen.classList.add(isRight ? "right" : "wrong");
      choices.find((one) => one.isRight).classList.add("right");
      verdict.replaceChildren(element("b", {}, isRight ? "Right. " : "No. "), asked.answer);
      show(panel);
      const next = further(state.stop + 1 < state.stops.length ? "Next question" : "Your score", go);
      controls.prepend(next);
      next.focus({ preventScroll: true });
    };
    const group = element("div", { class: "choices", role: "group", "aria-label": "Your guess" }, ...choices);
    const controls = element("div", { class: "controls" }, leave());
    card.classList.remove("told");
    arrowKeys(group);
    const count = `${state.stop + 1} of ${state.stops.length}; score ${state.score}`;
    const text = element("p", { class: "tour-text" }, session.text(session.read));
    fill(element("p", { class: "soft" }, count), text, element("h2", {}, asked.question), group, verdict, controls);
    choices[0].focus({ preventScroll: true });
  };
  const go = () => {
    state.stop++;
    if (state.stop < state.stops.length) ask();
    else finish();
  };
  const finish = () => {
    show(null);
    const note = element("input", { type: "text", maxlength: MAX_NOTE, "aria-label": "What you found" });
    note.value = `I guessed ${state.score} of ${state.stops.length} about this text. You?`;
    const link = copyLink(session, "", "Copy a link with it", () => note.value);
    fill(
      element("h2", {}, `Your score: ${state.score} of ${state.stops.length}`),
      element("p", {}, "What did you find? It travels in the link, with the text and the head."),
      element("div", { class: "controls" }, note, link),
      element("div", { class: "controls" }, further("Back to the page", end)),
    );
    link.focus({ preventScroll: true });
  };
  const start = button("Take the tour", () => {
    session.writer.stop();
    session.select(Infinity);
    if (!session.headChosen) session.chooseHead(...loudest(session).head);
    const stops = Object.keys(QUESTIONS).filter((panel) => session.data.panels.includes(panel));
    Object.assign(state, { stop: 0, score: 0, stops });
    document.body.classList.add("touring");
    document.querySelector("main").prepend(card);
    scrollTo(0, 0);
    ask();
  });
  document.querySelector("#stage .controls").append(start);
}
