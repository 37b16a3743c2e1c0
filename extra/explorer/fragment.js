"use strict";
/*
 * The view in the address: #text=...&at=5&head=3.1&off=1.0&temperature=0.5&panel=attention&note=... A link leads to
 * exactly what was seen; positions, layers and heads are counted from 1.
 */

const SLIDERS = ["temperature", "topK", "topP", "minP"];
const MAX_NOTE = 200; // characters

function moved(name, by) {
  return name.split(".").map((number) => Number(number) + by).join(".");
}

/** What is seen, as the fragment of an address; of the sliders, those that were moved. */
function addressOf(session, more = {}) {
  const state = { at: session.selected + 1, head: moved(session.head.join("."), 1) };
  if (session.live) state.text = session.text(session.ids);
  if (session.off.size) state.off = Array.from(session.off, (name) => moved(name, 1)).join();
  for (const name of SLIDERS) {
    if (session.data.sampling[name] !== session.sliders[name].first) state[name] = session.data.sampling[name];
  }
  if (session.data.checkpoints?.[session.checkpoint] && session.checkpoint !== session.data.selected) {
    state.step = session.data.checkpoints[session.checkpoint];
  }
  return new URLSearchParams({ ...state, ...more });
}

function keepInAddress(session) {
  /** Scroll to a panel, and stay there while the panels above it are drawn. */
  const goTo = (name) => {
    if (!session.data.panels.includes(name)) return;
    const scroll = () => document.getElementById(name).scrollIntoView({ behavior: "instant" });
    const drawn = new ResizeObserver(scroll);
    drawn.observe(document.body);
    for (const event of ["wheel", "touchstart", "keydown", "pointerdown"]) {
      window.addEventListener(event, () => drawn.disconnect(), { once: true, passive: true });
    }
    setTimeout(() => drawn.disconnect(), 1500);
  };

  /** Show what the address asks for. */
  const read = () => {
    if (!location.hash.includes("=")) {
      goTo(location.hash.slice(1));
      return false;
    }
    const asked = new URLSearchParams(location.hash.slice(1));
    const { n_layer: L, n_head: H } = session.data.config;
    const heads = new Set(Array.from({ length: L * H }, (_, i) => `${Math.floor(i / H)}.${i % H}`));
    const named = (text) => (text ?? "").split(",").map((name) => moved(name, -1)).filter((name) => heads.has(name));
    for (const name of SLIDERS) {
      const value = parseFloat(asked.get(name));
      if (Number.isFinite(value)) session.sliders[name].move(value);
    }
    const step = session.data.checkpoints?.indexOf(Number(asked.get("step"))) ?? -1;
    if (asked.has("step") && step >= 0) session.setCheckpoint(step);
    if (session.live && asked.has("text")) {
      session.setText(asked.get("text"));
      session.showText();
    }
    if (session.live && asked.has("off")) {
      session.off = new Set(named(asked.get("off")));
      session.recompute();
    }
    const [head] = named(asked.get("head"));
    if (head) session.chooseHead(...head.split(".").map(Number));
    if (asked.has("at")) session.select(Number(asked.get("at")) - 1);
    if (asked.get("note")) showNote(asked.get("note").slice(0, MAX_NOTE));
    goTo(asked.get("panel"));
    return true;
  };
  let timer = 0;
  const found = read();
  session.onChange(() => {
    clearTimeout(timer);
    timer = setTimeout(() => history.replaceState(null, "", `#${addressOf(session)}`), 300);
  });
  window.addEventListener("hashchange", read);
  return found;
}

/** What a reader found, who sent the link. */
function showNote(text) {
  document.querySelector(".finding")?.remove();
  document.querySelector("header .lead").after(element("p", { class: "finding" }, text));
}
