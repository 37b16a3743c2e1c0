"use strict";
/* The model as it is now, in the explorer: this page holds its page, without a model, and opens it in a new tab. */

function lookInside(learning) {
  const { characters, look, report } = learning;
  const { shape, line, temperature, prompt } = learning.settings;
  const [V, half] = [characters.length + 1, shape.n_embd / shape.n_head / 2];
  const frequencies = Array.from({ length: half }, (_, i) => 10000 ** (-i / half));
  const parts = { positions: "rotary", activation: "relu2", norm: "rmsnorm", norm_eps: 1e-5, norm_first: true };
  const sizes = { vocab_size: V, n_kv_head: shape.n_head, head_dim: 2 * half, frequencies };
  const fill = (_, begin, facts, end) => {
    const data = JSON.parse(facts);
    Object.assign(data, { context: shape.block_size, prompt: prompt || line, textless: [V - 1] });
    data.config = { ...shape, ...parts, ...sizes, qk_norm: true, scale: shape.attention_scale };
    data.tensors = Object.entries(new GPT(characters, shape, 1).weights).map(([name, { shape }]) => [name, shape]);
    data.tokenizer = { kind: "char", characters, specials: data.specials };
    [data.sampling.temperature, data.checkpoints] = [temperature, [report.step]];
    const json = JSON.stringify(data).replace(/[<>&]/g, (sign) => `\\u00${sign.charCodeAt(0).toString(16)}`);
    return `${begin}${json}${end}<script type="text/plain" id="weights-0">${base64Halves(look.weights)}${end}`;
  };
  const page = new TextDecoder().decode(readBytes("explorer")).replace(/(id="data">)([^<]*)(<\/script>)/, fill);
  window.open(URL.createObjectURL(new Blob([page], { type: "text/html" })));
}

/** Numbers as float16 in base64, which readHalves reads. */
function base64Halves(numbers) {
  const bytes = new Uint8Array(Uint16Array.from(numbers, numberToHalf).buffer);
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

/** The 16 bits of the number that is nearest: the inverse of halfToNumber. */
function numberToHalf(x) {
  const size = Math.min(Math.abs(x), 65504);
  const power = Math.max(Math.floor(Math.log2(size)), -14);
  const bits = Math.round(1024 * (size / 2 ** power + power + 14)); // what is below 2^-14 has no leading 1
  return bits | (x < 0 ? 1 << 15 : 0);
}
