"""The graph as text: each tensor once, with its operation and inputs, its values and, after backward, its gradient."""

import numpy as np
import pytest

from tinygrad_lite import Tensor, no_grad
from tinygrad_lite.debug.graph import Graph, show_values
from tinygrad_lite.nn import Linear
from tinygrad_lite.random import random_key

pytestmark = pytest.mark.every_device


def leaf(data, **options):
    return Tensor(data, requires_grad=True, **options)


def table(graph: Graph) -> dict[str, list[str]]:
    """By the left part of each line, its other columns; without the heading."""
    return {line.split("  ")[0]: line.split()[-3:] for line in str(graph).splitlines()[1:]}


def test_values_are_shown_at_once_and_gradients_after_backward():
    x = leaf(3.0)
    with Graph() as graph:
        y = x * x + 1
    assert str(graph.name(x=x)).splitlines()[1:] == [
        "x = leaf         ()     3",
        "#1 = mul(x, x)   ()     9",
        "#2 = add(#1, 1)  ()     10",
    ]
    y.backward()
    numbers = {"x = leaf": ["3", "6"], "#1 = mul(x, x)": ["9", "1"], "#2 = add(#1, 1)": ["10", "1"]}
    assert table(graph) == {name: ["()", *shown] for name, shown in numbers.items()}
    assert repr(graph) == str(graph)


def test_a_write_in_place_is_a_line_of_its_own():
    x = leaf([1.0, 2.0])
    with Graph() as graph:
        y = x * 2
        y += x
        (y * y).sum().backward()
    operations = "#1 = mul(x, 2), #2 = add(#1, x), #3 = mul(#2, #2), #4 = sum(#3)"
    assert ", ".join(table(graph.name(x=x))) == f"x = leaf, {operations}"


def test_constants_are_distinguished_from_leaves_and_numbers_are_inlined():
    x, w = Tensor([1.0, 2.0]), leaf([3.0, 4.0])
    with no_grad():
        scale = w * 2
    scale = scale.detach()
    with Graph() as graph:
        (x * w * scale + 0.5).sum()
    lines = table(graph.name(x=x, w=w))
    operations = "#2 = mul(x, w), #3 = mul(#2, #1), #4 = add(#3, 0.5), #5 = sum(#4)"
    assert ", ".join(lines) == f"x = constant, w = leaf, #1 = constant, {operations}"


def test_names_may_be_given_as_locals():
    x = leaf(2.0)
    steps = 3
    with Graph() as graph:
        y = x * steps
    assert y.item() == 6
    assert list(table(graph.name(locals()))) == ["x = leaf", "y = mul(x, 3)"]


def test_a_models_parameters_have_their_names():
    with random_key(0):
        layer = Linear(3, 2)
    with Graph() as graph:
        layer(Tensor.ones(4, 3)).sum()
    lines = list(table(graph.name(dict(layer.named_parameters()))))
    assert "weight = leaf" in lines
    assert any(line.endswith("= linear(#1, weight, bias)") for line in lines)


def test_long_graphs_need_no_recursion():
    y = leaf(1.0)
    with Graph() as graph:
        for _ in range(2_000):
            y = -y
    y.backward()
    assert str(graph).count("\n") == 2_001


SHOWN = [
    (1.0, "1"),
    (1 / 3, "0.333333"),
    ([], "[]"),
    ([1.5, -2.0, np.nan], "[1.5 -2 nan]"),
    ([1] * 6, "[1 1 1 1 1 1]"),
    ([2.0] * 100, "norm 20"),
    ([3, 4] + [0] * 10, "norm 5"),
]


@pytest.mark.parametrize(("data", "shown"), SHOWN)
def test_values_fit_into_a_line(data, shown):
    assert show_values(Tensor(data)) == shown
