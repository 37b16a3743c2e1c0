"use strict";
/* Who wanted this token: the parts of its logit, as steps from the mean of all logits to this one. */

const PARTS = 6; // that are listed one by one

function wantedPanel(session) {
  const body = bodyOf("wanted");
  const choices = element("div", { class: "controls", role: "group", "aria-label": "Tokens; choose one" });
  const words = element("p", { "aria-live": "polite", id: "wanted-words" });
  const rows = element("tbody");
  let asked = null; // the token that was chosen; null: the best one
  arrowKeys(choices);
  const made = table("What the parts add", ["part", "steps", "#logit"], rows);
  made.querySelector("table").classList.add("parts");
  body.append(choices, words, made);

  let before = "";
  session.onChange(
    whenVisible("wanted", () => {
      const state = `${session.selected} ${session.read.join()}`;
      if (state !== before) asked = null;
      before = state;
      const position = session.selected;
      const candidates = best(session.probabilities(position), 6).map(({ token }) => token);
      const follows = session.read[position + 1];
      if (follows !== undefined && !candidates.includes(follows)) candidates.push(follows);
      const chosen = candidates.includes(asked) ? asked : candidates[0];
      const buttons = candidates.map((candidate) =>
        button(session.label(candidate), () => ((asked = candidate), session.changed()), {
          class: "token",
          "aria-pressed": String(candidate === chosen),
          "data-position": candidate,
          tabindex: candidate === chosen ? 0 : -1,
        }),
      );
      refill(choices, ...buttons);
      const parts = partsOf(session.model(), session.seen[position], chosen);
      made.hidden = !parts;
      if (!parts) {
        words.textContent =
          "In this model the stream is no sum of what the parts add: a norm, or the lack of a residual connection, " +
          "stands between. So a logit cannot be divided among them.";
        return;
      }
      const total = sum(parts.map(({ value }) => value));
      const sorted = parts.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
      const shown = sorted.slice(0, PARTS);
      const rest = sorted.slice(PARTS);
      if (rest.length) shown.push({ name: `${rest.length} others`, value: total - sum(shown.map((part) => part.value)) });
      words.replaceChildren(
        ...["After ", tokenOf(session, session.read[position]), ", the logit of ", tokenOf(session, chosen)],
        ` is ${Math.abs(total).toFixed(2)} ${total < 0 ? "below" : "above"} the mean.`,
      );
      rows.replaceChildren(...steps(shown, total));
    }),
  );
}

/** A row for each part: its bar begins where that of the part above it ends. */
function steps(parts, total) {
  let sum = 0;
  const ends = [0, ...parts.map(({ value }) => (sum += value)), total];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const at = (value) => (100 * (value - low)) / (high - low || 1);
  let begin = 0;
  const row = (name, from, to) => {
    const span = element("span", { class: to < from ? "second" : "first" });
    [span.style.left, span.style.width] = [`${at(Math.min(from, to))}%`, `${Math.abs(at(to) - at(from))}%`];
    const cells = [element("td", {}, name), element("td", { class: "part" }, span)];
    return element("tr", {}, ...cells, element("td", { class: "number" }, signed(to - from)));
  };
  const made = parts.map(({ name, value }) => row(name, begin, (begin += value)));
  const whole = row("sum: logit - mean", 0, total);
  whole.classList.add("chosen");
  return [...made, whole];
}

/**
 * What each part of the model adds to the logit of a token, compared with the mean logit of all tokens; null where the
 * stream is not a sum of what the parts add. The last norm divides by the length of the whole stream, which is kept as
 * it is; then the logit is a product with a row of the output matrix, and the parts of a sum have parts of it.
 *
 * Returns [{name, value}, ...], with the head or the layer of a feed-forward part: the embedding, each head, the bias
 * of each attention, each feed-forward part, the shift of the last norm. The values sum to the logit minus the mean.
 */
function partsOf(model, seen, token) {
  const { norm_first, residual, n_layer, n_head, head_dim: D } = model.config;
  if (!norm_first || !residual) return null;
  const direction = directionOf(model, token);
  const x = seen.stream.at(-1);
  const centre = model.config.norm === "rmsnorm" ? 0 : 1;
  const mean = (sum(x) * centre) / x.length;
  const r = 1 / Math.sqrt(sum(x.map((value) => (value - mean) ** 2)) / x.length + model.config.norm_eps);
  const gain = model.weights["final_norm.weight"]?.data;
  const turned = direction.map((value, i) => value * r * (gain ? gain[i] : 1));
  const across = (sum(turned) * centre) / x.length;
  const value = (part) => dot(part, turned) - across * sum(part);
  const found = [{ name: "embedding", value: value(seen.stream[0]) }];
  for (let layer = 0; layer < n_layer; layer++) {
    const { shape, data } = model.weights[`blocks.${layer}.mixer.output.weight`];
    for (let head = 0; head < n_head; head++) {
      const part = new Float64Array(shape[0]);
      for (let row = 0; row < shape[0]; row++) {
        const begin = row * shape[1];
        for (let i = head * D; i < (head + 1) * D; i++) part[row] += data[begin + i] * seen.heads[layer][i];
      }
      found.push({ name: headName(layer, head), head: [layer, head], value: value(part) });
    }
    const bias = model.weights[`blocks.${layer}.mixer.output.bias`];
    if (bias) found.push({ name: `layer ${layer + 1}, bias of attention`, value: value(bias.data) });
    found.push({ name: `layer ${layer + 1}, feed-forward`, feed: layer, value: value(seen.added[layer][1]) });
  }
  const shift = model.weights["final_norm.bias"];
  if (shift) found.push({ name: "shift of the last norm", value: dot(shift.data, direction) });
  return found;
}

/** A row of the output matrix, minus the mean of all rows. */
function directionOf(model, token) {
  const { shape, data } = model.weights["lm_head.weight"] || model.weights["token_embedding.weight"];
  const [V, C] = shape;
  if (!model.meanRow) {
    model.meanRow = new Float64Array(C); // the same for all tokens
    for (let i = 0; i < V * C; i++) model.meanRow[i % C] += data[i] / V;
  }
  return model.meanRow.map((value, c) => data[token * C + c] - value);
}
