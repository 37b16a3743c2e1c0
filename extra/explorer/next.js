"use strict";
/* What comes next: the distribution of the next token, filtered by the sliders, and why one was drawn. */

const SHOWN = 6; // tokens in the table

function nextPanel(session) {
  const body = bodyOf("next");
  const settings = session.data.sampling;
  const V = session.data.config.vocab_size;
  const rows = element("tbody");
  const heading = element("p");
  const reason = element("div");
  const state = () => session.state + JSON.stringify(settings); // what a draw depends on
  session.sliders = {};

  const make = (name, title, options) => {
    const change = (value) => {
      settings[name] = value;
      session.changed();
    };
    const made = slider(title, { value: settings[name], change, ...options });
    settings[name] = made.value(); // as the slider shows it
    made.move = (value) => {
      made.set(value);
      change(made.value());
    };
    made.first = made.value();
    return (session.sliders[name] = made);
  };
  const orAll = (digits) => (value) => (value ? value.toFixed(digits) : "all");
  const sliders = [
    make("temperature", "temperature", {
      ...{ min: 0, max: Math.max(2, settings.temperature), step: 0.01, hint: "below 1 sharpens, above 1 flattens" },
      words: (value) => (value ? value.toFixed(2) : "0: best"),
    }),
    make("topK", "top-k", {
      ...{ min: 0, max: Math.min(V, Math.max(200, settings.topK)), step: 1, words: orAll(0) },
      hint: "only the k most probable tokens stay",
    }),
    make("topP", "top-p", {
      ...{ min: 0.01, max: 1, step: 0.01, hint: "the smallest set with this total probability stays" },
      words: (value) => (value < 1 ? value.toFixed(2) : "all"),
    }),
    make("minP", "min-p", {
      ...{ min: 0, max: 1, step: 0.01, words: orAll(2) },
      hint: "tokens with at least this share of the largest probability stay",
    }),
  ];

  body.append(
    element("div", { class: "sliders" }, ...sliders),
    heading,
    table("Wide: the model; narrow: after the sliders", ["token", "shares", "#model", "#left"], rows),
    reason,
  );

  session.onChange(
    whenVisible("next", () => {
      const probabilities = session.probabilities(session.selected);
      const kept = filtered(session);
      const follows = session.read[session.selected + 1];
      const shown = best(probabilities, SHOWN);
      if (follows !== undefined && !shown.some(({ token }) => token === follows)) {
        shown.push({ token: follows, p: probabilities[follows] });
      }
      const entropy = -sum(probabilities.map((p) => (p > 0 ? p * Math.log2(p) : 0)));
      const count = kept.filter((p) => p > 0).length;
      heading.replaceChildren(
        "After ",
        tokenOf(session, session.read[session.selected]),
        `: ${entropy.toFixed(2)} bits, as between ${(2 ** entropy).toFixed(1)} equal tokens. `,
        `The sliders leave ${grouped(count)} of ${grouped(V)} tokens.`,
      );
      const scale = Math.max(shown[0].p, ...shown.map(({ token }) => kept[token]));
      const row = ({ token, p }) =>
        element("tr", { class: `${kept[token] ? "" : "out"} ${token === follows ? "chosen" : ""}` },
          element("td", {}, tokenOf(session, token), token === follows ? " ← is next in the text" : ""),
          element("td", { class: "wide" }, bar({ model: p / scale, kept: kept[token] / scale })),
          element("td", { class: "number" }, percent(p)),
          element("td", { class: "number" }, kept[token] ? percent(kept[token]) : "removed"));
      rows.replaceChildren(...shown.map(row));
      if (session.drawn?.state !== state()) session.drawn = null; // it was drawn from something else
      if (session.live) showReason(session, reason, session.drawn);
    }),
  );
}

/** The distribution after the selected token, as the sliders leave it. */
function filtered(session) {
  return filterTokens(logSoftmax(session.logits(session.selected)), session.data.sampling, session.forbidden);
}

function tokenOf(session, token) {
  return element("code", { class: "token", title: `token ${token}` }, session.label(token));
}

/** A token and its probability; one that does follow is marked. */
function choiceOf(session, { token, p }, follows) {
  const kind = token === follows ? "choice right" : "choice";
  return element("span", { class: kind }, tokenOf(session, token), ` ${percent(p)}`);
}

/** Why this token? The interval that the random number fell into, and a slider for other numbers. */
function showReason(session, place, drawn) {
  if (place.drawn === drawn) return; // so that a slider that is moved stays in place
  place.drawn = drawn;
  place.replaceChildren();
  if (!drawn) return;
  const shape = { class: "number-line", viewBox: "0 0 1000 50", preserveAspectRatio: "none" };
  const line = svg("svg", { ...shape, "aria-hidden": "true" });
  const words = element("p", { id: "why", "aria-live": "polite" });
  const show = (u) => {
    const { token, begin, end } = draw(drawn.probabilities, u);
    for (const rect of line.children) rect.classList.toggle("hit", rect.dataset.token === String(token));
    for (const end of ["x1", "x2"]) marker.setAttribute(end, 1000 * u);
    words.replaceChildren(
      u === drawn.u ? "The random number " : "With the number ",
      element("b", {}, u.toFixed(4)),
      u === drawn.u ? " was drawn. It lies" : " it would have been another draw: it lies",
      ` between ${begin.toFixed(4)} and ${end.toFixed(4)}, the interval of `,
      tokenOf(session, token),
      `, ${percent(end - begin)} wide.`,
    );
  };
  let begin = 0;
  for (const [token, p] of drawn.probabilities.entries()) {
    if (p * 1000 >= 0.8) {
      const rect = svg("rect", { x: 1000 * begin, y: 8, width: 1000 * p, height: 34 });
      rect.dataset.token = token;
      line.append(rect);
    }
    begin += p;
  }
  const marker = svg("line", { y1: 0, y2: 50 });
  line.append(marker);
  const range = { min: 0, max: 0.9999, step: 0.0001, value: drawn.u };
  const other = slider("try another number", { ...range, words: (u) => u.toFixed(4), change: show });
  other.classList.add("wide");
  show(drawn.u);
  place.replaceChildren(
    element("h3", {}, "Why this token?"),
    element("p", {}, "After ", tokenOf(session, drawn.after), ", each token has an interval as wide as its probability."),
    line,
    words,
    other,
  );
}
