"""Tokenizers turn text into a list of integers, which is all a model ever sees, and back.

Every tokenizer has the same interface, the class `Tokenizer`: a vocabulary of V tokens with the ids 0 .. V - 1.
Each id stands for a piece of text in UTF-8, and the pieces of a text, joined together, are the text again.
The ids of ordinary pieces come first and those of the specials (`<pad>`, `<bos>`, `<eos>`, `<unk>` ...) last.

This file has that interface and `StreamDecoder`, which decodes token by token while a model generates. The
kinds of tokenizer differ in their pieces: characters (`char.py`, the simplest), bytes (`byte.py`), whole words
(`word.py`), or something in between that is learned by byte-pair encoding (`bpe.py`; `end_of_word.py` for its original
form; `wordpiece.py` for BERT's). `python docs/extra/compare_tokenizers.py FILE` compares them.

    >>> from text.tokenizers.char import CharTokenizer
    >>> tokenizer = CharTokenizer.train("Mit Worten läßt sich trefflich streiten,")
    >>> tokenizer.encode("Worte")
    [3, 11, 12, 14, 5]
    >>> tokenizer.decode([3, 11, 12, 14, 5])
    'Worte'
"""

import codecs
import re
import reprlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Self

from tinygrad_lite.errors import TokenizerError
from training.cli.console import watched
from training.corpora.cleaning import normalise

UNKNOWN = "<unk>"
REPLACEMENT = "\ufffd"  # Unicode's replacement character, for what cannot be decoded
MAX_SPECIALS = 10_000
MAX_SPECIAL_LENGTH = 100  # characters
CACHED_WORDS = WATCHED_WORDS = 100_000
IN_JSON = {list: "a list", bool: "true or false", int: "a whole number", str: "a text"}


def _keep_surrogates(error: UnicodeError) -> tuple[str, int]:
    """Decode half a surrogate pair as itself and any other broken bytes as U+FFFD.

    Strict UTF-8 has no form for the code points U+D800 .. U+DFFF, yet Python strings may hold them: an
    argument from the shell that is not UTF-8 arrives that way. `to_utf8` writes them as three bytes each, and
    this handler reads exactly those back, so that decode(encode(text)) == text for every Python string.
    """
    try:
        return codecs.lookup_error("surrogatepass")(error)
    except UnicodeError:
        return codecs.lookup_error("replace")(error)


DECODE_ERRORS = "tinygrad_lite.keep_surrogates"
codecs.register_error(DECODE_ERRORS, _keep_surrogates)


def to_utf8(text: str) -> bytes:
    """The UTF-8 bytes of any Python string, unpaired surrogates included."""
    return text.encode("utf-8", "surrogatepass")


class Tokenizer:
    """A vocabulary and its two mappings: `encode` from text to ids, `decode` from ids to text.

    Each kind of tokenizer is a subclass that defines how it is learned from a text (`train`), how text becomes token
    ids if the names of specials are text too (`encode_text`), which parts of a text it cannot represent (`unknown`),
    and, in `parts`, what a checkpoint stores, each with its type: attributes, and the arguments of the same names from
    which `from_json` rebuilds the tokenizer.

    Args:
        pieces: the UTF-8 bytes of the ordinary tokens, in the order of their ids.
        specials: names of the special tokens, which get the ids after those; or a mapping from their names to their
            ids, where a pretrained model has them elsewhere.
    Raises: TokenizerError if the name of a special is empty, not printable, too long, or given twice.
    """

    kind = ""
    parts: ClassVar[Mapping[str, type]] = {"specials": list}
    needed: ClassVar[tuple[str, ...]] = ()  # the specials that every tokenizer of this kind has
    takes_size = True  # vocab_size says how many tokens it learns
    unknown_name = UNKNOWN
    is_foreign = False  # it came with a pretrained model, which reads text as it is
    added: Collection[int] = ()  # the ids of tokens that were added to a pretrained model's vocabulary by hand
    prefix: Sequence[int] = ()  # the ids with which a pretrained model expects every text to begin, such as <bos>

    def __init__(self, pieces: Sequence[bytes], specials: Iterable[str] | Mapping[str, int]):
        names = checked_specials(specials)
        self._pieces = list(pieces)
        if not isinstance(specials, Mapping):
            specials = {name: len(pieces) + i for i, name in enumerate(names)}
            self._pieces += [b""] * len(names)
        self.specials: dict[str, int] = dict(specials)
        for name, token in self.specials.items():
            # Specials have no text. Only <unk> is visible, since it replaces a part of the original.
            self._pieces[token] = REPLACEMENT.encode() if name == self.unknown_name else b""
        self.vocab_size: int = len(self._pieces)

    @property
    def textless(self) -> tuple[int, ...]:
        """The ids without text, which are never generated: specials, and rows that only pad the vocabulary.

        (GPT-2 has 50,257 tokens; many checkpoints have 50,304 rows, because a GPU is faster with multiples of 64.)
        """
        specials = set(self.specials.values())
        return tuple(token for token, piece in enumerate(self._pieces) if not piece or token in specials)

    def encode(self, text: str, allow_special: bool | Collection[str] = False) -> list[int]:
        """Turn text into token ids.

        User input is always text: the five characters `<eos>` are encoded like any other five. Only with
        `allow_special` does the name of a special stand for its id: all names if it is True, for prompts that the
        program itself assembles, or those in a list, such as ["[MASK]"] for the gaps that a user wants to be filled.
        (Ordinary text can produce only one special: <unk>, which some tokenizers use for an unknown character or word.)

        Raises: TokenizerError if a name in the list is not a special's.
        """
        names = self.specials if allow_special is True else allow_special or ()
        if not names:
            return self.encode_text(text)
        if missing := [name for name in names if name not in self.specials]:
            raise TokenizerError(f"this {self.kind} tokenizer has no special token {reprlib.repr(missing[0])}")
        longest_first = sorted(names, key=len, reverse=True)
        ids: list[int] = []
        for part in re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text):
            if part in names:
                ids.append(self.specials[part])
            elif part:
                ids.extend(self.encode_after(part) if ids else self.encode_text(part))
        return ids

    def encode_after(self, text: str) -> list[int]:
        """The ids of a text after a special token; for some pretrained models these differ from those at the start."""
        return self.encode_text(text)

    def prepare(self, text: str) -> str:
        """A text in the form of the one that this tokenizer was learned from: normalised if it was learned here."""
        return text if self.is_foreign else normalise(text)

    def encode_whole(self, text: str) -> list[int]:
        """The ids of a text from its beginning: those of `prefix`, then those of `encode`."""
        return [*self.prefix, *self.encode(text)]

    def decode(self, ids: Iterable[int]) -> str:
        """Turn token ids back into text.

        A model may output any sequence of ids, so bytes that are not UTF-8 become U+FFFD instead of an error.
        Specials are omitted, except <unk>, which also becomes U+FFFD.

        Raises: TokenizerError for an id outside 0 .. vocab_size - 1.
        """
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", DECODE_ERRORS)

    def token_bytes(self, token: int) -> bytes:
        """The UTF-8 bytes of one token, possibly only a part of a character; none for specials except <unk>."""
        # A list would count a negative id from its end and return a wrong token.
        if not 0 <= token < self.vocab_size:
            raise TokenizerError(
                f"token id {token} is not in this {self.kind} tokenizer, whose ids are 0 to "
                f"{self.vocab_size - 1}: decode with the tokenizer that belongs to the model"
            )
        return self._pieces[token]

    def render(self, token: int) -> str:
        r"""One token in readable form: control characters and incomplete bytes escaped, specials by name.

        >>> from text.tokenizers.char import CharTokenizer
        >>> tokenizer = CharTokenizer.train("ä\n")
        >>> [tokenizer.render(token) for token in range(tokenizer.vocab_size)]
        ['\\n', 'ä', '<unk>']
        """
        names = {special: name for name, special in self.specials.items()}
        text = names.get(token) or self.token_bytes(token).decode("utf-8", "backslashreplace")
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)

    def unknown(self, text: str) -> dict[str, int]:
        """The parts of a text that become <unk>, characters or words, each with its number of occurrences.

        Here there are none, as in the kinds that know every byte.
        """
        return {}

    def with_specials(self, names: Iterable[str]) -> "Tokenizer":
        """The same tokenizer with additional special tokens, whose ids come after all others."""
        return type(self).from_json(self.to_json() | {"specials": [*dict.fromkeys((*self.specials, *names))]})

    def to_json(self) -> dict:
        """Everything that `from_json` needs to rebuild this tokenizer, as JSON values."""
        return {"kind": self.kind} | {name: form(getattr(self, name)) for name, form in self.parts.items()}

    def folder_files(self) -> dict[str, str]:
        """The files in which Hugging Face's layout describes this tokenizer, by name; none for kinds that it lacks."""
        return {}

    @classmethod
    def from_json(cls, data: dict) -> Self:
        """Build a tokenizer of this kind from the output of its `to_json`, which may come from an untrusted file.

        Raises: TokenizerError with the reason if the data does not describe one.
        """
        if set(data) != {"kind", *cls.parts}:
            wrong = reprlib.repr(list(data))
            raise TokenizerError(f"this kind of tokenizer has the fields kind, {', '.join(cls.parts)}, not {wrong}")
        for name, form in cls.parts.items():
            if type(data[name]) is not form:
                raise TokenizerError(f"the tokenizer's {name} must be {IN_JSON[form]}, not {reprlib.repr(data[name])}")
        return cls(**{name: data[name] for name in cls.parts})

    def _require_unknown(self) -> int:
        """The id of <unk>, for the kinds that need it.

        Raises: TokenizerError if it is not among the specials.
        """
        if self.unknown_name not in self.specials:
            raise TokenizerError(f"a {self.kind} tokenizer needs the special {self.unknown_name} for unknown text")
        return self.specials[self.unknown_name]


class WordwiseTokenizer(Tokenizer):
    """The kinds that cut text into words and encode each word on its own, a frequent one only once.

    Each defines how text is cut into words, `split(text)`, and which tokens a word is made of, `encode_word(word)`.
    """

    def __init__(self, pieces: Sequence[bytes], specials: Iterable[str] | Mapping[str, int]):
        super().__init__(pieces, specials)
        self._cache: dict[str, list[int]] = {}

    def encode_text(self, text: str) -> list[int]:
        """Turn text into token ids, ignoring the names of specials."""
        ids: list[int] = []
        words = self.split(text)
        for word in words if len(words) < WATCHED_WORDS else watched(words, "tokenizing", len(words)):
            word_ids = self._cache.get(word)
            if word_ids is None:
                if len(self._cache) >= CACHED_WORDS:
                    self._cache.clear()
                word_ids = self._cache[word] = self.encode_word(word)
            ids.extend(word_ids)
        return ids


class StreamDecoder:
    """Decodes tokens one by one, and never returns half a character.

    A character may be spread over several tokens (ä is two bytes, an emoji four). `push` holds an incomplete
    character back until the rest arrives. The results of all `push` calls and a final `finish`, joined together,
    equal `tokenizer.decode` of all ids at once.

        >>> from text.tokenizers.bpe import BPETokenizer
        >>> stream = StreamDecoder(BPETokenizer(merges=[]))
        >>> [stream.push(token) for token in (115, 112, 195, 164, 116)]
        ['s', 'p', '', 'ä', 't']
        >>> stream.push(195), stream.finish()
        ('', '\ufffd')
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(DECODE_ERRORS)

    def push(self, token: int) -> str:
        """Take the next token; return the text that it completes, which may be empty."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """Return what is still held back, as U+FFFD, and reset for another text."""
        return self._decoder.decode(b"", final=True)


def checked_specials(specials: Iterable[str]) -> list[str]:
    """The names of special tokens as a list, each checked."""
    if isinstance(specials, str):
        raise TokenizerError(f"specials are a list of names such as [{UNKNOWN!r}], not one string")
    names = list(specials)
    if len(names) > MAX_SPECIALS:
        raise TokenizerError(f"{len(names)} special tokens are too many: at most {MAX_SPECIALS}")
    for name in names:
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_SPECIAL_LENGTH or not name.isprintable():
            raise TokenizerError(
                f"the name of a special token must have 1 to {MAX_SPECIAL_LENGTH} printable characters, "
                f"not {reprlib.repr(name)}"
            )
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise TokenizerError(f"the special token {reprlib.repr(twice[0])} is given twice")
    return names
