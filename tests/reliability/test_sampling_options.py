"""Any combination of sample.py's options gives a sample or one clear sentence that names the mistake."""

import random
from collections import Counter

import pytest

from tests.reliability.tiny_models import KINDS, Ended, check_refusal, random_text, sample_py

NONSENSE = ["", " ", "1 2", "9" * 5000, str(10**400), "-1", "-0.5", "1.5", "1e308", "-1e308"]
NONSENSE += "abc nan inf -inf 1e999 -1e999 1e4000 0x10 1,5 ½ -- - none true [] \udcff 🙂".split()
HUGE = [str(10**9), str(10**300)]
# By option: values within its range, including the limits, and values beyond; none that merely takes long.
VALUES: dict[str, tuple[list[str], list[str]]] = {
    "max_new_tokens": (["0", "1", "7", "1e1", "+3", "٣"], ["10000001", "-1", *HUGE]),
    "num_samples": (["1", "2", "3", "2.0"], ["0", "1000001", *HUGE]),
    "seed": (["0", "1", "4294967296", str(10**300), str(10**4000)], ["-1"]),
    "stop": ([".", "e", r"\n", "e" * 5000, "\udcff", "ä", " "], ["", "\ufeff"]),
    "temperature": (["0", "-0.0", "5e-324", "1e-300", "0.8", "1", "1e6", "1e308"], ["-5e-324"]),
    "top_k": (["0", "1", "5", "200", *HUGE], ["-1"]),
    "top_p": (["5e-324", "1e-12", "0.5", "0.999999999999", "1"], ["0", "1.0000001"]),
    "min_p": (["0", "5e-324", "1e-12", "0.5", "1"], ["1.0000001", "-5e-324"]),
    "repetition_penalty": (["5e-324", "1e-12", "0.5", "1", "1.2", "100"], ["100.001", "0"]),
    "no_repeat_ngram_size": (["0", "1", "2", "3", "50", *HUGE], ["-1"]),
    "greedy": (["true", "false", "yes", "0"], ["maybe"]),
    "show_probs": (["true", "false"], ["maybe"]),
    "interactive": (["true", "false"], ["maybe"]),
    "use_cache": (["true", "false"], ["maybe"]),
    "beam": (["0", "1", "2", "5", "60"], ["1001", *HUGE]),
    "n_best": (["1", "2", "5"], ["0", *HUGE]),
    "length_penalty": (["none", "0", "5e-324", "0.6", "1", "10"], ["10.0001", "-0.1"]),
    "score": (["text.txt"], ["missing.txt", ".", "", "latin.txt"]),
    "attention": (["a.svg"], ["a.gif", "", "missing/a.svg"]),
    "explain": (["a.html", "a"], ["", "missing/a.html", "."]),
    "compare": (["text.txt"], ["missing.txt", ".", "latin.txt"]),
    "device": (["cpu", "auto"], ["cuda", "tpu"]),
    "out_dir": ([""], ["missing", "."]),
    "start": (["", "\n", "-", "FILE:text.txt"], ["FILE:missing", "FILE:", "FILE:latin.txt", "FILE:a\nb"]),
}
SHARED = ["temperature", "top_k", "top_p", "min_p", "repetition_penalty", "no_repeat_ngram_size", "num_samples", "seed"]
SEARCHING = ["beam", "n_best", "length_penalty"]
# Options that are used together, by family.
WORKS = {
    "gpt": [[*SHARED, "stop", "show_probs", "use_cache", "start"], [*SEARCHING, "use_cache"], ["score"]],
    "seq2seq": [[*SHARED, "greedy"], [*SEARCHING, "start"], [*SEARCHING, "attention"]],
}
WORKS["gpt"] += [["greedy", "seed", *SHARED[4:6], "stop"], ["interactive", *SHARED[:6], "stop"]]
WORKS["gpt"] += [["explain", "compare", "start", "temperature", "top_k", "min_p"]]
WORKS["seq2seq"] += [["interactive", *SHARED, "greedy"], ["explain", *SEARCHING, "start"]]
WORKS["hf"] = WORKS["gpt"]
COMMANDS = "/settings, /reset, /help, /stop --help, /temperature 1 --help, /top_k 1 -h, /greedy, /nothing".split(", ")
COMMANDS += "/quit, /stop '', /stop 'a, /seed, /, //, /max_new_tokens 2, /max_new_tokens 1e999, \0, €\t".split(", ")
COMMANDS += "/temperature nan, /top_p 0, /no_repeat_ngram_size 1, /repetition_penalty 100".split(", ")
COMMANDS += ["/stop a -h --temperature 9"]


def random_words(rng: random.Random, kind: str) -> list[str]:
    """Random options: mostly compatible ones with values within their ranges, and now and then anything."""
    family = KINDS[kind][0]
    wild = rng.random() < 0.3
    work = list(VALUES) if wild else rng.choice(WORKS[family])
    names = rng.choices(work, k=rng.choice([1, 2, 3, 4, 6]))
    if not wild and work[0] == "beam" and "beam" not in names:
        names.append("beam")
    if not wild and work[0] in ("interactive", "explain"):
        names.append(work[0])
    words = []
    for name in names:
        within, beyond = VALUES[name]
        chance = rng.random()
        value = rng.choice(NONSENSE) if chance < 0.03 else rng.choice(beyond if chance < 0.1 else within)
        dashed = name.replace("_", rng.choice("-_"))
        words += [f"--{dashed}={value}"] if rng.random() < 0.7 else [f"--{dashed}", value]
    if not {"score", "explain"} & set(names) and (family != "seq2seq" or wild) and "max_new_tokens" not in names:
        words.append(f"--max_new_tokens={rng.randrange(12)}")
    if not {"score", "start", "interactive"} & set(names):
        words.append(f"--start={random_text(rng, 12)}")
    return [word.replace("\0", "") for word in words]  # a command line cannot contain it


def random_input(rng: random.Random) -> bytes:
    """Standard input: lines of text, commands, and sometimes bytes that are not text."""
    lines = [rng.choice(COMMANDS) if rng.random() < 0.5 else random_text(rng, 12) for _ in range(rng.randrange(4))]
    data = "\n".join(["/max_new_tokens 3", *lines]).encode("utf-8", "surrogatepass")
    return data + rng.choice([b"", b"\n", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3"])


def check_end(ended: Ended, words: list[str], tried: str) -> str:
    """Check that the result is a sample, or one sentence that names an option or a file; return which of the two."""
    assert "Warning" not in ended.err.replace("warning: ", ""), tried
    if ended.status == 0:
        assert "Traceback" not in ended.err, tried
        assert "usage: " not in ended.out, tried  # help was not requested
        silent = ("interactive", "explain")
        assert ended.out.endswith("\n") or any(name in word for name in silent for word in words), tried
        return "a sample"
    check_refusal(ended, tried)
    if ended.sentence.startswith("sample.py: unexpected argument") or "checkpoint" in ended.sentence:
        return "a refusal"  # a stray value was read as the name of a checkpoint
    names = {word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")}
    said = ended.sentence.replace("-", "_")
    files = ("latin.txt", "missing", ". is a folder", "there is no file", "cannot be read", "plotting needs matplotlib")
    files += ("give a sentence", "the name of a file is empty")
    assert any(name in said for name in (*names, *files)), f"{tried}: {ended.sentence}"
    return "a refusal"


@pytest.fixture
def place(workplace):
    (workplace / "latin.txt").write_bytes("schön".encode("latin-1"))
    text = "Grün ist nur des Lebens goldner Baum; 🙂\n" * 3
    (workplace / "text.txt").write_text(text, encoding="utf-8", newline="\n")
    return workplace


@pytest.mark.parametrize("count", [72, pytest.param(3000, marks=pytest.mark.slow)])
def test_any_combination_of_options_gives_a_sample_or_one_sentence(count, models, place, report):
    ends = Counter()
    kinds = list(models)
    for seed in range(count):
        rng = random.Random(seed)
        kind = kinds[seed % len(kinds)]
        words, stdin, terminal = random_words(rng, kind), random_input(rng), rng.random() < 0.3
        tried = f"seed {seed}: {kind} {words!r}"
        if any(word == "--attention=a.svg" for word in words) and rng.random() < 0.8:
            words = [word for word in words if not word.startswith("--attention")]  # a picture takes half a second
        ended = sample_py(str(models[kind]), *words, stdin=stdin, terminal=terminal)
        ends[check_end(ended, words, tried)] += 1
    assert min(ends["a sample"], ends["a refusal"]) > count / 5  # both are tried
    report(f"{count:,} combinations of options (seeds 0 to {count - 1}): {dict(ends)}")
