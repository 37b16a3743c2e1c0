import re
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.training.cli.some_options import Options
from tinygrad_lite.errors import OptionError
from training.cli.options import build, find_preset, list_presets, read_preset

# --- layers ---------------------------------------------------------------------------------------------------


def test_later_layers_win_and_the_rest_is_default():
    layers = ("preset small", {"max_iters": 10, "bias": True}), ("command line", {"max_iters": 20})
    assert build(Options, *layers) == Options(max_iters=20, bias=True)
    assert build(Options) == build(Options, ("defaults", asdict(Options()))) == Options()


def test_a_list_is_never_shared():
    preset = {"text": ["a.txt"]}
    build(Options, ("preset", preset)).text.append("b.txt")
    Options().text.append("c.txt")
    assert (preset, Options().text) == ({"text": ["a.txt"]}, [])


def test_numbers_of_a_preset_take_the_type_of_their_field():
    values = tomllib.loads('temperature = 1\nmax_iters = 1e3\ndecay_iters = "none"\ncutoff = 2\ntext = ["a", "b"]')
    options = build(Options, ("preset", values))
    assert options == Options(temperature=1.0, max_iters=1000, decay_iters=None, cutoff=2.0, text=["a", "b"])
    assert [type(options.temperature), type(options.max_iters), type(options.cutoff)] == [float, int, float]


MISTAKES = [
    ("max-iters = 5", "unknown option max-iters (preset odd): did you mean max_iters?"),
    ("[training]\nmax_iters = 5", "unknown option training (preset odd)"),
    ("max_iters = -1", "--max_iters -1 (preset odd): must be at least 0 (steps)"),
    ('max_iters = "5"', "--max_iters '5' (preset odd): must be a whole number, at least 0 (steps)"),
    ("max_iters = true", "--max_iters True (preset odd): must be a whole number, at least 0 (steps)"),
    ("max_iters = 1.5", "--max_iters 1.5 (preset odd): must be a whole number, at least 0 (steps)"),
    ("temperature = nan", "--temperature nan (preset odd): must be a finite number, at least 0"),
    (f"temperature = {10**400}", f"--temperature 1{'0' * 56}... (preset odd): must be a finite number, at least 0"),
    ('bias = "true"', "--bias 'true' (preset odd): must be true or false"),
    ("out_dir = 5", "--out_dir 5 (preset odd): must be a text"),
    ('text = ["a", 1]', "--text ['a', 1] (preset odd): must be a list of paths"),
]


@pytest.mark.parametrize(("toml", "message"), MISTAKES)
def test_a_mistake_in_a_preset_names_option_and_preset(toml, message):
    with pytest.raises(OptionError) as caught:
        build(Options, ("preset odd", tomllib.loads(toml)))
    assert str(caught.value) == message


# --- presets --------------------------------------------------------------------------------------------------


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_preset_is_read_with_either_line_end_and_a_byte_order_mark(tmp_path):
    content = '\ufeff# für Umlaute\r\nname = "Götz"\r\nmax_iters = 1_000\r\n'.encode()
    preset = read_preset(write(tmp_path / "a.toml", content))
    assert (preset, list_presets(tmp_path)) == ({"name": "Götz", "max_iters": 1000}, {"a": "für Umlaute"})


BROKEN = [
    *((content, r"bad\.toml is not valid TOML: .*line 2") for content in (b"a = 1\nb = = 2\n", b"a = 1\na = 2\n")),
    *((b"a = " + value, r"bad\.toml is not valid TOML: ") for value in (b"9" * 5000, b"[" * 10_000)),
    (b"a = 1\n\nb = '\xfc'\n", r"bad\.toml is not UTF-8 text \(byte 0xfc at line 3\)"),
]


@pytest.mark.parametrize(("content", "expected"), BROKEN)
def test_a_broken_preset_is_named_with_file_and_line(tmp_path, content, expected):
    with pytest.raises(OptionError, match=expected) as caught:
        read_preset(write(tmp_path / "bad.toml", content))
    assert "\n" not in str(caught.value)


def test_presets_are_described_by_their_first_comment(tmp_path):
    write(tmp_path / "b.toml", b"# big \n# and slow\nmax_iters = 1\n")
    write(tmp_path / "a.toml", b"max_iters = 1\n## later\n")
    write(tmp_path / "c.toml", b"# \xfc\n")
    (tmp_path / "folder.toml").mkdir()
    assert list(list_presets(tmp_path).items()) == [("a", "later"), ("b", "big"), ("c", "\ufffd")]


def test_a_preset_is_found_by_its_exact_name(tmp_path):
    for name in ("baby-gpt", "goethe-char"):
        write(tmp_path / f"{name}.toml", b"")
    assert find_preset("baby-gpt", [tmp_path]) == tmp_path / "baby-gpt.toml"
    there_are = "there are baby-gpt, goethe-char"
    for name, advice in {"../baby-gpt": f"did you mean baby-gpt? ({there_are})", "x": there_are}.items():
        with pytest.raises(OptionError, match=re.escape(f"no preset {name}: {advice}")):
            find_preset(name, [tmp_path])
