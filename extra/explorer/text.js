"use strict";
/* The tokens that the model reads. */

function textPanel(session) {
  const body = bodyOf("text");
  const note = element("p", { class: "note", "aria-live": "polite" });
  const tokens = element("div", { class: "tokens", role: "group", "aria-label": "Tokens; choose one to inspect it" });
  arrowKeys(tokens);
  body.append(note, tokens);

  session.onChange(
    whenVisible("text", () => {
      note.textContent = describeTokens(session);
      refill(tokens, ...tokenButtons(session));
      const chosen = tokens.children[session.selected];
      tokens.scrollTop = chosen.offsetTop - tokens.offsetTop - tokens.clientHeight / 2; // the chosen one is in sight
    }),
  );
}

/** A button for each token that the model reads; pressing one selects it. */
function tokenButtons(session) {
  return session.read.map((token, position) =>
    button(session.label(token), () => session.select(position), {
      class: "token",
      "aria-pressed": String(position === session.selected),
      "data-position": position,
      tabindex: position === session.selected ? 0 : -1,
      title: `token ${token}, position ${position + 1}`,
    }),
  );
}

/** Replace the contents of a group of tokens; the one that has the focus keeps it. */
function refill(group, ...contents) {
  const position = group.contains(document.activeElement) ? document.activeElement.dataset.position : undefined;
  group.replaceChildren(...contents);
  if (position !== undefined) group.querySelector(`[data-position="${position}"]`)?.focus({ preventScroll: true });
}

function describeTokens(session) {
  const count = session.read.length;
  const characters = Array.from(session.text(session.read)).length;
  let words = `${counted(count, "token")} for ${counted(characters, "character")}.`;
  const marks = [" ", "\n"].filter((blank) => session.text(session.read).includes(blank));
  const names = { " ": "· is a space", "\n": session.data.talk ? "each turn is a line" : "↵ the end of a line" };
  if (marks.length) words += ` In them, ${marks.map((blank) => names[blank]).join(", and ")}.`;
  if (session.first) words += ` The model reads only these last ones of ${grouped(session.ids.length)}.`;
  if (session.unknown?.size) {
    const some = Array.from(session.unknown).slice(0, 10).map(visible).join(" ");
    words += ` The model never saw ${some}, and reads <unk> there.`;
  }
  return words;
}
