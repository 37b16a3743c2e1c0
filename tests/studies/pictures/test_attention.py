"""Pictures of attention weights: charts for every head, one large chart, the row of one token."""

import numpy as np
import pytest

from studies.pictures.attention import HIDDEN, AttentionOptions, draw_attention
from tinygrad_lite.errors import OptionError
from workshop.figure import compose, own_style, write
from workshop.inside import Attention

TOKENS = ["Ha", "be", "·nun", "$", "·nun"]


def make(layers=2, heads=3, tokens=TOKENS, is_causal=True):
    weights = np.random.default_rng(0).uniform(0.1, 1, (layers, heads, len(tokens), len(tokens)))
    weights = np.tril(weights) if is_causal else weights
    return Attention(tokens, tokens, weights / weights.sum(-1, keepdims=True), is_causal)


def charts(picture):
    """The axes of the figure that have an image, without bars of colours."""
    pytest.importorskip("matplotlib")
    with own_style():
        return [axes for axes in compose(picture).axes if axes.get_images() and axes.get_label() != "<colorbar>"]


def test_there_is_a_chart_for_each_head_with_the_tokens_at_its_edges():
    found = make()
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
    found = make()
    options = AttentionOptions(layer=2, head=3)
    picture = draw_attention(found, "attention", options)
    np.testing.assert_array_equal(picture.arrays["weights"], found.weights[1:, 2:])
    assert picture.title == "Attention, layer 2, head 3"
    (axes,) = charts(picture)
    assert [text.get_text() for text in axes.texts][:2] == ["100", f"{100 * found.weights[1, 2, 1, 0]:.0f}"]
    row = draw_attention(found, "attention", AttentionOptions(layer=1))
    assert [axes.get_title() for axes in charts(row)] == ["layer 1, head 1", "layer 1, head 2", "layer 1, head 3"]


def test_the_row_of_one_token_in_each_layer_or_head():
    found = make()
    (axes,) = charts(draw_attention(found, "attention", AttentionOptions(of="nun")))
    np.testing.assert_allclose(axes.get_images()[0].get_array(), found.weights[:, :, 4].mean(1))  # the last of the two
    (axes,) = charts(draw_attention(found, "attention", AttentionOptions(of="be", layer=2)))
    np.testing.assert_allclose(axes.get_images()[0].get_array().filled(0), found.weights[1, :, 1])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["head 1", "head 2", "head 3"]


def test_what_is_not_there_is_refused():
    for options, reason in (
        (AttentionOptions(layer=3), "--layer 3: the model has 2, counted from 1"),
        (AttentionOptions(head=4), "--head 4: the model has 3"),
        (AttentionOptions(of="ach"), r"--of ach: the tokens are Ha be ·nun \$ ·nun"),
    ):
        with pytest.raises(OptionError, match=reason):
            draw_attention(make(), "attention", options)


def test_many_tokens_are_drawn_as_thumbnails_and_too_many_heads_are_refused(tmp_path):
    many = draw_attention(make(2, 4, ["a"] * 90), "attention", AttentionOptions())
    assert "90 tokens by 90: draw one chart with --layer and --head" in many.caption
    assert [axes.get_xticklabels() for axes in charts(many)] == [[]] * 8
    large = draw_attention(make(1, 100, ["a"] * 9), "attention", AttentionOptions())
    with pytest.raises(OptionError, match=r"would measure 111 by 2 inches, more than 100: use a shorter text"):
        write(large, tmp_path / "large.png")


def test_letters_of_tokens_are_not_read_as_formulas(tmp_path):
    pytest.importorskip("matplotlib")
    found = make(1, 1, ["$x^2$", "<eos>", "_"])
    for name in ("a.svg", "b.svg"):
        write(draw_attention(found, "attention", AttentionOptions()), tmp_path / name)
    picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
    for words in (">$x^2$<", "&lt;eos&gt;", ">_<"):
        assert words in picture
    assert (tmp_path / "b.svg").read_text(encoding="utf-8") == picture
    with pytest.raises(OptionError, match="cannot be written"):
        write(draw_attention(found, "attention", AttentionOptions()), tmp_path / "gone" / "a.svg")
