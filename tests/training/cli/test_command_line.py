import re
from contextlib import redirect_stderr
from dataclasses import fields, make_dataclass
from io import StringIO

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import tinygrad_lite
from tests.training.cli.some_options import TEXT, Options, result_or_message
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from training.cli.command_line import FIRST_PAGE, parse_command_line
from training.cli.options import build

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
    (["--max_iters", "0", "--batch_size", "4096"], {"max_iters": 0, "batch_size": 4096}),
    (["--top_p", "1"], {"top_p": 1.0}),
    (["--max_iters", "5", "--max-iters=6"], {"max_iters": 6}),
    *((["--max_iters", text], {"max_iters": number}) for text, number in NUMBERS.items()),
    (["--cutoff", "-1.5"], {"cutoff": -1.5}),
    (["--bias"], {"bias": True}),
    (["--bias", "False"], {"bias": False}),
    (["--bias", "--max_iters", "5"], {"bias": True, "max_iters": 5}),
    (["--bias", "yes", "--compile-cache=0"], {"bias": True, "compile_cache": False}),
    *((["--out_dir", text], {"out_dir": text}) for text in ("", "-- Goethe", "none")),
    *(([f"--out_dir={text}"], {"out_dir": text}) for text in ("a=b", "--bias")),
    (["--out_dir", "-h", "--bias"], {"out_dir": "-h", "bias": True}),
    (["--out_dir", "--", "--cutoff", "x", "--cutoff", "1"], {"out_dir": "--", "cutoff": 1.0}),
    (["--text", "a.txt", "b.txt", "--bias"], {"text": ["a.txt", "b.txt"], "bias": True}),
    (["--text", "a", "--text", "b"], {"text": ["b"]}),
    (["--decay_iters", "none"], {"decay_iters": None}),
    (["--decay_iters=None", "--cutoff", "none"], {"decay_iters": None, "cutoff": None}),
    (["--name=none"], {"name": None}),
]


WITH_A_PRESET = {"tiny --bias": {"bias": True}, "--bias tiny": {"bias": True}, "--bias True tiny": {"bias": True}}
WITH_A_PRESET |= {"--max_iters 5 tiny": {"max_iters": 5}, "--out_dir out tiny": {"out_dir": "out"}}
IGNORED = [
    (["--compile=False"], {}, "--compile False does nothing here: nothing is compiled"),
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
NO_WHOLE = {text: text for text in "1.5 none 1e999999999 1e-999999999 inf".split()}  # each with how it is shown
NO_WHOLE |= dict.fromkeys(("9" * 1001, "9" * 5000 + "x"), f"{'9' * 57}...")
ALL = "(train.py --help all lists them)"
MISTAKES = [
    (["--max_iter", "5"], "unknown option --max_iter: did you mean --max_iters? (train.py --help all lists them)"),
    (["--gpu"], "unknown option --gpu: it is called --device cuda here (train.py --help all lists them)"),
    (["--STEPS=9"], "unknown option --STEPS: it is called --max_iters here (train.py --help all lists them)"),
    (["--num-steps=9"], "unknown option --num_steps: did you mean --max_iters? (train.py --help all lists them)"),
    (["--lr", "1"], "unknown option --lr: train.py --help all lists them"),  # these Options have no learning rate
    (["--epochs", "3"], "--epochs is counted elsewhere"),
    (["--MAX-ITERS"], "unknown option --MAX_ITERS: did you mean --max_iters? (train.py --help all lists them)"),
    (["--zzz=1"], "unknown option --zzz: train.py --help all lists them"),
    (["--batch_size", "0"], "--batch_size 0: must be at least 1 and at most 4096 (sequences per micro-step)"),
    (["--temperature", "-1"], "--temperature -1: must be at least 0"),
    (["--top_p", "0"], "--top_p 0: must be above 0 and at most 1"),
    (["--beta2", "1.0"], "--beta2 1.0: must be at least 0 and below 1"),
    (["--decay_iters", "0"], "--decay_iters 0: must be at least 1, or none (steps)"),
    (["--device", "tpu"], "--device tpu: must be one of cpu, cuda, auto"),
    *((["--max_iters", text], f"--max_iters {shown}: must be {WHOLE}") for text, shown in NO_WHOLE.items()),
    (["--max_iters="], f"--max_iters '': must be {WHOLE}"),
    (["--decay_iters", "x"], "--decay_iters x: must be a whole number, at least 1, or none (steps)"),
    *((["--temperature", x], f"--temperature {x}: must be a finite number, at least 0") for x in ("nan", "1e999")),
    (["--cutoff", "-inf"], "--cutoff -inf: must be a finite number, or none"),
    (["--bias=maybe"], "--bias maybe: must be true or false"),
    (["--bias="], "--bias '': must be true or false"),
    *((["--max_iters", *rest], f"--max_iters needs a value: {WHOLE}") for rest in ([], ["--bias"])),
    (["--text"], "--text needs a value: a list of paths"),
    (["--device"], "--device needs a value: one of cpu, cuda, auto"),
    (["--out_dir", "--bias"], "--out_dir needs a value: a text (write a value that begins with -- as --out_dir=...)"),
    (["--help", "tiny"], "--help tiny: only all can follow --help; a name of anything else comes before it"),
    (["-h", "5"], "--help 5: only all can follow --help; a name of anything else comes before it"),
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
    assert lines[lines.index("examples:") + 1 : lines.index("options:")] == [
        "train.py                           what happens then",
        "train.py --text my.txt --max_iters 99",
        "a long command",
        "",
        "most used:",
        "preset                             what to train",
        "--text PATH ...                    files to read",
        "--max_iters INT                    updates to make (steps, default 2000)",
        "",
    ]
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in lines if line.startswith("-"))
    assert rows == {
        "--max_iters INT": "updates to make (steps, default 2000)",
        "--batch_size INT": "how many at once (sequences per micro-step, default 12)",
        "--temperature FLOAT": "flatness of the distribution (default 0.8)",
        "--top_p FLOAT": "mass to draw from (default 1.0)",
        "--beta2 FLOAT": "decay of an average (default 0.99)",
        "--bias [true|false]": "have one, as well-known-first-papers (default false)",
        "--compile_cache [true|false]": "keep one (default true)",
        "--out_dir TEXT": "where to; empty: out",
        "--device {cpu,cuda,auto}": "where to compute (default cpu)",
        "--init_from TEXT": "where to start (default scratch)",
        "--text PATH ...": "files to read",
        "--decay_iters INT|none": "where it ends; none: at the end (steps, default none)",
        "--cutoff FLOAT|none": "where it is cut (default 0.5)",
        "--name TEXT|none": "what to call it (default none)",
        "-h, --help": "show this page",
        "--version": "show the version",
    }


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 110, 300])
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


def test_a_long_help_begins_with_a_first_page(monkeypatch, capsys):
    settings = {"epilog": "An end.\n" * 30}
    whole = help_text(monkeypatch, capsys, 80, **settings)
    for argv in (["-h"], ["--help"], ["--bias", "--help"]):
        page = help_text(monkeypatch, capsys, 80, *argv, **settings)
        assert page.endswith("\n  --help all                         every option\n")
        assert len(page.splitlines()) <= FIRST_PAGE < len(whole.splitlines())
        shown = [line for line in page.splitlines() if line.startswith("  --")]
        assert [line.split()[0] for line in shown] == ["--text", "--max_iters", "--version", "--help"]
        assert page.split("\n\n")[:4] == whole.split("\n\n")[:4]  # usage, description, examples, most used
    assert "-h, --help                         show the most used options\n" in whole


def test_the_version_can_be_asked_for(capsys):
    with pytest.raises(SystemExit) as stop:
        parse("--bias", "--version")
    assert (stop.value.code, capsys.readouterr().out) == (0, f"train.py of tinygrad_lite {tinygrad_lite.__version__}\n")


def test_help_prints_on_a_terminal_without_umlauts(monkeypatch, tmp_path):
    with open(tmp_path / "out", "w", encoding="ascii") as out:
        monkeypatch.setattr("sys.stdout", out)
        with pytest.raises(SystemExit):
            parse("--help", epilog="für alle")
    assert "f?r alle" in (tmp_path / "out").read_text(encoding="ascii")


# --- anything at all ------------------------------------------------------------------------------------------


REAL = st.floats(allow_nan=False, allow_infinity=False)
# Every type, without bounds: its default, and what may be given.
KINDS = {
    "whole": (int, 0, st.integers()),
    "real": (float, 0.0, REAL),
    "truth": (bool, False, st.booleans()),
    "words": (str, "", TEXT),
    "many": (list[str], [], st.lists(TEXT, min_size=1)),
    "whole_or_none": (int | None, None, st.none() | st.integers()),
    "real_or_none": (float | None, None, st.none() | REAL),
    "words_or_none": (str | None, None, st.none() | TEXT.filter(lambda text: text.lower() != "none")),
}
Free = make_dataclass("Free", [(name, kind, option(default, "")) for name, (kind, default, _) in KINDS.items()])
VALUES = st.fixed_dictionaries({}, optional={name: values for name, (_, _, values) in KINDS.items()})


@given(values=VALUES, dashes=st.booleans())
def test_every_value_survives_the_command_line(values, dashes):
    """Of several words of a list, none may begin as an option does."""
    argv = []
    for name, value in values.items():
        words = value if isinstance(value, list) else [value]
        assume(len(words) == 1 or not any(word.startswith("--") for word in words))
        option, (first, *others) = f"--{name.replace('_', '-') if dashes else name}", words
        argv += [option, first, *others] if others else [f"{option}={first}"]
    given, _ = parse_command_line(Free, argv, prog="p", description="")
    assert (given, build(Free, ("command line", given))) == (values, Free(**values))


NAMES = st.sampled_from(
    [*(field.name for field in fields(Options)), "version", "epochs", "compile", "max-iters", "no_such", ""]
)
WORDS = TEXT | st.sampled_from(["none", "true", "-1", "1e3", "nan", "--", "-h", "tiny", "1e9999999", "٣", "1__0"])
ARGUMENTS = st.builds("--{}".format, NAMES) | st.builds("--{}={}".format, NAMES, WORDS) | WORDS


@given(argv=st.lists(ARGUMENTS, max_size=6))
@example(argv=["--max_iters", "9" * 5000])
def test_any_command_line_is_parsed_or_refused_in_one_line(argv):
    asks = ("-h", "--help", "--version")
    with redirect_stderr(StringIO()) as notes:
        parsed = result_or_message(parse, *(word for word in argv if word.partition("=")[0] not in asks))
    assert all(note.isprintable() for note in notes.getvalue().splitlines())
    if isinstance(parsed, str):
        assert parsed.isprintable()
    else:
        build(Options, ("command line", parsed[0]))  # what was accepted once is accepted again
