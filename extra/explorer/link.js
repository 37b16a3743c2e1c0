"use strict";
/* A link to what is seen, to be sent to somebody else. */

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
