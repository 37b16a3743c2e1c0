"""Random graphs: gradients equal slopes, both versions of an operation agree, and PyTorch gives the same."""

import inspect
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.places import elsewhere, here
from tests.reliability.random_graphs import Graph, graphs
from tinygrad_lite import no_grad, ops
from tinygrad_lite.functional.registry import REGISTRY, composed

pytestmark = pytest.mark.every_device

SEED = 20240229
PRIMITIVES = {name for name in ops.__all__ if inspect.signature(getattr(ops, name)).return_annotation == "Tensor"}
# Updates have no gradient; the other three are linear, then gelu; linear several times; and a sum.
VERSIONS = {name for name, operation in REGISTRY.items() if operation.composed.__module__.startswith("tinygrad_lite.")}
VERSIONS -= {"adamw", "muon", "linear_gelu", "linears", "residual"}
EXPECTED = PRIMITIVES | VERSIONS | {"softmax", "log_softmax", "logsumexp"}
EXPECTED -= {"amax", "amin", "invert"}  # the first two are drawn as max and min, the last is a constant
DRAWING = {"dropout", "scaled_dot_product_attention"}  # on a GPU, the two versions drop different elements
STEP = 2.0**-15  # how far leaves are nudged; exact in float32, also a sixteenth of it


def check_all(count, check):
    """Draw this many graphs and check each; return their number and how often each operation occurred."""
    names: Counter[str] = Counter()
    drawn = 0
    quiet = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck), "print_blob": False}

    @seed(SEED)
    @settings(max_examples=count, phases=[Phase.generate, Phase.shrink], **quiet)
    @given(graphs())
    def every(graph):
        nonlocal drawn
        check(graph)
        names.update(graph.names())
        drawn += 1

    with elsewhere():
        every()
    assert drawn >= count
    return drawn, names


def gradients(graph: Graph, torch: Any = None) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """All values of a graph, and the gradients of its leaves (0 where none arrived), here or in PyTorch."""
    leaves = graph.leaves()
    if torch:
        leaves = {i: torch.tensor(leaf.numpy(), requires_grad=leaf.requires_grad) for i, leaf in leaves.items()}
    values, loss = graph.run(leaves, torch)
    if loss.requires_grad:
        loss.backward()
    found = {i: x for i, x in leaves.items() if x.requires_grad}
    gradients = {i: np.zeros(x.shape) if x.grad is None else x.grad.numpy() for i, x in found.items()}
    return [v.detach().numpy() for v in values], gradients


def slopes(graph: Graph, step: float) -> dict[int, np.ndarray]:
    """The gradients by differences around each number of each leaf, with an error of step^4.

    (L(x - 2 h) - 8 L(x - h) + 8 L(x + h) - L(x + 2 h)) / (12 h)
    """
    leaves = graph.leaves()
    found = {i: np.zeros(x.shape) for i, x in leaves.items() if x.requires_grad}
    with no_grad():
        for i, slope in found.items():
            data = leaves[i].data
            for place in np.ndindex(data.shape):
                before = data[place].copy()  # from a GPU, it is a view
                for steps, factor in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
                    data[place] = before + steps * step
                    slope[place] += factor * graph.run(leaves)[1].item() / (12 * step)
                data[place] = before
    return found


def distance(a: dict[int, np.ndarray], b: dict[int, np.ndarray]) -> float:
    """The largest difference, divided by the largest gradient of the graph, or by 1 if all are smaller."""
    scale = max([1.0, *(float(np.abs(x).max(initial=0)) for x in a.values())])
    return max([0.0, *(float(np.abs(a[i] - b[i]).max(initial=0)) for i in a)]) / scale


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_gradients_equal_slopes_in_both_versions(count, report):
    worst, finer = 0.0, 0

    def check(graph):
        nonlocal worst, finer
        values, fused = gradients(graph)
        if here() == "cpu" or not DRAWING & graph.names().keys():
            with composed():
                same_values, same = gradients(graph)
            for a, b in zip(values, same_values, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
            assert distance(fused, same) < 1e-6  # float32 leaves have gradients of seven digits
        error = distance(fused, slopes(graph, STEP))
        if error >= 1e-6:  # a kink can lie within the step, but a wrong gradient is wrong for every step
            error, finer = distance(fused, slopes(graph, STEP / 16)), finer + 1
        assert error < 1e-6, f"a gradient is not the slope: it is off by {error:.2g} of the largest"
        worst = max(worst, error)

    drawn, names = check_all(count, check)
    expected = EXPECTED
    if here() != "cpu":  # without a fused version, the primitives are drawn
        expected = EXPECTED - {name for name in VERSIONS if "cuda" not in REGISTRY[name].fused}
    missing = expected - names.keys()
    assert len(missing) <= (0 if count >= 2000 else 5), f"never drawn: {missing}"
    report(
        f"gradients: {drawn:,} random graphs (seed {SEED}), {sum(names.values()) - names['leaf']:,} operations of "
        f"{len(names) - 1} kinds: worst relative difference from the slope {worst:.1e}; "
        f"{finer} graphs needed a smaller step than the others"
    )
    report("operations drawn: " + ", ".join(f"{name} {n}" for name, n in sorted(names.items())))


@pytest.mark.torch
@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_values_and_gradients_equal_those_of_torch(count, report):
    torch = pytest.importorskip("torch")
    worst = 0.0

    def check(graph):
        nonlocal worst
        (values, ours), (their_values, theirs) = gradients(graph), gradients(graph, torch)
        for a, b in zip(values, their_values, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
        wide = {i: g for i, g in ours.items() if g.dtype == np.float64}
        assert distance(ours, theirs) < 1e-6
        worst = max(worst, distance(wide, theirs))
        assert worst < 1e-10

    drawn, names = check_all(count, check)
    report(
        f"gradients: {drawn:,} random graphs (seed {SEED}) against PyTorch {torch.__version__}, "
        f"{sum(names.values()) - names['leaf']:,} operations: worst relative difference in float64 {worst:.1e}"
    )
