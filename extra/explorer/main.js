"use strict";
/* The page is painted first; then the weights are decoded, and the panels begin. */

const PANELS = {
  whole: wholePanel,
  text: textPanel,
  next: nextPanel,
  attention: attentionPanel,
  stream: streamPanel,
  wanted: wantedPanel,
  patching: patchingPanel,
  surprise: surprisePanel,
  growing: growingPanel,
};

startAfterPaint((data) => {
  const session = new (data.recording ? RecordedSession : data.talk ? TalkSession : LiveSession)(data);
  for (const panel of data.panels) PANELS[panel](session);
  if (data.talk) session.setIds(data.talk.ids);
  else if (session.live) session.setText(data.prompt);
  if (!keepInAddress(session)) session.changed();
  window.session = session; // for the console: session.model().predict(...)
});
