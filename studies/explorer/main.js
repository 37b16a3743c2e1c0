"use strict";
/* The page is painted first; then the weights are decoded, and the panels begin. */

const PANELS = {
  text: textPanel,
  next: nextPanel,
  attention: attentionPanel,
  stream: streamPanel,
  surprise: surprisePanel,
  growing: growingPanel,
};

startAfterPaint((data) => {
  const session = data.recording ? new RecordedSession(data) : new LiveSession(data);
  for (const panel of data.panels) PANELS[panel](session);
  if (session.live) session.setText(data.prompt);
  else session.changed();
  window.session = session; // for the console: session.model().predict(...)
});
