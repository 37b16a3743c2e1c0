"use strict";
/* The page is painted first; then the weights are decoded, and the panels begin. */

const PANELS = {
  text: textPanel, next: nextPanel, attention: attentionPanel, stream: streamPanel, surprise: surprisePanel,
  growing: growingPanel,
};

function start() {
  const data = readData();
  const session = data.recording ? new RecordedSession(data) : new LiveSession(data);
  for (const panel of data.panels) PANELS[panel](session);
  if (session.live) session.setText(data.prompt);
  else session.changed();
  document.getElementById("status").textContent = "";
  window.session = session; // for the console: session.model().predict(...)
  performance.mark("ready");
}

// After the next picture: requestAnimationFrame runs just before it, the timer after it.
requestAnimationFrame(() => setTimeout(() => {
  try {
    start();
  } catch (error) {
    document.getElementById("status").textContent = `This browser cannot run the page: ${error.message}`;
    throw error;
  }
}));
