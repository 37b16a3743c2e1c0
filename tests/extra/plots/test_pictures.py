"""Pictures that need no model: position codes, neighbours among vectors, tokens, merges, schedules, graphs."""

import re
from pathlib import Path

import numpy as np
import pytest

from docs.course import check
from extra.plots.figure import COLOURS, with_dark_theme
from extra.plots.vectors import NeighbourOptions, draw_learned, draw_neighbours, draw_rotary, draw_sinusoidal
from tests.gpt.saved_models import saved_gpt
from tests.tiny_runs import ROOT, csv_rows
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite import Tensor
from tinygrad_lite.debug.graph import Graph
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
    return lambda file, *words, by: ran(by, *words, "--out", file).out


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


@pytest.mark.parametrize("name", sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.svg")))
def test_every_picture_of_the_documentation_follows_the_theme(name):
    svg = (ROOT / name).read_text(encoding="utf-8")
    assert "prefers-color-scheme" in svg
    if "<filter" not in svg:  # drawn without matplotlib, with colours for both
        return
    plain = re.sub("<style>@media.*?</filter>", "", svg, count=1, flags=re.DOTALL).replace(">\n\n", ">\n", 1)
    assert svg == with_dark_theme(plain, has_photographs=name.endswith(("/rollout.svg", "/completions.svg")))


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


def test_merges_are_those_of_the_paper_with_their_counts(place, drawn):
    said = drawn("m.csv", PAPER, "--kind", "bpe-w", "--steps", 3, by=merges.main)
    assert "step 3: est + </w> becomes est</w>, 9 times" in said
    merged = [(row["left"], row["right"], row["count"]) for row in csv_rows("m.csv") if row["is_merged"] == "1"]
    assert merged == [("e", "s", "9"), ("es", "t", "9"), ("est", "</w>", "9")]
    first = {(row["left"], row["right"]): int(row["count"]) for row in csv_rows("m.csv") if row["step"] == "1"}
    assert (first["l", "o"], first["w", "e"], first["w", "</w>"]) == (7, 8, 5)


# --- schedules ------------------------------------------------------------------------------------------------


def test_the_schedule_of_a_preset_and_of_options(place, drawn):
    drawn("s.csv", "goethe", "reverse", "--warmup_iters", 10, by=schedule.main)
    rates = {(row["preset"], int(row["step"])): float(row["learning_rate"]) for row in csv_rows("s.csv")}
    assert len([name for name, _ in rates if name == "goethe"]) == 1500
    for step in (0, 5, 700, 1499):
        assert rates["goethe", step] == trapezoid(step, 3e-3, 10, 1500, 0.0, 0.4)
    assert ("reverse", 499) in rates


# --- graphs ---------------------------------------------------------------------------------------------------


def test_a_graph_in_the_language_of_graphviz():
    a = Tensor(3.0, requires_grad=True)
    with Graph() as graph:
        result = a * 2 + a
    result.backward()
    source = dot.to_dot(graph.name(a=a, result=result), 'a * 2 + "a"', "how to read it")
    assert 'label="a * 2 + \\"a\\"\\lhow to read it\\l\\l"' in source
    assert 'n0 [label="a\\nvalue 3\\ngradient 3", fillcolor="#d3e8f5"];' in source
    assert 'n1_1 [label="2", fillcolor="white"]; n1_1 -> n1;' in source
    assert 'n2 [label="result = add\\nvalue 9\\ngradient 1", fillcolor="#fdefc3"];' in source
    assert dot.quote('a"\\\nb') == '"a\\"\\\\\\nb"'
