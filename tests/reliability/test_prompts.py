"""Any prompt, from any source, is answered with a text that begins with it, or with one sentence."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpt.configs import FAMILY
from tests.reliability.tiny_models import END_OF_TEXT, KINDS, SNIPPETS, WRITERS, check_refusal, random_text, sample_py
from tests.tiny_runs import ROOT
from text.tokenizers.base import UNKNOWN
from training.cli.options import fields_of
from training.corpora.cleaning import normalise

SPECIAL_WORDS = ["<eos>", "<bos>", "<pad>", "<unk>", END_OF_TEXT, "</w>", "<s>", "[MASK]", "<|im_start|>", "<0x0A>"]
SIZES = {"bpe": 320, "word": 320}  # of the vocabularies of those that have any size
WAYS = ["argument", "file", "stdin", *["conversation"] * ("interactive" in fields_of(FAMILY.sampling)[0])]


def read_by(kind: str, text: str) -> str:
    """The text that a model reads: the tokenizers of others get it unchanged."""
    return text if kind == "hf" else normalise(text)


def printed(text: str) -> str:
    """The text as stdout prints it: UTF-8 cannot encode a lone surrogate."""
    return text.encode("utf-8", "replace").decode("utf-8")


# --- where prompts come from --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [54, pytest.param(2700, marks=pytest.mark.slow)])
def test_any_prompt_from_any_source_is_answered(count, models, workplace):
    for seed in range(count):
        rng = random.Random(seed)
        kind, way = list(models)[seed % len(models)], rng.choice(WAYS)
        text = rng.choice(SNIPPETS) if rng.random() < 0.1 else random_text(rng)
        stdin = b""
        if way == "argument":
            text = text.replace("\0", "")  # a command line cannot contain it
            words = [f"--start=./{text}" if text.startswith("FILE:") or text == "-" else f"--start={text}"]
        elif way == "file":
            text = printed(text)
            Path("prompt.txt").write_bytes(text.encode())
            text = text.removeprefix("\ufeff")  # at the beginning of a file it marks the encoding
            words = ["--start", "FILE:prompt.txt"]
        elif way == "stdin":
            stdin = (text := printed(text)).encode()
            words = ["--start=-"]
        else:
            stdin = text.encode("utf-8", "surrogatepass")
            words = ["--interactive"]
        if kind in WRITERS:
            words += ["--max_new_tokens=3"]
        ended = sample_py(models[kind], *words, stdin=stdin)
        tried = f"seed {seed}: {kind}, {way}, {text!r}"
        if "it seems, UTF-" in ended.err and way in ("file", "stdin") and "\0" in text:
            check_refusal(ended, tried)
            continue
        assert ended.status == 0, f"{tried}: {ended.err}"
        if way != "conversation" and kind in WRITERS:
            assert ended.out.startswith(printed(read_by(kind, text))), tried
            assert ended.out.endswith("\n"), tried
        elif way != "conversation":
            assert ended.out.count("\n") == normalise(text).removesuffix("\n").count("\n") + 1, tried


@pytest.mark.parametrize("count", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_bytes_that_are_not_text_are_refused_in_one_sentence(count, models, workplace):
    for seed in range(count):
        rng = random.Random(seed)
        is_text = rng.random() >= 0.7
        data = random_text(rng, 9).encode("utf-8", "replace") if is_text else rng.randbytes(rng.choice([1, 2, 30]))
        Path("prompt").write_bytes(data)
        kind = rng.choice(list(models))
        for words in (["--start=-"], ["--start=FILE:prompt"]):
            ended = sample_py(models[kind], *words, *["--max_new_tokens=2"] * (kind in WRITERS), stdin=data)
            try:
                data.decode("utf-8")
            except UnicodeDecodeError:
                check_refusal(ended, f"seed {seed}: {data!r}")
                assert "is not UTF-8" in ended.sentence
            else:
                assert ended.status == 0


LETTERS = {"letters": "abcdeäöü", "marks": "\u0301\u0316"}


@pytest.mark.parametrize("size", [30_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", LETTERS)
def test_a_long_prompt_in_one_line_is_answered(what, size, models, workplace):
    """With the rules against repetition, which read the prompt."""
    text = "a" + "".join(random.Random(1).choices(LETTERS[what], k=size))
    Path("long.txt").write_text(text, encoding="utf-8")
    rules = ["--no_repeat_ngram_size=9", "--repetition_penalty=1.2"]
    for kind, model in models.items():
        more = ["--max_new_tokens=3"] if kind in WRITERS else []
        ended = sample_py(model, "--start=FILE:long.txt", *rules, *more, seconds=600 if size > 10**6 else 20)
        assert ended.status == 0, f"{kind}: {ended.err}"
        assert len(ended.err) < 2000, f"{kind}: {ended.err[:2000]}"
        assert ended.out.startswith(read_by(kind, text)) or kind not in WRITERS, kind


# --- special tokens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_names_of_special_tokens_are_text(count):
    for kind in KINDS:
        tokenizer = KINDS[kind][1]()
        never = {number for name, number in tokenizer.specials.items() if name != UNKNOWN}
        names = [*tokenizer.specials, *SPECIAL_WORDS[:6]]
        for seed in range(count):
            rng = random.Random(seed)
            text = "".join(rng.choice([*names, " der", "<", "e", "\n"]) for _ in range(rng.randrange(1, 12)))
            ids, tried = tokenizer.encode(text), f"{kind}, seed {seed}: {text!r}"
            assert not never & set(ids), tried
            if kind == "bpe-w":
                assert tokenizer.decode(ids) == "".join(word + " " for word in text.split()), tried
            elif kind != "word" or not tokenizer.unknown(text):
                assert tokenizer.decode(ids) == text, tried


# --- separate processes -------------------------------------------------------------------------------------------


LOCALES = [{"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"}, {"PYTHONUTF8": "0", "LC_ALL": "C"}, {"LC_ALL": "C"}, {}]
LOCALES += [{"PYTHONIOENCODING": "latin-1"}, {"PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONUTF8": "0"}]


@pytest.mark.skipif(os.name != "posix", reason="arguments are bytes on POSIX only")
@pytest.mark.parametrize("count", [2, pytest.param(120, marks=pytest.mark.slow)])
def test_any_bytes_as_arguments_of_a_process_in_any_locale(count, models, workplace):
    for seed in range(count):
        rng = random.Random(seed)
        kind = rng.choice(list(models))
        prompt = rng.randbytes(20) if rng.random() < 0.5 else random_text(rng).encode("utf-8", "surrogatepass")
        words = [models[kind], b"--start=" + prompt.replace(b"\0", b""), *["--max_new_tokens=3"] * (kind in WRITERS)]
        locale = LOCALES[seed % len(LOCALES)]
        command = [sys.executable, ROOT / "sample.py", *words]
        done = subprocess.run(command, capture_output=True, timeout=120, env={**os.environ, **locale})
        tried = f"seed {seed}: {kind}, {locale}, {prompt!r}: {done.stderr.decode()}"
        assert done.returncode == 0, tried
        assert b"Traceback" not in done.stderr, tried
        assert b"Warning" not in done.stderr, tried
        assert done.stdout.decode("utf-8").endswith("\n"), tried
