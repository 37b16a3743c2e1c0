"use strict";
/*
 * From text to tokens: the kinds of text/tokenizers/ that this page computes, each as Python does.
 *
 * A tokenizer has pieces, the UTF-8 bytes of each token; encode(text), an array of ids; and unknown(text), the parts of
 * a text that become <unk>.
 *
 * Letters, numbers and white space are Python's: [^\W\d_], \d and \s of its regular expressions.
 */

const LETTER = "[\\p{L}\\p{Nl}\\p{No}]";
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const NO_SPACE = SPACE.replace("[", "[^");
const MAX_WORD = 64; // characters; longer words are cut

/** text/tokenizers/bpe.py, WORD_PATTERN: letters, a number, signs, underscores, line ends, white space. */
const WORD_PATTERN = new RegExp(
  [
    ` ?${LETTER}+(?:[\\u0300-\\u036f]+${LETTER}*)*`,
    " ?\\p{Nd}+",
    ` ?(?:(?![\\p{L}\\p{N}_])${NO_SPACE})+`,
    " ?_+",
    `(?:(?![\\r\\n])${SPACE})*[\\r\\n]+`,
    `${SPACE}+(?!${NO_SPACE})`,
    `${SPACE}+`,
  ].join("|"),
  "gu",
);
const PIECE_PATTERN = new RegExp(`${LETTER}+|[^]`, "gu"); // word.py: letters, or else any one character

/** The bytes of a text in UTF-8; half a surrogate pair, which UTF-8 has no form for, becomes three bytes. */
function utf8(text) {
  const bytes = [];
  for (const character of text) {
    const code = character.codePointAt(0);
    if (code < 0x80) bytes.push(code);
    else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 63));
    else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
    else bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 63), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
  }
  return bytes;
}

/** One form for texts that look alike, as training had it: line ends, byte order mark, Unicode's form NFC. */
function normalise(text) {
  return text
    .replace(/^\ufeff/, "")
    .replace(/\r\n?/g, "\n")
    .normalize("NFC");
}

/** Words of more than 64 characters in several pieces. */
function cutLong(words) {
  return words.flatMap((word) => {
    const characters = Array.from(word);
    if (characters.length <= MAX_WORD) return [word];
    const count = Math.ceil(characters.length / MAX_WORD);
    return Array.from({ length: count }, (_, i) => characters.slice(i * MAX_WORD, (i + 1) * MAX_WORD).join(""));
  });
}

/** One token for each character; an unknown one becomes <unk>. char.py */
class CharTokenizer {
  constructor({ characters, specials }) {
    this.ids = new Map(characters.map((character, id) => [character, id]));
    this.unknownId = characters.length + specials.indexOf("<unk>");
    this.pieces = characters.map(utf8);
  }

  split(text) {
    return Array.from(text);
  }

  encode(text) {
    return this.split(text).map((piece) => this.ids.get(piece) ?? this.unknownId);
  }

  unknown(text) {
    return new Set(this.split(text).filter((piece) => !this.ids.has(piece)));
  }
}

/** One token for each word, space or other character. word.py */
class WordTokenizer extends CharTokenizer {
  constructor({ words, specials }) {
    super({ characters: words, specials });
  }

  split(text) {
    return text.match(PIECE_PATTERN) ?? [];
  }
}

/**
 * Byte-pair encoding: a word begins as its bytes; of all pairs of neighbours, the one that was learned first becomes
 * one token, wherever it is, and so on. bpe.py, MergeTokenizer._encode_word
 */
class BPETokenizer {
  constructor({ merges }, base = Array.from({ length: 256 }, (_, byte) => [byte])) {
    this.first = base.length; // the id of the first merge
    this.merges = merges;
    this.merged = new Map(merges.map(([left, right], i) => [left * 2 ** 26 + right, this.first + i]));
    this.pieces = [...base];
    for (const [left, right] of merges) this.pieces.push([...this.pieces[left], ...this.pieces[right]]);
    this.known = new Map(); // words that were encoded before
  }

  split(text) {
    return cutLong(text.match(WORD_PATTERN) ?? []);
  }

  spell(word) {
    return utf8(word);
  }

  encode(text) {
    return this.split(text).flatMap((word) => {
      if (!this.known.has(word)) this.known.set(word, this.mergeAll(this.spell(word)));
      return this.known.get(word);
    });
  }

  mergeAll(ids) {
    for (;;) {
      const tokens = ids.slice(1).map((right, i) => this.merged.get(ids[i] * 2 ** 26 + right) ?? Infinity);
      const token = tokens.reduce((a, b) => Math.min(a, b), Infinity); // what was learned first has the lowest id
      if (token === Infinity) return ids;
      ids = mergePair(ids, this.merges[token - this.first], token);
    }
  }

  unknown() {
    return new Set();
  }
}

/** Replace a pair of neighbouring ids by one token, from left to right. */
function mergePair(ids, [left, right], token) {
  const result = [];
  for (let i = 0; i < ids.length; i++) {
    if (ids[i] === left && ids[i + 1] === right) {
      result.push(token);
      i++;
    } else result.push(ids[i]);
  }
  return result;
}

/** Byte-pair encoding on characters, with a mark at each word's end, here a space. end_of_word.py */
class EndOfWordTokenizer extends BPETokenizer {
  constructor({ characters, merges, specials }) {
    super({ merges }, [...characters, " "].map(utf8));
    this.ids = new Map([...characters, " "].map((character, id) => [character, id]));
    this.unknownId = this.pieces.length + specials.indexOf("<unk>");
  }

  split(text) {
    const words = text.split(new RegExp(`${SPACE}+`, "u")).filter((word) => word);
    return cutLong(words.map((word) => word + " "));
  }

  spell(word) {
    return Array.from(word, (character) => this.ids.get(character) ?? this.unknownId);
  }

  unknown(text) {
    return new Set(this.split(text).flatMap((word) => Array.from(word).filter((c) => !this.ids.has(c))));
  }
}

/** One token for each byte: byte-pair encoding without merges. byte.py */
class ByteTokenizer extends BPETokenizer {
  constructor() {
    super({ merges: [] });
  }
}

const TOKENIZERS = {
  char: CharTokenizer,
  byte: ByteTokenizer,
  word: WordTokenizer,
  bpe: BPETokenizer,
  "bpe-w": EndOfWordTokenizer,
};

/** A tokenizer from the JSON of its checkpoint, with a piece for each special: only <unk> is visible. */
function makeTokenizer(description) {
  const tokenizer = new TOKENIZERS[description.kind](description);
  for (const name of description.specials) tokenizer.pieces.push(name === "<unk>" ? utf8("\ufffd") : []);
  return tokenizer;
}

/** The text of tokens; bytes that are not UTF-8 become U+FFFD. */
function decode(pieces, ids) {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(ids.flatMap((id) => pieces[id])));
}

/** One token in readable form: blanks and control characters visible, incomplete characters as bytes. */
function labelOf(pieces, specials, token) {
  const special = token - (pieces.length - specials.length);
  if (special >= 0 && specials[special] !== undefined) return specials[special];
  const bytes = pieces[token];
  try {
    return visible(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes)));
  } catch {
    const hex = (byte) => `\\x${byte.toString(16).padStart(2, "0")}`;
    return bytes.map((byte) => (byte > 32 && byte < 127 ? String.fromCharCode(byte) : hex(byte))).join("");
  }
}
