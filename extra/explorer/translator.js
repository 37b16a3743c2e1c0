"use strict";
/*
 * The translation model of this page: the same formulas as seq2seq/model.py, with the parts of model.js.
 *
 *   source -> embedding -> n_layer blocks, in which each position attends to all -> memory, S vectors of C numbers
 *   token  -> embedding -> n_layer blocks, which attend to what was written, and to the memory -> logits (V)
 */

class Translator extends GPT {
  /** What a token is, times sqrt(C), plus where it stands, unless attention says that: -> (C). */
  embed(token, t, table) {
    const x = this.row("token_embedding.weight", token).map((value) => value * Math.sqrt(this.config.n_embd));
    if (this.config.positions === "learned") return add(x, this.row(`${table}.weight`, t));
    return this.config.positions === "sinusoidal" ? add(x, sinusoidal(t, x.length)) : x;
  }

  /** One part of a block, for all positions, with its norm: xs and compute(xs) are added. */
  part(xs, name, compute) {
    const isFirst = this.config.norm_first;
    const ys = compute(isFirst ? xs.map((x) => this.norm(x, `${name}_norm`)) : xs);
    return xs.map((x, i) => (isFirst ? add(x, ys[i]) : this.norm(add(x, ys[i]), `${name}_norm`)));
  }

  mlp(xs, name) {
    return this.part(xs, name, (inputs) => inputs.map((x) => this.feedForward(x, name)));
  }

  /** Read a sentence: of each layer of the decoder, the keys and values of all S positions of the memory. */
  encode(source) {
    let xs = source.map((token, t) => this.embed(token, t, "source_positions"));
    for (let layer = 0; layer < this.config.n_layer; layer++) {
      const name = `encoder.${layer}`;
      xs = this.part(xs, `${name}.mixer`, (inputs) => {
        const [cache] = this.newCache();
        for (const x of inputs) this.remember(x, `${name}.mixer`, cache);
        return inputs.map((x, t) => this.attend(x, `${name}.mixer`, t, cache).y);
      });
      xs = this.mlp(xs, `${name}.mlp`);
    }
    const memory = this.config.norm_first ? xs.map((x) => this.norm(x, "encoder_norm")) : xs;
    const caches = this.newCache();
    caches.forEach((cache, layer) => memory.forEach((x) => this.remember(x, `decoder.${layer}.cross`, cache)));
    return caches;
  }

  /** After one more token of the translation: the logits of the next one (V), and the cross-attention by layer. */
  next(token, written, memory) {
    const t = written[0].keys.length;
    let xs = [this.embed(token, t, "target_positions")];
    const attention = written.map((cache, layer) => {
      const name = `decoder.${layer}`;
      let seen;
      xs = this.part(xs, `${name}.mixer`, ([x]) => {
        this.remember(x, `${name}.mixer`, cache);
        return [this.attend(x, `${name}.mixer`, t, cache).y];
      });
      xs = this.part(xs, `${name}.cross`, ([x]) => [(seen = this.attend(x, `${name}.cross`, t, memory[layer])).y]);
      xs = this.mlp(xs, `${name}.mlp`);
      return seen.weights;
    });
    const x = this.config.norm_first ? this.norm(xs[0], "decoder_norm") : xs[0];
    return { logits: linear(x, this.weights["token_embedding.weight"]), attention };
  }

  /**
   * Translate greedily: the most probable token at each step, until <eos>.
   * @param most tokens  @param forbidden tokens that are never chosen
   * Returns the tokens, and of each one the weights over the source with which it was chosen, by layer and head.
   */
  translate(source, { bos, eos, forbidden }, most) {
    const [memory, written, tokens, attention] = [this.encode(source), this.newCache(), [], []];
    for (let token = bos; token !== eos && tokens.length < most; ) {
      const seen = this.next(token, written, memory);
      for (const one of forbidden) seen.logits[one] = -Infinity;
      token = seen.logits.indexOf(Math.max(...seen.logits));
      tokens.push(token);
      attention.push(seen.attention);
    }
    return { tokens, attention };
  }
}
