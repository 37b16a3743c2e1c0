"use strict";
/* Growing up: a slider over the checkpoints of a run, for all panels, and how the loss on this text fell. */

function growingPanel(session) {
  const steps = session.data.checkpoints;
  const words = (i) => `step ${grouped(steps[i])}`;
  const change = (i) => session.setCheckpoint(i);
  const age = slider("Training", { min: 0, max: steps.length - 1, step: 1, value: session.checkpoint, words, change });
  age.classList.add("wide");
  document.querySelector("main").append(element("div", { class: "sticky" }, age));

  const plot = element("div");
  const rows = element("tbody");
  const columns = ["step", "bits per character", "most probable after the selected token"];
  bodyOf("growing").append(plot, table("The same text, read by every checkpoint.", columns, rows));

  let task = 0; // the newest computation; older ones stop
  const known = { text: "", bits: [], best: [] };
  const update = async () => {
    const own = ++task;
    const key = [session.read.join(), session.selected, Array.from(session.off).join(" ")].join("|");
    if (known.text !== key) Object.assign(known, { text: key, bits: [], best: [] });
    for (let i = known.bits.length; i < steps.length; i++) {
      await pause();
      if (own !== task) return;
      known.best.push(predictions(session, i));
      known.bits.push(session.perCharacter(session.bitsWith(session.off, i)));
    }
    plot.replaceChildren(lossPlot(steps, known.bits, session.checkpoint));
    const row = (step, i) => {
      const choose = () => (age.set(i), session.setCheckpoint(i));
      const choices = known.best[i].map((one) => choiceOf(session, one));
      const cells = [[button(grouped(step), choose, { "aria-label": words(i) })], [known.bits[i].toFixed(3)], choices];
      const kind = i === session.checkpoint ? "chosen" : "";
      return element("tr", { class: kind }, ...cells.map((cell) => element("td", {}, ...cell)));
    };
    rows.replaceChildren(...steps.map(row));
  };
  session.onChange(whenVisible("growing", update));
}

/** What a checkpoint holds for most probable after the selected token. */
function predictions(session, checkpoint) {
  const ids = session.read.slice(0, session.selected + 1);
  return best(softmax(session.logitsWith(session.off, checkpoint, ids).at(-1)), 3);
}

/** Bits per character over the steps of the run. */
function lossPlot(steps, bits, now) {
  const [width, height, left, bottom] = [600, 200, 40, 30];
  const highest = Math.max(...bits) * 1.05;
  const x = (step) => left + ((width - left - 15) * (step - steps[0])) / Math.max(steps.at(-1) - steps[0], 1);
  const y = (value) => height - bottom - ((height - bottom - 10) * value) / highest;
  const points = steps.map((step, i) => `${x(step)},${y(bits[i])}`).join(" ");
  const marks = [0, 1, 2, 3, 4, 5, 6, 8, 10].filter((value) => value < highest);
  return svg(
    "svg",
    { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Bits per character at each step" },
    ...marks.flatMap((value) => [
      svg("line", { class: "axis", x1: left, x2: width - 15, y1: y(value), y2: y(value) }),
      svg("text", { x: 8, y: y(value) + 4 }, String(value)),
    ]),
    svg("text", { x: left, y: height - 8 }, `step ${grouped(steps[0])}`),
    svg("text", { x: width - 15, y: height - 8, "text-anchor": "end" }, grouped(steps.at(-1))),
    svg("polyline", { points }),
    ...steps.map((step, i) => svg("circle", { cx: x(step), cy: y(bits[i]), r: 4, class: i === now ? "now" : "" })),
  );
}
