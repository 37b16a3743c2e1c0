"""The profile of a step: every operation is in it, and nothing is counted twice."""

import re

import numpy as np
import pytest

import train
from extra.studies.profiler import Profile
from gpt.model import GPT
from tests.gpt.configs import GPTConfig
from tests.places import is_fused
from tests.tiny_runs import arguments
from tests.tinygrad_lite.functional.version_cases import leaf
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

pytestmark = pytest.mark.every_device


def test_operations_are_counted_with_their_time_and_memory():
    w = Tensor(np.ones((10, 10)), requires_grad=True)
    x = Tensor(np.ones((4, 10)))
    with Profile() as profile:
        for _ in range(3):
            ((x @ w).exp() * 2.0).sum().backward()
    spent = profile.by_operation
    assert {name: one.calls for name, one in spent.items()} == {"matmul": 3, "exp": 3, "mul": 3, "sum": 3}
    assert spent["exp"].kept == 3 * 4 * 10 * 8  # its result, which is also what its derivative needs
    assert spent["matmul"].kept == 0  # no derivative needs its result; weights and data exist anyway
    measured = sum(one.forward + one.backward for one in spent.values())
    assert 0 < measured <= profile.seconds
    assert all(one.forward > 0 for one in spent.values())
    assert spent["exp"].backward > 0


def test_the_table_adds_up():
    x = Tensor(np.ones((50, 50)), requires_grad=True)
    with Profile() as profile:
        for _ in range(2):
            (x @ x).relu().sum().backward()
        profile.note("(update)")
    lines = profile.table(2).splitlines()
    shares = {line[:32].strip(): float(re.search(r"([\d.]+)%", line)[1]) for line in lines[1:]}
    assert list(shares)[-2:] == ["everything else", "together"]
    assert shares.pop("together") == 100
    assert sum(shares.values()) == pytest.approx(100, abs=0.1 * len(shares))
    assert lines[-1].split()[1] == "3"  # calls in a step; the update came once in two of them


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_the_shapes_add_up_to_the_models_parameters_and_operations(positions):
    config = GPTConfig(30, block_size=8, n_layer=2, n_head=2, n_embd=16, positions=positions, bias=True)
    model, batch = GPT(config), [Tensor(np.ones((3, 8), np.int64)) for _ in range(2)]
    with Profile() as profile:
        model.loss(batch).backward()
    together = profile.shapes().splitlines()[-1].split()
    forward = model.flops_per_token() * 3 * 8 / 3  # of 24 tokens; the passes together do three times as much
    assert together[1:3] == [f"{model.num_parameters():,}", f"{forward / 1e6:,.2f}"]
    assert sum(shaped.calls for shaped in profile.by_shapes.values()) == int(together[0])
    row = next(line for line in profile.shapes().splitlines() if "3x8x16 64x16 -> 3x8x64" in line).split()
    assert row[:4] == ["2", f"{2 * 64 * 16:,}", f"{2 * 2 * 24 * 64 * 16 / 1e6:.2f}", "linear:"]  # GELU adds the bias


@pytest.mark.cpu_only("the CPU's version")
def test_of_a_convolution_only_inputs_are_kept_for_the_backward_pass():
    x, weight = leaf(2, 3, 8, 8), leaf(4, 3, 3, 3)
    with Profile() as profile:
        F.conv2d(x, weight, padding=1).sum().backward()
    assert profile.by_operation["conv2d"].kept == 0
    (shaped,) = (s for (name, *_), s in profile.by_shapes.items() if name == "conv2d")
    assert shaped.operations == 2 * (2 * 4 * 8 * 8) * (3 * 3 * 3)  # a sum of 27 products for each result


# --- train.py --profile -----------------------------------------------------------------------------------------------


def test_train_py_prints_a_profile_and_trains_nothing(workplace, ran):
    out = ran(train.main, *arguments(workers=1), "--profile").out
    fused = [name for name in ("linear", "scaled_dot_product_attention", "layer_norm") if is_fused(name)]
    for name in (*fused, "(sums, clipping, update)"):
        assert f"\n{name} " in out
    assert "of the step" in out
    assert max(map(len, out.splitlines())) < 80
    parameters, _ = re.search(r"\n +\d+ +([\d,]+) +([\d.]+)  together\n", out).groups()
    assert f"parameters       {parameters}\n" in ran(train.main, *arguments(), "--dry_run").err
    assert not (workplace / "run").exists()
