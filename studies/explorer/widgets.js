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

/** A table with a caption, named columns and a body of rows; a column whose name begins with # holds numbers. */
function table(caption, columns, body) {
  const heads = columns.map((name) =>
    element("th", { scope: "col", class: name.startsWith("#") ? "number" : undefined }, name.replace("#", "")),
  );
  const parts = [element("caption", {}, caption), element("thead", {}, element("tr", {}, ...heads)), body];
  return element("div", { class: "scroll" }, element("table", {}, ...parts));
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

/** A colour behind a text, the stronger the larger the share: at most so strong that the text stays readable. */
function shade(share, colour = "--heat") {
  return `rgba(var(${colour}), calc(${share.toFixed(3)} * var(--strongest)))`;
}

/** A share in per cent, with as many digits as it needs. */
function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.01) return "< 0.01 %";
  return `${value.toFixed(value >= 10 ? 1 : 2)} %`;
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
  return () => {
    dirty = true;
    update();
  };
}

/**
 * A square for each weight: row t, column s; rows may differ in length. The stronger the colour, the more weight.
 * @param colour the property of the style sheet that has its red, green and blue
 */
function paintMap(canvas, rows, colour = "--heat") {
  [canvas.width, canvas.height] = [Math.max(...rows.map((row) => row.length)), rows.length];
  canvas.style.aspectRatio = `${canvas.width} / ${canvas.height}`;
  const [red, green, blue] = getComputedStyle(document.documentElement)
    .getPropertyValue(colour)
    .split(",")
    .map(Number);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  rows.forEach((row, t) =>
    row.forEach((weight, s) => {
      // The square root makes small weights visible.
      image.data.set([red, green, blue, 255 * Math.sqrt(weight)], 4 * (t * canvas.width + s));
    }),
  );
  context.putImageData(image, 0, 0);
}

/**
 * A button with a map for each of H heads in L layers, as a grid; pressing one calls choose(layer, head).
 * Returns the grid, its heads, each with its button (made) and map (canvas), and a function that marks the chosen one.
 */
function headGrid(L, H, choose) {
  const grid = element("div", { class: "heads", role: "group", "aria-label": "Heads; choose one" });
  grid.style.gridTemplateColumns = `repeat(${Math.min(H, 8)}, max-content)`;
  arrowKeys(grid, Math.min(H, 8));
  const heads = [];
  for (let layer = 0; layer < L; layer++) {
    for (let head = 0; head < H; head++) {
      const canvas = element("canvas");
      const name = `layer ${layer + 1}, head ${head + 1}`;
      const made = button("", () => choose(layer, head), { title: name, "aria-label": name });
      made.append(canvas, `${layer + 1} · ${head + 1}`);
      grid.append(made);
      heads.push({ layer, head, made, canvas });
    }
  }
  const mark = (layer, head) => {
    for (const one of heads) {
      const isChosen = one.layer === layer && one.head === head;
      one.made.setAttribute("aria-pressed", String(isChosen));
      one.made.tabIndex = isChosen ? 0 : -1;
    }
  };
  return { grid, heads, mark };
}

/** The width in pixels of a token in a line of tokens. */
function tokenWidth(label) {
  return 14 + 8.2 * Array.from(label).length;
}

/**
 * Tokens, given as labels and their buttons, in one line with room for arcs.
 * Returns its elements (parts), where a token's middle is (middle), and a function that draws the arcs of one token,
 * arcs(rows, position): to those that its row gives weight, and from those whose rows give weight to it.
 * @param twoSided a token can have arcs to and from the same other one, so those from others are drawn below
 */
function arcLine(labels, buttons, twoSided = false) {
  const height = 120;
  const widths = labels.map(tokenWidth);
  const starts = [0];
  for (const width of widths) starts.push(starts.at(-1) + width);
  const total = starts.at(-1);
  const middle = (t) => starts[t] + widths[t] / 2;
  const drawing = () =>
    svg("svg", { width: total, height, viewBox: `0 0 ${total} ${height}`, "aria-hidden": "true" });
  const above = drawing();
  const below = twoSided ? drawing() : above;
  if (twoSided) below.classList.add("below");
  buttons.forEach((made, t) => (made.style.width = `${widths[t]}px`));
  const arc = (from, to, weight, kind) => {
    const [a, b] = [middle(from), middle(to)];
    const top = Math.max(6, height - 8 - Math.abs(b - a) / 2);
    const path =
      from === to
        ? `M ${a - 4} ${height} C ${a - 12} ${height - 24}, ${a + 12} ${height - 24}, ${a + 4} ${height}`
        : `M ${a} ${height} C ${a} ${top - height / 4}, ${b} ${top - height / 4}, ${b} ${height}`;
    return svg("path", {
      d: path,
      class: `arc ${kind}`,
      "stroke-width": 1 + 5 * weight,
      "stroke-opacity": 0.15 + 0.85 * weight,
    });
  };
  const arcs = (rows, position) => {
    const shown = (weight) => weight > 0.01;
    const others = Array.from(rows.keys()).filter((t) => t !== position && shown(rows[t][position]));
    above.replaceChildren();
    below.replaceChildren(...others.map((t) => arc(t, position, rows[t][position], "from")));
    rows[position].forEach((weight, s) => shown(weight) && above.append(arc(position, s, weight, "to")));
    buttons.forEach((made, s) => {
      const weight = rows[position][s] ?? 0;
      made.style.backgroundColor = shown(weight) ? shade(0.15 + 0.85 * weight) : "";
    });
  };
  const line = element(
    "div",
    { class: "row", role: "group", "aria-label": "Tokens; focus one to see its arcs" },
    ...buttons,
  );
  return { parts: twoSided ? [above, line, below] : [above, line], middle, arcs };
}

/**
 * The lengths of the vectors at one position as bars, layer by layer: the stream, and what each part adds to it.
 * @param stream L + 1 lengths
 * @param added for each layer, those of attention and of the feed-forward part
 * @param said what to write below each line of the stream, as cells
 */
function lengthRows(stream, added, said = () => []) {
  const longest = Math.max(...stream, ...added.flat());
  const line = (name, length, kind, ...more) =>
    element(
      "div",
      { role: "row" },
      element("span", { role: "rowheader" }, name),
      element("span", { role: "cell" }, bar({ [kind]: length / longest })),
      element("span", { role: "cell", class: "number" }, length.toFixed(2)),
      ...more,
    );
  const parts = (lengths, layer) => [
    line(`attention ${layer + 1}`, lengths[0], "attention"),
    line(`feed-forward ${layer + 1}`, lengths[1], "mlp"),
    line(`after layer ${layer + 1}`, stream[layer + 1], "stream", ...said(layer + 1)),
  ];
  return [line("embedding", stream[0], "stream", ...said(0)), ...added.flatMap(parts)];
}

/** Let the browser paint and answer before a long computation continues. */
function pause() {
  return new Promise((resolve) => setTimeout(resolve));
}

/** Show the page as it is in the file, and then fill it: start(data). */
function startAfterPaint(start) {
  const status = document.getElementById("status");
  const begin = () => {
    try {
      start(readData());
      status.textContent = "";
      performance.mark("ready");
    } catch (error) {
      status.textContent = `This browser cannot run the page: ${error.message}`;
      throw error;
    }
  };
  requestAnimationFrame(() => setTimeout(begin)); // just before the first picture, and just after it
}

// --- data -----------------------------------------------------------------------------------------------------

function readData() {
  return JSON.parse(document.getElementById("data").textContent);
}

/** The bytes of an element with base64. */
function readBytes(name) {
  const binary = atob(document.getElementById(name).textContent);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Numbers of 16 bits: 1 for the sign, 5 for the power of 2, 10 for the digits. IEEE 754, binary16 */
function halfToNumber(bits) {
  const [sign, power, digits] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (power === 0) return sign * digits * 2 ** -24;
  if (power === 31) return digits ? NaN : sign * Infinity;
  return sign * (1 + digits / 1024) * 2 ** (power - 15);
}

/** All numbers of 16 bits in an element, by a table of the 65,536 values that they can have. */
function readHalves(name) {
  const table = Float32Array.from({ length: 1 << 16 }, (_, bits) => halfToNumber(bits));
  const bytes = readBytes(name);
  const numbers = new Float32Array(bytes.length / 2);
  for (let i = 0; i < numbers.length; i++) numbers[i] = table[bytes[2 * i] | (bytes[2 * i + 1] << 8)];
  return numbers;
}
