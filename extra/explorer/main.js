"use strict";
/* The page is painted first; then the weights are decoded, and the stage and the panels begin. */

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
  makeStage(session);
  for (const panel of data.panels) {
    const title = document.querySelector(`#${panel} h2`);
    title.after(copyLink(session, panel, "", () => "", `Copy a link to: ${title.textContent}`));
    PANELS[panel](session);
  }
  addTour(session);
  if (data.talk) session.setIds(data.talk.ids);
  else if (session.live) session.setText(data.prompt);
  session.showText();
  const isAsked = keepInAddress(session);
  if (!isAsked) session.changed();
  if ((!isAsked || ONLY === "stage") && !data.talk) session.writer.softly(); // until the reader touches anything
  window.session = session; // for the console: session.model().predict(...)
});
