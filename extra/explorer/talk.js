"use strict";
/*
 * A conversation with a model that learned to answer. It is one text, with a special token after each turn, here with
 * their usual names:
 *
 *     Hi! <answer> Hello! <end> Who are you? <answer>
 *
 * The two marks come about in `join` and nowhere else: what is typed is text, also where it looks like a mark.
 */

class TalkSession extends LiveSession {
  constructor(data) {
    super(data);
    this.marks = data.talk.marks;
    this.forgotten = []; // turns that the model does not read any more
    for (const mark of this.marks) this.pieces[mark] = utf8("\n"); // shown as text, each turn is a line
  }

  /** Messages, and the answers to them, in turn; the last may be one that is only begun, or empty. */
  get turns() {
    const turns = [[]];
    for (const token of this.ids) {
      if (this.marks.includes(token)) turns.push([]);
      else turns.at(-1).push(token);
    }
    return turns.map((ids) => this.text(ids));
  }

  /** The tokens of turns, with a mark between two. extra/pairs/answering.py, turns_ids */
  join(turns) {
    return turns.flatMap((turn, i) => [...(i ? [this.marks[(i - 1) % 2]] : []), ...this.tokenizer.encode(turn)]);
  }

  encode(text) {
    return this.join(normalise(text).split("\n"));
  }

  setText(text) {
    this.forgotten = [];
    super.setText(text);
  }

  /** Say something to the model; the oldest turns are forgotten where there is no room. extra/chat/chat.py, Chat and fitting */
  say(message) {
    const turns = this.turns;
    if (turns.length % 2) turns.pop(); // a message that was only begun
    if (turns.at(-1) === "") turns.splice(-2); // one that got no answer is as good as not said
    turns.push(normalise(message).trim(), ""); // the answer is still empty
    while (turns.length > 2 && this.join(turns).length > this.data.talk.room) {
      this.forgotten.push(...turns.splice(0, 2));
    }
    this.unknown = this.tokenizer.unknown(turns.at(-2));
    this.setIds(this.join(turns));
  }

  /** Whether the model has ended its answer, or the answer is as long as sample.py lets it become. */
  get ended() {
    const length = this.ids.length - 1 - this.ids.lastIndexOf(this.marks[0]);
    return this.ids.at(-1) === this.marks[1] || length >= this.data.talk.most;
  }
}

/** What was said, and a line for the next message; without one, the model answers the message that waits. */
function talkBar(session) {
  const log = element("div", { class: "log", role: "log", tabindex: 0, "aria-label": "The conversation" });
  const box = element("input", { type: "text", "aria-label": "Your message", placeholder: "Your message", dir: "auto" });
  const send = (event) => {
    event.preventDefault();
    const message = box.value.trim() || (session.turns.length % 2 && session.turns.at(-1)); // one that was begun
    if (message) session.say(message);
    box.value = "";
    session.writer.start();
  };
  session.showText = () => {
    log.setAttribute("aria-busy", !session.ended); // an answer is read aloud when it is complete
    const lines = (turns) => turns.map((turn) => element("p", { dir: "auto" }, turn));
    const old = element("div", { class: "forgotten" }, ...lines(session.forgotten), "Above: what the model has forgotten.");
    log.replaceChildren(...(session.forgotten.length ? [old] : []), ...lines(session.turns));
    log.scrollTop = log.scrollHeight;
  };
  session.onChange(session.showText);
  const line = element("form", { onsubmit: send }, box, element("button", { class: "main" }, "Answer"));
  return element("div", { class: "textbar talk" }, log, line);
}
