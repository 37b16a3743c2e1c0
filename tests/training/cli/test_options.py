import tomllib
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.training.cli.some_options import TEXT, Options, result_or_message
from tinygrad_lite.errors import OptionError
from training.cli.options import build, difference, find_preset, list_presets, read_preset

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
    ("max_itres = 5", "unknown option max_itres (preset odd): did you mean max_iters?"),
    ("max-iters = 5", "unknown option max-iters (preset odd): did you mean max_iters?"),
    ("[training]\nmax_iters = 5", "unknown option training (preset odd)"),
    ("max_iters = -1", "--max_iters -1 (preset odd): must be at least 0 (steps)"),
    ('max_iters = "5"', "--max_iters '5' (preset odd): must be a whole number, at least 0 (steps)"),
    ("max_iters = true", "--max_iters True (preset odd): must be a whole number, at least 0 (steps)"),
    ("max_iters = 1.5", "--max_iters 1.5 (preset odd): must be a whole number, at least 0 (steps)"),
    ("temperature = false", "--temperature False (preset odd): must be a finite number, at least 0"),
    ("temperature = nan", "--temperature nan (preset odd): must be a finite number, at least 0"),
    (f"temperature = {10**400}", f"--temperature 1{'0' * 56}... (preset odd): must be a finite number, at least 0"),
    ('bias = "true"', "--bias 'true' (preset odd): must be true or false"),
    ('device = "tpu"', "--device 'tpu' (preset odd): must be one of cpu, cuda, auto"),
    ("out_dir = 5", "--out_dir 5 (preset odd): must be a text"),
    ('text = "a.txt"', "--text 'a.txt' (preset odd): must be a list of paths"),
    ('text = ["a", 1]', "--text ['a', 1] (preset odd): must be a list of paths"),
    ("name = 2024-01-01", "--name datetime.date(2024, 1, 1) (preset odd): must be a text, or none"),
]


@pytest.mark.parametrize(("toml", "message"), MISTAKES)
def test_a_mistake_in_a_preset_names_option_and_preset(toml, message):
    with pytest.raises(OptionError) as caught:
        build(Options, ("preset odd", tomllib.loads(toml)))
    assert str(caught.value) == message


def test_difference_lists_what_changed():
    old = {"learning_rate": 0.001, "text": [], "seed": 1, "out_dir": "", "gone": None}
    new = {"learning_rate": 0.0005, "text": ["a"], "seed": 1, "out_dir": "out", "new": True}
    assert difference(old, new) == [
        "gone: None -> not set",
        "learning_rate: 0.001 -> 0.0005",
        "new: not set -> True",
        "out_dir: '' -> out",
        "text: [] -> ['a']",
    ]
    assert difference(new, new) == []


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


def test_a_preset_that_cannot_be_read_is_an_option_error(tmp_path):
    with pytest.raises(OptionError, match=r"cannot read the preset .*: No such file"):
        read_preset(tmp_path / "missing.toml")
    with pytest.raises(OptionError, match=r"cannot read the preset "):
        read_preset(tmp_path)


def test_presets_are_described_by_their_first_comment(tmp_path):
    write(tmp_path / "b.toml", b"# big \n# and slow\nmax_iters = 1\n")
    write(tmp_path / "a.toml", b"max_iters = 1\n## later\n")
    write(tmp_path / "c.toml", b"")
    write(tmp_path / "d.toml", b"# \xfc\n")
    write(tmp_path / "note.txt", b"# no preset")
    (tmp_path / "folder.toml").mkdir()
    assert list(list_presets(tmp_path).items()) == [("a", "later"), ("b", "big"), ("c", ""), ("d", "\ufffd")]
    assert list_presets(tmp_path / "missing") == {}


def test_a_preset_is_found_by_its_exact_name(tmp_path):
    for name in ("baby-gpt", "goethe-char"):
        write(tmp_path / f"{name}.toml", b"")
    assert find_preset("baby-gpt", [tmp_path]) == tmp_path / "baby-gpt.toml"
    for name, message in {
        "goethe-chat": "no preset goethe-chat: did you mean goethe-char? (there are baby-gpt, goethe-char)",
        "../baby-gpt": "no preset ../baby-gpt: did you mean baby-gpt? (there are baby-gpt, goethe-char)",
        "x": "no preset x: there are baby-gpt, goethe-char",
        "": "no preset '': there are baby-gpt, goethe-char",
    }.items():
        with pytest.raises(OptionError) as caught:
            find_preset(name, [tmp_path])
        assert str(caught.value) == message
    with pytest.raises(OptionError, match="there are none in"):
        find_preset("baby-gpt", [tmp_path / "missing"])


# --- anything at all ------------------------------------------------------------------------------------------

TOML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@given(values=st.dictionaries(st.sampled_from([field.name for field in fields(Options)]) | TEXT, TOML, max_size=4))
@example(values={"temperature": 10**400})
def test_any_preset_is_accepted_or_refused_in_one_line(values):
    options = result_or_message(build, Options, ("preset", values))
    if isinstance(options, str):
        assert options.isprintable()
    else:
        assert build(Options, ("again", asdict(options))) == options
