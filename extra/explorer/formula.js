"use strict";
/* Formulas: panels.toml has them as text, such as softmax(Q K^T) or x_1^2; a browser sets them as MathML. */

const SIGNS = { "->": "→", "..": "…", "...": "…", "*": "·", "-": "−" };
const PARTS_OF_FORMULA = /(\s*)([\p{L}']{2,}(?:-\p{L}+| [\p{L}']{2,})*|\p{L}|\d+(?:\.\d+)?|->|\.{2,3}|\S)/gu;

/** One formula as a <math> element. _ and ^ make an index or a power of what follows them, (a) / (b) a fraction. */
function mathOf(text) {
  const found = Array.from(text.matchAll(PARTS_OF_FORMULA));
  const parts = found.map(([, , part]) => part);
  const make = (tag, ...children) => {
    const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
    made.append(...children);
    return made;
  };
  let at = 0;
  const row = (end) => {
    const made = [];
    while (at < parts.length && parts[at] !== end) {
      const isApart = found[at][1] && /[\p{L}\d(]/u.test(parts[at][0]) && made.length && made.at(-1).tagName !== "mo";
      if (isApart) made.push(make("mtext", "\u2005")); // signs have a space of their own
      made.push(item());
    }
    at++;
    return make("mrow", ...made);
  };
  const atom = () => {
    const part = parts[at++];
    if (part === "(") return make("mrow", make("mo", "("), row(")"), make("mo", ")"));
    if (part === "sqrt" && parts[at] === "(") return at++, make("msqrt", row(")"));
    if (/^\d/.test(part)) return make("mn", part);
    if (/^\p{L}/u.test(part)) return make(part.includes(" ") ? "mtext" : "mi", part);
    return make("mo", SIGNS[part] ?? part);
  };
  const bare = (made) => (made.firstChild?.textContent === "(" ? made.children[1] : made);
  const item = () => {
    const isGroup = parts[at] === "(";
    let made = atom();
    for (let tag; (tag = { _: "msub", "^": "msup" }[parts[at]]); made = make(tag, made, bare(atom()))) at++;
    if (!isGroup || parts[at] !== "/" || parts[at + 1] !== "(") return made;
    at++;
    return make("mfrac", bare(made), bare(atom()));
  };
  return make("math", row());
}

/** Set all formulas of the page, each part of one in a line of its own. */
function setFormulas() {
  for (const place of document.querySelectorAll(".formula")) {
    const lines = place.textContent.split(/;\s+|,?\s{3,}/).filter((line) => line.trim());
    place.replaceChildren(...lines.map((line) => element("div", {}, mathOf(line))));
  }
}
