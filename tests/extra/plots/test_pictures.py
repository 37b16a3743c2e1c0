"""Pictures that need no model: position codes, neighbours among vectors, tokens, merges, schedules, graphs."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from docs.course import check
from extra.plots.figure import COLOURS, compose, own_style, with_dark_theme, write
from extra.plots.vectors import NeighbourOptions, draw_learned, draw_neighbours, draw_rotary, draw_sinusoidal
from extra.studies.draw import KINDS, main
from tests.gpt.saved_models import saved_gpt
from tests.tiny_runs import ROOT, csv_rows
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite import Tensor
from tinygrad_lite.debug.graph import Graph
from tinygrad_lite.errors import UserError
from tinygrad_lite.optim import trapezoid

dot, merges, schedule, tokens = (
    check.load(ROOT / f"docs/extra/{name}.py") for name in ("dot", "merges", "schedule", "tokens")
)
TEXT = "Habe nun, ach! Philosophie, Juristerei und Medizin, und leider auch Theologie durchaus studiert.\n" * 20
PAPER = " ".join(["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3)


@pytest.fixture
def place(workplace):
    Path("my.txt").write_text(TEXT, encoding="utf-8")


@pytest.fixture
def drawn(ran):
    """A function: what a command writes to stdout, drawing this file."""
    return lambda file, *words, by=main: ran(by, *words, "--out", file).out


# --- light and dark pages -------------------------------------------------------------------------------------


def shares(colour):
    """Red, green and blue of a colour such as #ff0000, from 0 to 1."""
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def contrast(one, other):
    """WCAG 2's contrast of two colours, each of three numbers from 0 to 1: 1 to 21."""

    def brightness(colour):
        linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722] + 0.05

    low, high = sorted((brightness(one), brightness(other)))
    return high / low


# What is drawn, its colour, and its least contrast with the page (WCAG 2): 4.5 for text, 3 for lines.
CONTRASTS = [("line", colour, 3) for colour in COLOURS] + [("caption", "#444444", 4.5), ("box", "#888888", 3)]


@pytest.mark.parametrize(("what", "colour", "least"), CONTRASTS)
def test_what_is_drawn_is_seen_on_light_and_dark_pages(what, colour, least):
    values = re.search('<feColorMatrix values="([^"]+)"', with_dark_theme("<svg a='b'><g/></svg>"))[1]
    matrix = np.array(values.split(), float).reshape(4, 5)
    rgb, page = shares(colour), shares("#ffffff")
    assert contrast(rgb, page) >= least
    dark = [np.clip(matrix @ [*light, 1, 1], 0, 1)[:3] for light in (rgb, page)]
    assert contrast(*dark) >= least
    assert contrast(dark[1], np.zeros(3)) < 1.5  # the page is dark
    order = np.argsort(rgb, kind="stable")
    assert (np.diff(dark[0][order]) >= -1e-3).all()  # a blue remains a blue


@pytest.mark.parametrize("name", sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.svg")))
def test_every_picture_of_the_documentation_follows_the_theme(name):
    svg = (ROOT / name).read_text(encoding="utf-8")
    assert "prefers-color-scheme" in svg
    if "<filter" not in svg:  # drawn without matplotlib, with colours for both
        return
    plain = re.sub("<style>@media.*?</filter>", "", svg, count=1, flags=re.DOTALL).replace(">\n\n", ">\n", 1)
    assert svg == with_dark_theme(
        plain, has_photographs=name in ("docs/extra/rollout.svg", "docs/extra/completions.svg")
    )


# --- positions and neighbours ---------------------------------------------------------------------------------


def test_positions_are_as_similar_as_they_are_near():
    """The cosine of two sinusoidal codes is the mean over the pairs of cos(f d), as that of a turned query and key."""
    table, rotary = draw_sinusoidal(20, 8), draw_rotary([10000 ** (-2 * i / 8) for i in range(4)], 20, "x")
    np.testing.assert_allclose(np.diag(table.arrays["cosines"]), 1, rtol=1e-6)
    np.testing.assert_allclose(table.arrays["cosines"][0], rotary.arrays["mean"], atol=1e-6)
    np.testing.assert_allclose(table.arrays["cosines"][5, 5:], rotary.arrays["mean"][:15], atol=1e-6)
    learned = draw_learned(np.array([[1.0, 1.0], [0.0, 0.0], [-2.0, -2.0]]), "x")
    np.testing.assert_allclose(learned.arrays["cosines"][0], [1, 0, -1], atol=1e-12)


def test_neighbours_are_those_with_the_largest_cosines():
    tokenizer = BPETokenizer.train("der die das der die das und und", 260)
    vectors = np.random.default_rng(0).normal(size=(260, 6))
    vectors[ord("b")] = 3 * vectors[ord("a")]  # the same direction
    picture = draw_neighbours(tokenizer, vectors, "x", NeighbourOptions(tokens=["a", "c"], top=3))
    assert picture.text.split()[:3] == ["a", "b", "1.00"]
    header, *table = picture.table
    assert header == ("token", "rank", "neighbour", "cosine", "x", "y")
    assert [(row[0], row[1], row[2]) for row in table[:2]] == [("a", 0, "a"), ("a", 1, "b")]
    assert [row[3] for row in table[1:4]] == sorted((row[3] for row in table[1:4]), reverse=True)


def test_every_token_has_one_marker_on_the_map_and_a_name_beside_it_and_inside(matplotlib):
    tokenizer = BPETokenizer.train("der die das der die das und und", 260)
    options = NeighbourOptions(tokens=[*"abcdefgh"], top=6)
    picture = draw_neighbours(tokenizer, np.random.default_rng(1).normal(size=(260, 3)), "x", options)
    with own_style():
        figure = compose(picture)
        figure.draw_without_rendering()
    *charts, axes = figure.axes
    assert [len(chart.patches) for chart in charts] == [6] * 8
    *lines, grey = axes.lines
    points = [tuple(point) for line in lines for point in line.get_xydata()]
    assert len(set(points)) == len(points) == len({row[2] for row in picture.table[1:]})
    markers = [line.get_marker() for line in lines if line.get_markersize() == 8]
    assert len(set(markers)) == len(markers) == 8
    assert len(grey.get_xydata()) == 260
    frame, shown = axes.get_window_extent(), {text.get_text(): text for text in axes.texts}
    assert {*"abcefgh", "·d"} <= shown.keys()
    for text in shown.values():
        box, place = text.get_window_extent(), axes.transData.transform(text.xy)
        gap = np.clip(place, box.min, box.max) - place
        assert np.abs(gap).max() < 0.25 * figure.dpi, text
        assert np.minimum(box.min - frame.min, frame.max - box.max).min() > -1, text


def test_a_vocabulary_without_neighbours_and_weights_that_are_not_finite(tmp_path):
    tokenizer = CharTokenizer.train("a")  # and <unk>
    picture = draw_neighbours(tokenizer, np.ones((2, 1)), "x", NeighbourOptions())
    assert [row[:3] for row in picture.table][1:] == [("a", 0, "a"), ("<unk>", 0, "<unk>"), ("<unk>", 1, "a")]
    bad = np.full((2, 2), np.nan)
    for draw in (lambda: draw_neighbours(tokenizer, bad, "x", NeighbourOptions()), lambda: draw_learned(bad, "x")):
        with pytest.raises(UserError, match="x contains NaN or infinity, which cannot be drawn"):
            draw()
    pytest.importorskip("matplotlib")
    write(picture, tmp_path / "n.svg")


# --- tokens and merges ----------------------------------------------------------------------------------------


def test_one_text_is_cut_by_every_kind_and_by_a_checkpoint(place, drawn):
    saved_gpt(Path("model/last.safetensors"), CharTokenizer.train(TEXT))
    drawn("t.csv", "my.txt", "model", "--text", "und nün", "--vocab_size", 280, by=tokens.main)
    found = {}
    for row in csv_rows("t.csv"):
        found.setdefault(row["tokenizer"], []).append(row["token"])
    assert list(found)[::6] == ["char, learned from my.txt", "model"]
    shown = {name.removesuffix(", learned from my.txt"): " ".join(tokens) for name, tokens in found.items()}
    assert "·n" in found["bpe, learned from my.txt"]
    expected = {"model": "u n d · n <unk> n", "byte": r"u n d · n \xc3 \xbc n", "word": "und · <unk>"}
    assert {name: shown[name] for name in (*expected, "wordpiece")} == expected | {"wordpiece": "und [UNK]"}
    pytest.importorskip("matplotlib")
    drawn("t.svg", "my.txt", by=tokens.main)
    assert ">char, learned from my.txt: " in Path("t.svg").read_text(encoding="utf-8")


def test_merges_are_those_of_the_paper_with_their_counts(place, drawn, ran):
    said = drawn("m.csv", PAPER, "--kind", "bpe-w", "--steps", 3, by=merges.main)
    assert "step 3: est + </w> becomes est</w>, 9 times" in said
    merged = [(row["left"], row["right"], row["count"]) for row in csv_rows("m.csv") if row["is_merged"] == "1"]
    assert merged == [("e", "s", "9"), ("es", "t", "9"), ("est", "</w>", "9")]
    first = {(row["left"], row["right"]): int(row["count"]) for row in csv_rows("m.csv") if row["step"] == "1"}
    assert (first["l", "o"], first["w", "e"], first["w", "</w>"]) == (7, 8, 5)
    said = ran(merges.main, PAPER, "--steps", 2).out  # the same on bytes; the text alone
    assert "step 1: e + s becomes es, 9 times" in said
    assert not Path("merges.svg").exists()
    pytest.importorskip("matplotlib")
    drawn("m.svg", PAPER, by=merges.main)
    assert ">l+o: 7<" in Path("m.svg").read_text(encoding="utf-8")


# --- schedules ------------------------------------------------------------------------------------------------


def test_the_schedule_of_a_preset_and_of_options(place, drawn):
    drawn("s.csv", "goethe", "reverse", "--warmup_iters", 10, by=schedule.main)
    rates = {(row["preset"], int(row["step"])): float(row["learning_rate"]) for row in csv_rows("s.csv")}
    assert len([name for name, _ in rates if name == "goethe"]) == 1500
    for step in (0, 5, 700, 1499):
        assert rates["goethe", step] == trapezoid(step, 3e-3, 10, 1500, 0.0, 0.4)
    assert ("reverse", 499) in rates
    drawn("c.csv", "--schedule", "constant", "--max_iters", 5, "--warmup_iters", 0, by=schedule.main)
    assert {row["learning_rate"] for row in csv_rows("c.csv")} == {"0.001"}
    pytest.importorskip("matplotlib")
    assert schedule.main(["goethe"]) == 0
    assert "trapezoid, 1,500 steps" in Path("schedule.svg").read_text(encoding="utf-8")


# --- graphs ---------------------------------------------------------------------------------------------------


def recorded():
    """A graph of a * 2 + a at a = 3, with its gradients."""
    a = Tensor(3.0, requires_grad=True)
    with Graph() as graph:
        result = a * 2 + a
    result.backward()
    return graph.name(a=a, result=result)


def test_a_graph_in_the_language_of_graphviz():
    source = dot.to_dot(recorded(), 'a * 2 + "a"', "how to read it")
    assert 'label="a * 2 + \\"a\\"\\lhow to read it\\l\\l"' in source
    assert 'n0 [label="a\\nvalue 3\\ngradient 3", fillcolor="#d3e8f5"];' in source
    assert 'n1_1 [label="2", fillcolor="white"]; n1_1 -> n1;' in source
    assert 'n2 [label="result = add\\nvalue 9\\ngradient 1", fillcolor="#fdefc3"];' in source
    assert dot.quote('a"\\\nb') == '"a\\"\\\\\\nb"'


@pytest.mark.skipif(not shutil.which("dot"), reason="graphviz is not installed")
def test_graphviz_draws():
    done = subprocess.run(["dot", "-Tsvg"], input=dot.to_dot(recorded(), "a").encode(), capture_output=True, check=True)
    assert b"gradient 3" in done.stdout


# --- the command ----------------------------------------------------------------------------------------------


def test_help_lists_the_pictures_and_the_options_of_each(capsys):
    assert main([]) == main(["--help"]) == 0
    assert capsys.readouterr().out.count("  neighbours   the nearest tokens by their embeddings") == 2
    for name in KINDS:
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert f"usage: python -m extra.studies.draw {name}" in capsys.readouterr().out
