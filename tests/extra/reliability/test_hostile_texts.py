"""Broken or malicious tokenizers, presets, corpora and tables are used, or refused with the reason."""

import functools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import train
from docs.course import check
from extra.corpora.texts import gutenberg_text
from extra.families import SEQ2SEQ
from extra.gpt.options import GPTOptions
from extra.plots import training
from extra.studies import baselines
from extra.studies import scores as evaluate
from extra.tokenizers.end_of_word import EndOfWordTokenizer
from extra.tokenizers.huggingface import HFTokenizer
from extra.tokenizers.wordpiece import WordPieceTokenizer
from families import FAMILIES
from seq2seq.corpus import load_pairs
from tests.extra.tokenizers.test_huggingface import gpt2_definition
from tests.gpt.configs import Seq2SeqOptions
from tests.reliability.mutations import Outcomes, harmless, many, odd_bytes, odd_json, traced
from tests.tiny_runs import ROOT, arguments, made_up_text
from text.tokenizers import tokenizer_from_json
from text.tokenizers.base import StreamDecoder
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from text.tokenizers.word import WordTokenizer
from tinygrad_lite.errors import CorpusError, OptionError, TokenizerError, UserError
from training import start
from training.cli.options import MAX_PRESET, build, read_preset
from training.corpora.cleaning import one_line
from training.corpora.divided_pairs import read_table
from training.corpora.gutenberg import gutenberg_books
from training.corpora.texts import load_corpus, load_files

SEED = 20240712
TEXT = made_up_text(60)
compare = check.load(ROOT / "docs/extra/compare_tokenizers.py")
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


def try_definitions(count: int) -> None:
    """Use broken definitions of GPT-2's tokenizer, and print how many of them could be used."""
    good, rng, outcomes = json.loads(HFTokenizer(gpt2_definition()).definition), random.Random(SEED), Outcomes()

    def use(definition: str) -> None:
        tokenizer = HFTokenizer(definition, 300)
        tokenizer.decode(tokenizer.encode("Es irrt der Mensch ä <|endoftext|>" + " " * 50))
        assert HFTokenizer(tokenizer.definition, 300).definition == tokenizer.definition

    large = {name: good["model"].pop(name) for name in ("vocab", "merges")}  # most of the file
    for number in range(count):
        is_small = rng.random() < 0.7
        tree = odd_json(rng, good if is_small else {**good, "model": good["model"] | large})
        if is_small and isinstance(tree.get("model"), dict):
            tree["model"] = large | tree["model"]
        outcomes.tried(number, functools.partial(use, json.dumps(tree)), allowed=TokenizerError)
    print(json.dumps(outcomes))


@many(100, 2000)
def test_a_broken_tokenizer_of_gpt2_does_not_end_the_process(count, report, tokenizers):
    """In a separate process, since damaged files have made the package `tokenizers` end its process."""
    program = f"from tests.extra.reliability.test_hostile_texts import try_definitions; try_definitions({count})"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert b"panicked" not in done.stderr
    outcomes = Outcomes(json.loads(done.stdout))
    assert outcomes["used"] > count / 20
    report(f"hostile files: {count:,} broken tokenizer.json (seed {SEED}): {outcomes}")


# --- presets ----------------------------------------------------------------------------------------------------------


def use_preset(data: bytes) -> None:
    Path("odd.toml").write_bytes(data)
    values = read_preset(Path("odd.toml"))
    family = start.family_of(values, FAMILIES)
    values.pop("family", None)
    options = build(family.options, ("preset odd", values))
    options.check()
    json.dumps(options.noted())


@many(100, 2000)
def test_a_broken_preset_is_used_or_refused(count, tried_many):
    good = [preset.read_bytes() for preset in PRESETS]
    values = ['"\\u0000"', "0x" + "f" * 9000, "[[[[1]]]]", "{a.b = 1}", "nan", '"\\u001b[2J"', "1e400", "9" * 4000]

    def broken(rng: random.Random) -> bytes:
        data = rng.choice(good)
        if rng.random() >= 0.5:
            return odd_bytes(rng, data)
        lines = [line for line in data.decode().splitlines() if "=" in line]
        name = rng.choice(lines).partition(" ")[0]
        changed = [line for line in lines if not line.startswith(f"{name} ")]
        return "\n".join([*changed, f"{name} = {rng.choice(values)}"]).encode()

    def attempt(rng):
        return functools.partial(use_preset, broken(rng))

    tried_many(count, SEED + 1, "broken presets", attempt, allowed=OptionError)


IS_READ = sys.version_info < (3, 15)  # later versions read no key with so many dots
BOMBS = [
    ("a." * 5000 + "a = 1", "unknown option a" if IS_READ else "not valid TOML"),
    ("seed." + "a." * 5000 + "a = 1", "must be a whole number" if IS_READ else "not valid TOML"),
    ("seed = " + "[" * 200 + "]" * 200, "must be a whole number"),
    ("seed = 0x" + "f" * 10_000, "must be a whole number"),
    ("family = 0x" + "f" * 10_000, r"the preset names the family \.\.\."),
    ("x = '''" + "a" * MAX_PRESET + "'''", "more than 16,384 bytes"),
    ('out_dir = "a\\u0000b"', "must be a path"),
    ('text = ["a\\u0000b"]', "must be a list of paths"),
    ("batch_size = 1_000_000_000_000", "at most 1000000"),
    ("n_embd = 1_000_000_000", "at most 1000000"),
    ("seed = 1\nseed = 2", "not valid TOML"),
    ("\0", "not valid TOML"),
    ("[seed]", "must be a whole number"),
]


@pytest.mark.parametrize(("toml", "reason"), BOMBS)
def test_a_preset_that_is_a_bomb_is_refused(toml, reason, workplace):
    with pytest.raises(OptionError, match=reason):
        use_preset(toml.encode())


# --- corpora ----------------------------------------------------------------------------------------------------------


@many(60, 1200)
@pytest.mark.parametrize("kind", ["char", "byte", "bpe", "word"])
def test_a_broken_text_is_learned_from_or_refused(kind, count, tried_many):
    count //= 4
    options = build(GPTOptions, ("test", {"text": ["text.txt"], "tokenizer": kind, "vocab_size": 300, "block_size": 4}))

    def attempt(rng):
        data = made_up_text(100).encode()
        for _ in range(rng.choice([1, 1, 5])):
            data = odd_bytes(rng, data) if data else data
        Path("text.txt").write_bytes(data)
        return lambda: FAMILIES["gpt"].make_task(options).unknown()

    tried_many(count, SEED + 2, f"broken texts for the tokenizer {kind}", attempt, refused=0)


@many(60, 1000)
def test_a_broken_table_of_pairs_is_learned_from_or_refused(count, tried_many):
    options = {"pairs": "pairs.tsv", "tokenizer": "char", "block_size": 64, "batch_tokens": 200}
    options = build(Seq2SeqOptions, ("test", options))
    good = "".join(f"Satz {i} ist lang.\tSentence {i} is long.\n" for i in range(100)).encode()

    def attempt(rng):
        Path("pairs.tsv").write_bytes(odd_bytes(rng, good))
        return lambda: len(SEQ2SEQ.make_task(options).unknown())

    tried_many(count, SEED + 3, "broken tables of pairs", attempt, used=0.05, refused=0)


ODD_TEXTS = [
    *(b"", b"\0" * 10_000, b"\n" * 10_000, b" " * 10_000, b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\x80"),
    *("é".encode() * 30_000, b"\r" * 10_000, "a\u0300".encode() * 10_000, "\u2028".encode() * 10_000),
    *(b"a" * 300_000, b"ab " * 30_000, ("ä" + "\u0316\u0300" * 20_000).encode(), "\u0300".encode() * 1900),
]


@pytest.mark.parametrize("data", ODD_TEXTS)
def test_texts_without_lines_or_letters_are_used_or_refused(data, workplace, capsys):
    Path("odd.txt").write_bytes(data)
    with harmless(workplace):
        for main, words in (
            (train.main, [*arguments(text="odd.txt", max_iters=0, tokenizer="bpe", vocab_size=300), *OVERWRITE]),
            (compare.main, ["odd.txt", "--vocab_size=300"]),
            (baselines.main, ["--text=odd.txt", "--orders=1"]),
            (train.main, ["reverse", "--pairs=odd.txt", "--max_iters=0", "--out_dir=pairs", *OVERWRITE]),
        ):
            outcomes = Outcomes()
            outcomes.tried(0, lambda main=main, words=words: main(words))
            assert outcomes["used"] == 0 or "".join(capsys.readouterr()), words


OVERWRITE = ["--overwrite", "--workers=1"]


def test_a_sentence_of_nothing_but_accents_is_read():
    assert one_line("a" + "\u0316\u0300" * 100_000).startswith("\u00e0\u0316")


BEGINS = "*** START OF THE PROJECT GUTENBERG EBOOK x ***\n"
ENDS = "\n*** END OF THE PROJECT GUTENBERG EBOOK x ***\n"


def test_a_page_designed_to_stall_the_search_is_refused():
    for page in (
        BEGINS * 20_000,
        "*** START OF THE PROJECT GUTENBERG " * 20_000,
        "***" * 100_000,
        "x\n" + BEGINS * 20_000,
    ):
        with pytest.raises(CorpusError, match="not a whole book"):
            gutenberg_text(page, "page")
    blanks = " " * 300_000
    assert gutenberg_text(f"{BEGINS}{blanks}x{blanks}{ENDS}", "page") == f"{blanks}x"


# Parts of a page that, repeated, could make a search for one of them slow.
PARTS = (
    "[Transcriber's Note: |Transcriber's Note\n\n|##########\n\nTranscriber's Note\n\n|[[{|\n*|* |Produced by x\n\n|"
)
PARTS += (
    "This book was http: |End of Project Gutenberg's x\n|Produced and |e-text |\x84|Title: x\n" + BEGINS + "|" + ENDS
)
PARTS += '|*END*THE SMALL PRINT!*END*\n|["Small Print" V|thanks to x |Note: '


@pytest.mark.parametrize("part", PARTS.split("|"))
def test_a_book_designed_to_stall_the_search_is_read(part):
    page = f"Title: x\n\n{BEGINS}\n{part * (60_000 // len(part))}{ENDS}"
    books, _ = gutenberg_books(page)
    assert sum(map(len, books)) < len(page)


def test_the_name_of_a_corpus_cannot_lead_out_of_the_cache(workplace):
    for name in ("../text", "goethe/../x", "/etc/hostname/x", "..", "goethe\0", "C:\\x"):
        with harmless(workplace), pytest.raises(CorpusError):
            load_corpus(name, say=lambda line: None)
        with harmless(workplace), pytest.raises(UserError):
            load_pairs(build(Seq2SeqOptions, ("test", {"dataset": name})))


@pytest.mark.parametrize("name", ["missing", ".", "text.txt/x"])
def test_unreadable_files_are_reported(name, workplace):
    for use in (
        lambda: load_files([name]),
        lambda: read_table(Path(name)),
        lambda: training.read_run(Path(name)),
        lambda: evaluate.main([name]),
    ):
        with pytest.raises(UserError):
            use()


# --- metrics ----------------------------------------------------------------------------------------------------------


@many(60, 1000)
def test_a_broken_table_of_losses_is_plotted_or_refused(count, tried_many):
    header = "step,loss,learning_rate,grad_norm,tokens_per_second,val_loss,bits_per_char,bleu,chrf,exact\n"
    rows = [f"{i},{3 / (i + 1):.4f},0.001,1,100,{'' if i % 5 else 2.5},3.6,,,\n" for i in range(20)]
    good = header + "".join(rows)
    odd = ["9" * 400, "-1", "1e308", "nan", "inf", "-inf", "²", "0x1", "1_0", '"', "", "9" * 5000]

    def broken(rng: random.Random) -> bytes:
        if rng.random() >= 0.5:
            return odd_bytes(rng, good.encode())
        cells = good.split(",")
        cells[rng.randrange(len(cells))] = rng.choice(odd)
        return ",".join(cells).encode()

    def attempt(rng):
        Path("metrics.csv").write_bytes(broken(rng))
        return lambda: training.read_run(Path("metrics.csv")).training.size

    what = "broken tables of losses for the plot"
    tried_many(count, SEED + 4, what, attempt, allowed=OptionError, used=0.05, refused=0)
