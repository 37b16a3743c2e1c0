"""Pictures of attention weights: charts for every head, one large chart, the row of one token."""

import numpy as np
import pytest

from extra.inside import Attention
from extra.plots.attention import HIDDEN, AttentionOptions, draw_attention
from extra.plots.figure import compose, own_style, write

TOKENS = ["Ha", "be", "·nun", "$", "·nun"]


def made_up(layers=2, heads=3, tokens=TOKENS, is_causal=True):
    weights = np.random.default_rng(0).uniform(0.1, 1, (layers, heads, len(tokens), len(tokens)))
    weights = np.tril(weights) if is_causal else weights
    return Attention(tokens, tokens, weights / weights.sum(-1, keepdims=True), is_causal)


def charts(picture):
    """The axes of the figure that have an image, without bars of colours."""
    pytest.importorskip("matplotlib")
    with own_style():
        return [axes for axes in compose(picture).axes if axes.get_images() and axes.get_label() != "<colorbar>"]


def test_there_is_a_chart_for_each_head_with_the_tokens_at_its_edges():
    found = made_up()
    picture = draw_attention(found, "self-attention of a model", AttentionOptions())
    assert picture.title == "Self-attention of a model"
    np.testing.assert_array_equal(picture.arrays["weights"], found.weights)
    assert picture.arrays["keys"].tolist() == TOKENS
    shown = charts(picture)
    assert [axes.get_title() for axes in shown] == [f"layer {i}, head {j}" for i in (1, 2) for j in (1, 2, 3)]
    for axes, weights in zip(shown, found.weights.reshape(6, 5, 5), strict=True):
        drawn = axes.get_images()[0]
        np.testing.assert_allclose(drawn.get_array().filled(0), weights)
        assert drawn.get_array().mask.tolist() == np.triu(np.ones((5, 5), bool), 1).tolist()  # the future is marked
        assert axes.get_facecolor()[:3] == pytest.approx([int(HIDDEN[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    assert [label.get_text() for label in shown[3].get_xticklabels()] == TOKENS


def test_one_head_is_large_and_has_numbers():
    found = made_up()
    picture = draw_attention(found, "attention", AttentionOptions(layer=2, head=3))
    np.testing.assert_array_equal(picture.arrays["weights"], found.weights[1:, 2:])
    assert picture.title == "Attention, layer 2, head 3"
    (axes,) = charts(picture)
    assert [text.get_text() for text in axes.texts][:2] == ["100", f"{100 * found.weights[1, 2, 1, 0]:.0f}"]


def test_the_row_of_one_token_in_each_layer_or_head():
    found = made_up()
    (axes,) = charts(draw_attention(found, "attention", AttentionOptions(of="nun")))
    np.testing.assert_allclose(axes.get_images()[0].get_array(), found.weights[:, :, 4].mean(1))  # the last of the two
    (axes,) = charts(draw_attention(found, "attention", AttentionOptions(of="be", layer=2)))
    np.testing.assert_allclose(axes.get_images()[0].get_array(), found.weights[1, :, 1, :2])  # all that "be" can see
    assert [label.get_text() for label in axes.get_yticklabels()] == ["head 1", "head 2", "head 3"]


LARGE = "one chart drawn large by --layer and --head. The text:"
# Layers, heads, tokens, options; charts in a row; words of the caption; whether numbers are shown.
WIDE_CASES = (
    (2, 5, 15, {}, 3, "Each row", False),  # three and two heads in a row
    (4, 4, 55, {}, 4, f"One token in 3 is named, and {LARGE} {'a' * 55}", False),
    (1, 12, 200, {}, 6, "One token in 13 is named", False),
    (2, 3, 55, {"layer": 1, "head": 2}, 1, "too many squares for numbers", False),
    (2, 3, 40, {"of": "a"}, 1, "the numbers are percent", True),
    (2, 3, 300, {"of": "a"}, 1, "too many squares for numbers. One token in 4 is named", False),
)


@pytest.mark.parametrize(("layers", "heads", "tokens", "chosen", "row", "words", "numbers"), WIDE_CASES)
def test_a_picture_is_readable_and_says_what_it_shows(layers, heads, tokens, chosen, row, words, numbers):
    found = made_up(layers, heads, ["a"] * tokens)
    picture = draw_attention(found, "attention", AttentionOptions(**chosen))
    assert picture.size[0] * 160 <= 1600
    assert words in picture.caption
    shown = charts(picture)
    assert (shown[0].get_gridspec().ncols, len(shown)) == (row, 1 if chosen else layers * heads)
    assert (bool(shown[0].get_yticklabels()), bool(shown[0].texts)) == (True, numbers)
    lowest = [axes for axes in shown if axes.get_xticklabels()]
    assert len(lowest) == row  # a chart with no other below has the names, even in a row that is not full


def test_letters_of_tokens_are_not_read_as_formulas(tmp_path, matplotlib):
    found = made_up(1, 1, ["$x^2$", "<eos>", "_"])
    for name in ("a.svg", "b.svg"):
        write(draw_attention(found, "attention", AttentionOptions()), tmp_path / name)
    picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
    for words in (">$x^2$<", "&lt;eos&gt;", ">_<"):
        assert words in picture
    assert (tmp_path / "b.svg").read_text(encoding="utf-8") == picture
