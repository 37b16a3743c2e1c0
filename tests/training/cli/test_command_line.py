import re
from dataclasses import fields

import pytest

import tinygrad_lite
from tests.training.cli.some_options import Options
from tinygrad_lite.errors import OptionError
from training.cli.command_line import parse_command_line

SETTINGS = {
    "prog": "train.py",
    "description": "Train something.",
    "examples": {"train.py": "what happens then", "train.py --text my.txt --max_iters 99": "a long command"},
    "positional": "preset",
    "about_positional": "what to train",
    "common": ("text", "max_iters", "no_such"),
    "hints": {"epochs": "is counted elsewhere"},
    "ignored": {"compile": "nothing is compiled", "wandb_project": "nothing is sent anywhere"},
}


def parse(*argv: str, **settings):
    return parse_command_line(Options, list(argv), **{**SETTINGS, **settings})


def complaint(*argv: str, **settings) -> str:
    """The message that a command line is refused with."""
    with pytest.raises(OptionError) as caught:
        parse(*argv, **settings)
    return str(caught.value)


# --- what is accepted -----------------------------------------------------------------------------------------


NUMBERS = {"1e3": 1000, "1_000": 1000, "12.0": 12, "1e23": 10**23}  # as a float the last is 99999999999999991611392
GIVEN = [
    ([], {}),
    (["--max_iters", "5", "--max-iters=6"], {"max_iters": 6}),
    *((["--max_iters", text], {"max_iters": number}) for text, number in NUMBERS.items()),
    (["--cutoff", "-1.5"], {"cutoff": -1.5}),
    (["--bias"], {"bias": True}),
    (["--bias", "yes", "--compile-cache=0"], {"bias": True, "compile_cache": False}),
    *((["--out_dir", text], {"out_dir": text}) for text in ("", "-- Goethe", "none")),
    (["--out_dir=--bias"], {"out_dir": "--bias"}),
    (["--out_dir", "-h", "--bias"], {"out_dir": "-h", "bias": True}),
    (["--out_dir", "--", "--cutoff", "x", "--cutoff", "1"], {"out_dir": "--", "cutoff": 1.0}),
    (["--text", "a.txt", "b.txt", "--bias"], {"text": ["a.txt", "b.txt"], "bias": True}),
    (["--decay_iters", "none"], {"decay_iters": None}),
]
WITH_A_PRESET = {"tiny --bias": {"bias": True}, "--bias tiny": {"bias": True}, "--bias True tiny": {"bias": True}}
WITH_A_PRESET |= {"--max_iters 5 tiny": {"max_iters": 5}, "--out_dir out tiny": {"out_dir": "out"}}
IGNORED = [
    (["--compile", "--bias"], {"bias": True}, "--compile does nothing here: nothing is compiled"),
    (["--wandb-project", "owt"], {}, "--wandb_project owt does nothing here: nothing is sent anywhere"),
]
ACCEPTED = [(argv, values, [], "") for argv, values in GIVEN]
ACCEPTED += [(argv.split(), values, ["tiny"], "") for argv, values in WITH_A_PRESET.items()]
ACCEPTED += [(argv, values, [], f"note: {note}\n") for argv, values, note in IGNORED]


@pytest.mark.parametrize(("argv", "values", "words", "note"), ACCEPTED)
def test_what_is_given_is_parsed_as_it_is(argv, values, words, note, capsys):
    """The positional may stand anywhere that is not a value; ignored options are accepted with a note."""
    given, positional = parse(*argv)
    assert (given, positional, capsys.readouterr().err) == (values, words, note)
    assert {name: type(value) for name, value in given.items()} == {n: type(v) for n, v in values.items()}


# --- what is refused ------------------------------------------------------------------------------------------


WHOLE = "a whole number, at least 0 (steps)"
NO_WHOLE = {text: text for text in "1.5 none 1e999999999 inf".split()} | {"9" * 1001: f"{'9' * 57}..."}  # and as shown
ALL = "(train.py --help all lists them)"
MISTAKES = [
    (["--MAX-ITER", "5"], f"unknown option --MAX_ITER: did you mean --max_iters? {ALL}"),
    (["--gpu"], f"unknown option --gpu: it is called --device cuda here {ALL}"),
    (["--num-steps=9"], f"unknown option --num_steps: did you mean --max_iters? {ALL}"),
    (["--lr", "1"], "unknown option --lr: train.py --help all lists them"),  # these Options have no learning rate
    (["--epochs", "3"], "--epochs is counted elsewhere"),
    (["--batch_size", "0"], "--batch_size 0: must be at least 1 and at most 4096 (sequences per micro-step)"),
    (["--top_p", "0"], "--top_p 0: must be above 0 and at most 1"),
    (["--beta2", "1.0"], "--beta2 1.0: must be at least 0 and below 1"),
    (["--device", "tpu"], "--device tpu: must be one of cpu, cuda, auto"),
    *((["--max_iters", text], f"--max_iters {shown}: must be {WHOLE}") for text, shown in NO_WHOLE.items()),
    (["--max_iters="], f"--max_iters '': must be {WHOLE}"),
    (["--decay_iters", "x"], "--decay_iters x: must be a whole number, at least 1, or none (steps)"),
    *((["--temperature", x], f"--temperature {x}: must be a finite number, at least 0") for x in ("nan", "1e999")),
    (["--bias=maybe"], "--bias maybe: must be true or false"),
    *((["--max_iters", *rest], f"--max_iters needs a value: {WHOLE}") for rest in ([], ["--bias"])),
    (["--out_dir", "--bias"], "--out_dir needs a value: a text (write a value that begins with -- as --out_dir=...)"),
    (["--help", "tiny"], "--help tiny: only all can follow --help; a name of anything else comes before it"),
    *(([word], f"unexpected argument {word!r}: write options as --name value {ALL}") for word in ("-bias", "--", "")),
    (["--max_iters=a\nb"], rf"--max_iters 'a\nb': must be {WHOLE}"),
]


@pytest.mark.parametrize(("argv", "message"), MISTAKES)
def test_a_mistake_gives_one_sentence(argv, message):
    assert complaint(*argv) == message


def test_as_many_positionals_are_taken_as_have_a_name():
    _, words = parse("one", "--max_iters", "5", "two", "three", positional="preset ...")
    assert words == ["one", "two", "three"]
    assert complaint("one", "two").startswith("unexpected argument 'two'")
    assert complaint("tiny", positional=None).startswith("unexpected argument 'tiny'")


# --- help -----------------------------------------------------------------------------------------------------


def help_text(monkeypatch, capsys, columns: int, *argv: str, **settings) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as caught:
        parse(*(argv or ["--help", "all"]), **settings)
    captured = capsys.readouterr()
    assert (caught.value.code, captured.err) == (0, "")
    return captured.out


def test_help_shows_every_option_with_type_unit_and_default(monkeypatch, capsys):
    page = help_text(monkeypatch, capsys, 110)
    lines = [line.strip() for line in page.splitlines()]
    assert page.startswith("usage: train.py [preset] [--name value | --name=value ...]\n\nTrain something.\n")
    headings = "examples:, most used:, options:, sampling:, training:, model:, run:, about:".split(", ")
    assert [line for line in lines if line.endswith(":")] == headings
    assert "\n  train.py --text my.txt --max_iters 99\n" + " " * 37 + "a long command\n" in page
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in lines if line.startswith("--"))
    assert {row[2:].split()[0] for row in rows} == {*(field.name for field in fields(Options)), "version"}
    expected = {
        "--temperature FLOAT": "flatness of the distribution (default 0.8)",
        "--bias [true|false]": "have one, as well-known-first-papers (default false)",
        "--out_dir TEXT": "where to; empty: out",
        "--device {cpu,cuda,auto}": "where to compute (default cpu)",
        "--decay_iters INT|none": "where it ends; none: at the end (steps, default none)",
    }
    assert {name: rows[name] for name in expected} == expected


@pytest.mark.parametrize("columns", [40, 80, 300])
def test_help_fits_the_terminal_and_omits_nothing(monkeypatch, capsys, columns):
    epilog = "Presets:\n  tiny        " + "very " * 40 + "small\n\n  big         not at all"
    settings = {"positional": None, "epilog": epilog, "description": "Train a model. " * 20}
    page = help_text(monkeypatch, capsys, columns, **settings)  # of --help all
    first, *lines = page.splitlines()
    assert first == "usage: train.py [--name value | --name=value ...]"
    assert max(len(line) for line in lines) <= min(columns, 110)
    wide = help_text(monkeypatch, capsys, 300, **settings)
    assert page.split() == wide.split()
    assert ("\n  --version\n" in page) == (columns < 80)  # on a narrow terminal the explanation is below the option
    assert any(line.startswith(" " * 14 + "very") for line in lines)  # the second column of the epilog stays one


@pytest.mark.parametrize("argv", [["-h"], ["--max_iters", "5", "--help", "--nonsense"], ["-h", "all"], ["--help=all"]])
def test_help_can_be_asked_for_anywhere(monkeypatch, capsys, argv):
    assert help_text(monkeypatch, capsys, 80, *argv) == help_text(monkeypatch, capsys, 80)


def test_the_version_can_be_asked_for(capsys):
    with pytest.raises(SystemExit) as stop:
        parse("--bias", "--version")
    assert (stop.value.code, capsys.readouterr().out) == (0, f"train.py of tinygrad_lite {tinygrad_lite.__version__}\n")
