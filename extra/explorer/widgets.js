"use strict";
/*
 * Small parts that all pages share: elements, sliders, data, texts made visible. Text is always set as text, never as
 * HTML, so that no token or prompt can become part of the page.
 */

/** An element with attributes and children; a child that is a string becomes text. on... attributes are handlers. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** The same for drawings. */
function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Where a panel shows its contents. */
function bodyOf(panel) {
  return document.querySelector(`#${panel} .body`);
}

/** A slider with its name and its value in words; moving it calls change(value) at once. */
function slider(name, { min, max, step, value, words = String, change, hint }) {
  const input = element("input", { type: "range", min, max, step, value });
  const output = element("output");
  const show = () => {
    output.textContent = words(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => {
    show();
    change(Number(input.value));
  });
  show();
  const label = element("label", { class: "slider", title: hint }, element("span", {}, name), input, output);
  label.value = () => Number(input.value);
  label.set = (number) => {
    input.value = number;
    show();
  };
  return label;
}

function button(name, click, attributes = {}) {
  return element("button", { type: "button", onclick: click, ...attributes }, name);
}

/**
 * The arrow keys move between the buttons of a group, which has one stop for the Tab key: the button of tabindex 0.
 * @param columns of buttons in a row, for the keys up and down
 */
function arrowKeys(group, columns = 1) {
  const buttons = () => Array.from(group.querySelectorAll("button"));
  group.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    const next = step && buttons()[buttons().indexOf(document.activeElement) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  group.addEventListener("focusin", (event) => {
    for (const one of buttons()) one.tabIndex = one === event.target ? 0 : -1;
  });
}

/** A button that copies a link to what is seen, at this panel; addressOf is that of the page. */
function copyLink(session, panel, words = "Copy link", note = () => "", name = undefined) {
  const said = (text) => {
    made.textContent = text;
    setTimeout(() => (made.textContent = words), 1800);
  };
  const copy = async () => {
    const more = { ...(panel ? { panel } : {}), ...(note() ? { note: note() } : {}) };
    history.replaceState(null, "", `#${addressOf(session, more)}`);
    try {
      await navigator.clipboard.writeText(location.href);
      said("Copied");
    } catch {
      said("It is in the address bar");
    }
  };
  const made = button(words, copy, { class: "copy", "aria-label": name, title: "copy a link to what is shown" });
  return made;
}

/** Mark the chosen one of some buttons, which is also where the Tab key stops. */
function press(buttons, position) {
  buttons.forEach((made, t) => {
    made.setAttribute("aria-pressed", String(t === position));
    made.tabIndex = t === position ? 0 : -1;
  });
}

/** Let each of some buttons call show(number) when it has the focus or the pointer. */
function onPoint(buttons, show) {
  buttons.forEach((made, t) => {
    made.addEventListener("pointerenter", () => show(t));
    made.addEventListener("focus", () => show(t));
  });
}

/** The n most probable tokens, or largest shares, best first, and of equal ones the first: [{token, p}, ...]. */
function best(probabilities, n) {
  const found = [];
  probabilities.forEach((p, token) => {
    if (found.length === n && !(p > found[n - 1].p)) return;
    const at = found.findIndex((one) => p > one.p);
    found.splice(at < 0 ? found.length : at, 0, { token, p });
    if (found.length > n) found.pop();
  });
  return found;
}

/** A table with a caption, named columns and a body of rows; a column whose name begins with # holds numbers. */
function table(caption, columns, body) {
  const heads = columns.map((name) =>
    element("th", { scope: "col", class: name.startsWith("#") ? "number" : undefined }, name.replace("#", "")),
  );
  const parts = [element("caption", {}, caption), element("thead", {}, element("tr", {}, ...heads)), body];
  // Where it is wider than the window, the arrow keys scroll it.
  const region = { class: "scroll", tabindex: 0, role: "region", "aria-label": caption };
  return element("div", region, element("table", {}, ...parts));
}

/** A horizontal bar of this share of its width; several shares lie on top of each other. */
function bar(shares) {
  const parts = Object.entries(shares).map(([kind, share]) => {
    const part = element("span", { class: kind });
    part.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
    return part;
  });
  return element("span", { class: "bar", "aria-hidden": "true" }, ...parts);
}

/** What the colours of a picture mean: words by class. */
function legend(kinds) {
  const parts = Object.entries(kinds).flatMap(([kind, words]) => [element("span", { class: `swatch ${kind}` }), words]);
  return element("p", { class: "legend soft" }, ...parts);
}

/** A colour behind a text, the stronger the larger the share: at most so strong that the text stays readable. */
function shade(share, colour = "--heat") {
  return `rgba(var(${colour}), calc(${share.toFixed(3)} * var(--strongest)))`;
}

/** A share in per cent, with as many digits as it needs. */
function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.01) return "< 0.01%";
  return `${value.toFixed(value >= 10 ? 1 : 2)}%`;
}

/** Lists of parts, with commas between them: [a, 1], [b, 2] becomes a 1, b 2. */
function enumerated(lists) {
  return lists.flatMap((parts, i) => (i ? [", ", ...parts] : parts));
}

function grouped(number) {
  return number.toLocaleString("en");
}

/** A number with what it counts: 1 token, 2 tokens. */
function counted(number, name) {
  return `${grouped(number)} ${name}${number === 1 ? "" : "s"}`;
}

/** A text with its blanks, line ends and invisible characters made visible. */
function visible(text) {
  return text
    .replace(/ /g, "·")
    .replace(/\n/g, "↵")
    .replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/** A text as a token. */
function token(text, attributes = {}) {
  return element("code", { class: "token", ...attributes }, visible(text));
}

/** Call render after each change, but at most once per picture, and only while its panel can be seen. */
function whenVisible(panel, render) {
  let [dirty, seen, asked] = [true, false, false];
  const update = () => {
    if (!dirty || !seen || asked) return;
    asked = true;
    requestAnimationFrame(() => {
      [dirty, asked] = [false, false];
      render();
    });
  };
  new IntersectionObserver(
    (entries) => {
      seen = entries.at(-1).isIntersecting;
      update();
    },
    { rootMargin: "200px" },
  ).observe(document.getElementById(panel));
  window.addEventListener("beforeprint", () => {
    if (dirty) render();
    dirty = false;
  });
  return () => {
    dirty = true;
    update();
  };
}

/** On paper, what is folded away is open. */
for (const [event, isOpen] of [["beforeprint", true], ["afterprint", false]]) {
  window.addEventListener(event, () => {
    for (const one of document.querySelectorAll("details.why")) one.open = isOpen;
  });
}

/** Let the browser paint and answer before a long computation continues. */
function pause() {
  return new Promise((resolve) => setTimeout(resolve));
}

/** Whether what moves by itself must stand still. */
function isStill() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Take so many steps by itself, until the reader touches the page; none for readers who want no motion. */
function walkAlone(step, count) {
  const timer = isStill() ? null : setInterval(() => (count-- > 0 ? step() : clearInterval(timer)), 1100);
  for (const kind of ["pointerdown", "keydown", "wheel", "input"]) {
    window.addEventListener(kind, () => clearInterval(timer), { once: true, passive: true });
  }
}

/** The part of the page that the address asks for alone, as in #only=stage: so another page shows it in a frame. */
const ONLY = new URLSearchParams(location.hash.slice(1)).get("only") ?? "";

/** Hide the rest of the page, once its parts are made. */
function showOnly() {
  const part = document.getElementById(ONLY);
  if (!part?.closest("main")) return;
  document.documentElement.classList.add("framed");
  part.classList.add("shown");
}

/** Show the page as it is in the file, and then fill it: start(data). */
function startAfterPaint(start) {
  const status = document.getElementById("status");
  const begin = () => {
    try {
      setFormulas();
      start(readData());
      showOnly();
      status.textContent = "";
    } catch (error) {
      status.textContent = `This browser cannot run the page: ${error.message}`;
      throw error;
    }
  };
  requestAnimationFrame(() => setTimeout(begin)); // just before the first picture, and just after it
}
