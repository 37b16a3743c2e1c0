"""Broken or malicious tokenizers, presets, corpora and tables are used, or refused with the reason."""

import functools
import json
from pathlib import Path

import pytest

from extra.families import SEQ2SEQ
from extra.gpt.options import GPTOptions
from extra.plots import training
from extra.tokenizers.end_of_word import EndOfWordTokenizer
from extra.tokenizers.huggingface import HFTokenizer
from extra.tokenizers.wordpiece import WordPieceTokenizer
from families import FAMILIES
from seq2seq.corpus import load_pairs
from tests.extra.tokenizers.test_huggingface import gpt2_definition
from tests.gpt.configs import Seq2SeqOptions
from tests.reliability.mutations import harmless, many, odd_bytes, odd_json, traced
from tests.tiny_runs import ROOT, made_up_text
from text.tokenizers import tokenizer_from_json
from text.tokenizers.base import StreamDecoder
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from text.tokenizers.word import WordTokenizer
from tinygrad_lite.errors import CorpusError, TokenizerError, UserError
from training import start
from training.cli.options import build, read_preset
from training.corpora.texts import load_corpus

SEED = 20240712
TEXT = made_up_text(60)
PRESETS = sorted((ROOT / "presets").glob("**/*.toml"))


# --- tokenizers -------------------------------------------------------------------------------------------------------

TOKENIZERS = [
    CharTokenizer.train(TEXT),
    ByteTokenizer(["<pad>", "<eos>"]),
    WordTokenizer.train(TEXT, 40),
    BPETokenizer.train(TEXT, 290, ["<eos>"]),
    EndOfWordTokenizer.train(TEXT, 60),
    WordPieceTokenizer.train(TEXT, 90),
]


def read_and_write(data: object) -> None:
    """Make a tokenizer from its JSON form, and use all its methods."""
    tokenizer = tokenizer_from_json(data)
    for text in (TEXT, "\ud800 \0 <eos> ß\U0001f600", ""):
        ids = tokenizer.encode(text)
        assert all(0 <= token < tokenizer.vocab_size for token in ids)
        stream = StreamDecoder(tokenizer)
        streamed = "".join([*map(stream.push, ids), stream.finish()])
        assert streamed.removeprefix(" " if tokenizer.kind == "wordpiece" else "") == tokenizer.decode(ids)
        tokenizer.unknown(text)
    for token in range(min(tokenizer.vocab_size, 300)):
        assert tokenizer.render(token).isprintable()
    again = tokenizer_from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert again.to_json() == tokenizer.to_json()


@many(150, 3000)
def test_a_broken_tokenizer_works_or_is_refused(count, tried_many):
    forms = [tokenizer.to_json() for tokenizer in TOKENIZERS]

    def attempt(rng):
        return functools.partial(read_and_write, odd_json(rng, rng.choice(forms)))

    what = f"broken tokenizers of {len(forms)} kinds"
    tried_many(count, SEED, what, attempt, allowed=TokenizerError, used=0.05)


def test_merges_that_keep_doubling_a_word_are_refused_in_little_memory():
    merges = [[97, 97], *([256 + i] * 2 for i in range(60))]
    with traced() as most:
        with pytest.raises(TokenizerError, match="no word has more"):
            tokenizer_from_json({"kind": "bpe", "merges": merges, "specials": []})
        assert most() < 20 * 2**20


@many(100, 2000)
def test_a_broken_tokenizer_of_gpt2_works_or_is_refused(count, tried_many, tokenizers):
    """A damaged file can make the package `tokenizers` end its process, and with it all tests."""
    good = json.loads(HFTokenizer(gpt2_definition()).definition)
    large = {name: good["model"].pop(name) for name in ("vocab", "merges")}  # most of the file

    def use(definition: str) -> None:
        tokenizer = HFTokenizer(definition, 300)
        tokenizer.decode(tokenizer.encode("Es irrt der Mensch ä <|endoftext|>" + " " * 50))
        assert HFTokenizer(tokenizer.definition, 300).definition == tokenizer.definition

    def attempt(rng):
        tree = odd_json(rng, good)
        if isinstance(tree.get("model"), dict):
            tree["model"] = large | tree["model"]
        return functools.partial(use, json.dumps(tree))

    tried_many(count, SEED, "broken tokenizer.json", attempt, allowed=TokenizerError, used=0.05)


# --- presets, corpora and tables of losses ---------------------------------------------------------------------------


def use_preset() -> None:
    values = read_preset(Path("odd.toml"))
    family = start.family_of(values, FAMILIES)
    values.pop("family", None)
    options = build(family.options, ("preset odd", values))
    options.check()
    json.dumps(options.noted())


def use_text(kind: str) -> None:
    options = {"text": ["odd.txt"], "tokenizer": kind, "vocab_size": 300, "block_size": 4}
    FAMILIES["gpt"].make_task(build(GPTOptions, ("test", options))).unknown()


def use_pairs() -> None:
    options = {"pairs": "odd.tsv", "tokenizer": "char", "block_size": 64, "batch_tokens": 200}
    SEQ2SEQ.make_task(build(Seq2SeqOptions, ("test", options))).unknown()


HEADER = "step,loss,learning_rate,grad_norm,tokens_per_second,val_loss,bits_per_char,bleu,chrf,exact\n"
LOSSES = [f"{i},{3 / (i + 1):.4f},0.001,1,100,{'' if i % 5 else 2.5},3.6,,,\n" for i in range(20)]
PAIRS = "".join(f"Satz {i} ist lang.\tSentence {i} is long.\n" for i in range(100))
TEXTS = {f"text for the tokenizer {kind}": kind for kind in ("char", "byte", "bpe", "word")}
# What it is, its file, whole ones to break, and a function that uses the file.
FILES = [
    ("preset", "odd.toml", [path.read_bytes() for path in PRESETS], use_preset),
    ("table of pairs", "odd.tsv", [PAIRS.encode()], use_pairs),
    ("table of losses", "odd.csv", [(HEADER + "".join(LOSSES)).encode()], lambda: training.read_run(Path("odd.csv"))),
    *((name, "odd.txt", [made_up_text(100).encode()], functools.partial(use_text, TEXTS[name])) for name in TEXTS),
]


@many(50, 1000)
@pytest.mark.parametrize(("what", "path", "good", "use"), FILES, ids=[row[0] for row in FILES])
def test_a_broken_file_is_used_or_refused(what, path, good, use, count, tried_many):
    def attempt(rng):
        Path(path).write_bytes(odd_bytes(rng, rng.choice(good)))
        return use

    tried_many(count, SEED + 1, f"files in place of a {what}", attempt, used=0.05, refused=0)


def test_the_name_of_a_corpus_cannot_lead_out_of_the_cache(workplace):
    for name in ("../text", "goethe/../x", "/etc/hostname/x", "..", "goethe\0", "C:\\x"):
        with harmless(workplace), pytest.raises(CorpusError):
            load_corpus(name, say=lambda line: None)
        with harmless(workplace), pytest.raises(UserError):
            load_pairs(build(Seq2SeqOptions, ("test", {"dataset": name})))
