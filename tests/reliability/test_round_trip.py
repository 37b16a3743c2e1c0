"""Byte-level tokens decode to exactly the text that was encoded, in time linear in its length."""

import random
import unicodedata

import pytest

from tests.reliability.tiny_models import KINDS, TEXT, WRITERS, guard, random_text
from text.tokenizers.base import StreamDecoder, Tokenizer
from text.tokenizers.bpe import BPETokenizer
from training.corpora.cleaning import normalise

BYTE_LEVEL = [kind for kind in ("byte", "bpe", "hf") if kind in KINDS]
LOSSLESS = [*BYTE_LEVEL, "pairs-byte", "pairs-bpe"]


def check(tokenizer: Tokenizer, text: str, tried: str) -> None:
    """Check that the text is restored, decoded at once and token by token, without special tokens.

    Hugging Face's package joins surrogate pairs, and has U+FFFD for a lone surrogate.
    """
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    expected = joined if tokenizer.kind == "hf" else text
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == expected, f"{tried}: {text!r}"
    stream = StreamDecoder(tokenizer)
    assert "".join([*map(stream.push, ids), stream.finish()]) == expected, f"{tried}: {text!r}"
    assert not set(ids) & set(tokenizer.specials.values()), f"{tried}: {text!r}"


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", LOSSLESS)
def test_random_texts_survive_a_round_trip(kind, count):
    tokenizer = KINDS[kind][1]()
    for seed in range(count):
        text = random_text(random.Random(seed))
        check(tokenizer, text, f"{kind}, seed {seed}")


# --- long texts without a break ---------------------------------------------------------------------------------


def unbroken(size: int) -> dict[str, str]:
    """Long texts in one line, each of which could provoke quadratic time in a different way."""
    rng = random.Random(size)
    return {
        "one letter": "a" * size,
        "letters": "".join(rng.choices("abcdefghijklmnopqrstuvwxyzäöü", k=size)),
        "no spaces": ("".join(TEXT.split()) * (size // 1000))[:size],
        "blanks and a letter": "\t" * (size - 1) + "x",
        "marks": "\u0301\u0316" * (size // 2),
        "marks that are two": "a" + "\u0344\u0f73" * (size // 2),
        "Chinese characters": "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(size)),
        "specials": "<|endoftext|><eos>" * (size // 18),
    }


@pytest.fixture(scope="module")
def many_merges():
    """Enough merges that a very long word would be scanned again and again."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyzäöü", k=7)) for _ in range(4000)]
    return BPETokenizer.train(" ".join(words), 2000)


@pytest.mark.parametrize("size", [50_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", unbroken(2000))
def test_long_lines_do_not_take_quadratic_time(what, size, many_merges):
    """Quadratic time would be hours; the guard is far above what linear time needs."""
    tokenizers = {kind: KINDS[kind][1]() for kind in WRITERS} | {"bpe of 2,000 tokens": many_merges}
    with guard(600 if size > 10**6 else 4):
        text = unbroken(size)[what]
        normalise(text)
        for kind, tokenizer in tokenizers.items():
            ids = tokenizer.encode(text)
            assert kind not in BYTE_LEVEL or tokenizer.decode(ids) == text
            assert kind not in ("char", "word") or tokenizer.unknown(text) or tokenizer.decode(ids) == text


@pytest.mark.parametrize("count", [1000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_normalised_text_is_in_form_nfc(count):
    """Letters with up to 199 marks, and anything that composes, decomposes or is reordered."""
    places = (*range(0x2000), *range(0x2FF0, 0x3200), *range(0xA000, 0xFB50), *range(0x11000, 0x11A00))
    composing = [
        chr(i) for i in places if unicodedata.normalize("NFD", chr(i)) != chr(i) or unicodedata.combining(chr(i))
    ]
    composing += [chr(i) for i in range(0x1100, 0x1200)]  # the parts of Korean syllables
    for seed in range(count):
        rng = random.Random(seed)
        text = "".join(rng.choices(composing, k=rng.randrange(9)))
        if rng.random() < 0.02:
            text += "a" + "".join(rng.choices("\u0301\u0316\u3099\u0345\U0001f642", k=rng.randrange(200)))
        if rng.random() < 0.5:
            text = unicodedata.normalize("NFD", text)
        assert normalise(text) == unicodedata.normalize("NFC", text), f"seed {seed}: {text!a}"
