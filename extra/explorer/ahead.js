"use strict";
/*
 * What the model writes next: it is drawn ahead, a token at a time, and shown behind the text. Taking a token takes the
 * one that was shown, as long as nothing has changed that its draw depends on.
 */

const AHEAD = 14; // tokens

/**
 * Plans the continuation of a session's text, and calls show() when there is more of it.
 * Returns tokens(), those that are planned, and take(), the next draw: its token, its number u, and its probabilities.
 */
function planAhead(session, show) {
  const settings = session.data.sampling;
  const plan = { key: "", from: [], draws: [], cache: null, logits: null, task: 0 };
  const drawAfter = (logits) => {
    const probabilities = filterTokens(logSoftmax(logits), settings, session.forbidden);
    const u = Math.random(); // the browser's own; sample.py draws other numbers
    return { probabilities, u, token: draw(probabilities, u).token };
  };

  /** How many planned tokens the text has taken; -1 if it has become another one. */
  const taken = () => {
    const more = session.ids.length - plan.from.length;
    const planned = [...plan.from, ...plan.draws.map(({ token }) => token)];
    return more >= 0 && more <= plan.draws.length && session.ids.every((token, i) => token === planned[i]) ? more : -1;
  };

  const update = async () => {
    const key = JSON.stringify([Array.from(session.off), session.checkpoint, session.first, settings]);
    const more = key === plan.key ? taken() : -1;
    const own = ++plan.task;
    if (more < 0) {
      const cache = session.cache.map(({ keys, values }) => ({ keys: keys.slice(), values: values.slice() }));
      Object.assign(plan, { key, draws: [], cache, logits: session.logits(session.read.length - 1) });
    } else plan.draws.splice(0, more);
    plan.from = session.ids;
    while (plan.draws.length < AHEAD && plan.cache[0].keys.length < session.data.context && !session.ended) {
      await pause();
      if (own !== plan.task) return;
      const next = drawAfter(plan.logits);
      plan.draws.push(next);
      plan.logits = session.model().predict(next.token, plan.cache, session.off).logits;
      show();
    }
  };
  session.onChange(update);
  const take = () => {
    session.settle();
    const isReady = plan.draws.length && taken() === 0;
    return isReady ? plan.draws[0] : drawAfter(session.logits(session.read.length - 1));
  };
  return { take, tokens: () => (taken() < 0 ? [] : plan.draws.slice(taken()).map(({ token }) => token)) };
}
