"""Any prompt, from any source, is answered with a text that begins with it, or with one sentence."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gpt.data import prepare
from seq2seq.data import BOS, EOS
from tests.gpt.configs import FAMILY, GPTOptions
from tests.reliability.tiny_models import END_OF_TEXT, KINDS, SNIPPETS, WRITERS, check_refusal, random_text, sample_py
from tests.test_translation_scripts import arguments as pair_arguments
from tests.tiny_runs import ROOT, run_training
from text.tokenizers import LEARNED
from text.tokenizers.base import UNKNOWN
from train import main as train
from training.cli.options import fields_of
from training.corpora.cleaning import normalise
from training.pair_data import encode_pairs

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
def test_any_prompt_from_any_source_is_answered(count, models, workplace, report):
    ways = Counter()
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
        ways[way] += 1
    spread = ", ".join(f"{number:,} by {way}" for way, number in sorted(ways.items()))
    report(f"prompts of any Unicode, {len(models)} kinds of models: {count:,} answered (seeds from 0), {spread}")


@pytest.mark.parametrize("count", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_bytes_that_are_not_text_are_refused_in_one_sentence(count, models, workplace, report):
    refused = 0
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
                refused += 1
                check_refusal(ended, f"seed {seed}: {data!r}")
                assert "is not UTF-8" in ended.sentence
            else:
                assert ended.status == 0
    report(f"prompts of any bytes, from a file and from stdin: {refused:,} of {2 * count:,} were no text and refused")


LONG_TEXTS = {
    "letters": lambda size: "".join(random.Random(1).choices("abcdeäöü", k=size)),
    "marks": lambda size: "a" + "\u0301\u0316" * (size // 2),
}


@pytest.mark.parametrize("size", [30_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", LONG_TEXTS)
def test_a_long_prompt_in_one_line_is_answered(what, size, models, workplace, report):
    """With the rules against repetition, which read the prompt."""
    text = LONG_TEXTS[what](size)
    Path("long.txt").write_text(text, encoding="utf-8")
    rules = ["--no_repeat_ngram_size=9", "--repetition_penalty=1.2"]
    for kind, model in models.items():
        more = ["--max_new_tokens=3"] if kind in WRITERS else []
        ended = sample_py(model, "--start=FILE:long.txt", *rules, *more, seconds=600 if size > 10**6 else 20)
        assert ended.status == 0, f"{kind}: {ended.err}"
        assert len(ended.err) < 2000, f"{kind}: {ended.err[:2000]}"
        assert ended.out.startswith(read_by(kind, text)) or kind not in WRITERS, kind
    report(f"a prompt of {len(text):,} characters, {what} in one line: answered by {len(models)} kinds of models")


# --- special tokens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_names_of_special_tokens_are_text(count, report):
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
    report(f"specials: {count:,} texts with their names (seeds from 0) are text to {len(KINDS)} tokenizers")


def test_names_of_special_tokens_in_a_training_text_are_text(workplace, report):
    text = " ".join(random.Random(5).choices([*SPECIAL_WORDS, "der", "Mensch"], k=600))
    (workplace / "specials.txt").write_text(text, encoding="utf-8")
    for kind in WRITERS:
        tokenizer = KINDS["hf"][1]() if kind == "hf" else None
        choices = {} if tokenizer else {"tokenizer": kind, "vocab_size": 320}
        data = prepare(GPTOptions.of(text=["specials.txt"], block_size=8, **choices), tokenizer)
        specials = {number for name, number in data.tokenizer.specials.items() if name != UNKNOWN}
        learned = [*data.train.tolist(), *data.held_out.tolist()]
        assert not specials & set(learned), kind
        assert kind in ("word", "bpe-w") or data.tokenizer.decode(learned) == text, kind
    report(f"specials: a training text of {len(text):,} characters with their names is text to {', '.join(WRITERS)}")


@pytest.mark.parametrize("kind", ["char", *(pytest.param(kind, marks=pytest.mark.slow) for kind in [*LEARNED][1:])])
def test_a_model_learns_and_continues_names_of_special_tokens(kind, workplace, report):
    text = " ".join(random.Random(5).choices([*SPECIAL_WORDS, "der", "Mensch"], k=600))
    (workplace / "specials.txt").write_text(text, encoding="utf-8")
    run_training(text="specials.txt", tokenizer=kind, vocab_size=SIZES.get(kind), max_iters=2)
    for word in SPECIAL_WORDS:
        ended = sample_py("run", f"--start={word}", "--max_new_tokens=40", "--temperature=100", "--top_k=0")
        assert ended.status == 0, ended.err
        assert ended.out.startswith(word)
        assert "\ufffd" not in ended.out or kind not in ("char", "word")
    report(f"specials, {kind}: a run that learned {len(SPECIAL_WORDS)} of their names continues each of them")


@pytest.mark.parametrize("kind", ["bpe", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("char", "byte"))])
def test_a_translation_model_learns_names_of_special_tokens(kind, workplace, report):
    rng = random.Random(6)
    pairs = [(" ".join(rng.choices(SPECIAL_WORDS, k=3)), " ".join(rng.choices(SPECIAL_WORDS, k=3))) for _ in range(300)]
    table = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (workplace / "pairs.tsv").write_text(table, encoding="utf-8")
    changes = {"pairs": "pairs.tsv", "tokenizer": kind, "vocab_size": SIZES.get(kind), "max_iters": 2, "eval_pairs": 0}
    assert train([word for word in pair_arguments(**changes) if "toy_size" not in word]) == 0
    tokenizer = KINDS[f"pairs-{kind}"][1]()
    bos, eos = tokenizer.specials[BOS], tokenizer.specials[EOS]
    for (source, (first, *target, last)), pair in zip(encode_pairs(tokenizer, pairs, BOS, EOS), pairs, strict=True):
        assert (first, last) == (bos, eos)
        assert not {bos, eos, tokenizer.specials["<pad>"]} & {*source, *target}
        assert kind == "char" or (tokenizer.decode(source), tokenizer.decode(target)) == pair
    ended = sample_py("run", "--start=" + "\n".join(SPECIAL_WORDS))
    assert ended.status == 0
    assert ended.out.count("\n") == len(SPECIAL_WORDS)
    report(f"specials, translation, {kind}: {len(pairs)} pairs of their names, none of them special; all translated")


# --- separate processes -------------------------------------------------------------------------------------------


def started(words: list[str | bytes], redirect: str = "", **options) -> subprocess.CompletedProcess:
    """Run sample.py in a shell, with a redirection such as `<&-` behind the command."""
    command = ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, str(ROOT / "sample.py"), *words]
    return subprocess.run(command, capture_output=True, check=False, timeout=120, **options)


LOCALES = [{"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"}, {"PYTHONUTF8": "0", "LC_ALL": "C"}, {"LC_ALL": "C"}, {}]
LOCALES += [{"PYTHONIOENCODING": "latin-1"}, {"PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONUTF8": "0"}]


@pytest.mark.skipif(os.name != "posix", reason="arguments are bytes on POSIX only")
@pytest.mark.parametrize("count", [2, pytest.param(120, marks=pytest.mark.slow)])
def test_any_bytes_as_arguments_of_a_process_in_any_locale(count, models, workplace, report):
    for seed in range(count):
        rng = random.Random(seed)
        kind = rng.choice(list(models))
        prompt = rng.randbytes(20) if rng.random() < 0.5 else random_text(rng).encode("utf-8", "surrogatepass")
        words = [models[kind], b"--start=" + prompt.replace(b"\0", b""), *["--max_new_tokens=3"] * (kind in WRITERS)]
        locale = LOCALES[seed % len(LOCALES)]
        done = started(words, env={**os.environ, **locale})
        tried = f"seed {seed}: {kind}, {locale}, {prompt!r}: {done.stderr.decode()}"
        assert done.returncode == 0, tried
        assert b"Traceback" not in done.stderr, tried
        assert b"Warning" not in done.stderr, tried
        assert done.stdout.decode("utf-8").endswith("\n"), tried
    locales = min(count, len(LOCALES))
    report(f"processes with any bytes as prompt, in {locales} locales: {count:,} answered (seeds 0 to {count - 1})")


STREAMS = [
    ("<&-", "--start=-", 0),
    (">&-", "--start=Es", 0),
    ("| head -c 3", "--max_new_tokens=10000000", 0),
    ("<&-", "--interactive", 0),
    ("2>&-", "--start=Es", 0),
    ("<&- >&- 2>&-", "--start=Es", 0),
    ("2>&-", "--top_p=2", 2),
    ("</", "--start=-", 1),  # Python itself refuses a folder as stdin
    ("| head -c 3", "--num_samples=1000000", 0),
    ("2>&1 | head -c 100", "--max_new_tokens=10000000", 0),
]
STREAMS = [row for row in STREAMS if row[1] != "--interactive" or "conversation" in WAYS]


@pytest.mark.skipif(os.name != "posix", reason="descriptors as on POSIX")
@pytest.mark.parametrize(
    ("redirect", "word", "status"),
    [*STREAMS[:3], *(pytest.param(*case, marks=pytest.mark.slow) for case in STREAMS[3:])],
)
def test_closed_and_odd_streams_end_without_a_traceback(redirect, word, status, models, workplace, report):
    """The status of a pipe is its reader's; what counts is that the writer ends without a traceback."""
    done = started([models["char"], word], redirect)
    assert done.returncode == status, done.stderr
    assert b"Traceback" not in done.stderr + done.stdout
    assert b"Exception" not in done.stderr + done.stdout
    if ">&-" not in redirect and status == 0 and word != "--interactive":
        assert done.stdout
    report(f"sample.py {word} {redirect}: status {status}, no traceback")
