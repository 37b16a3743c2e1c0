"""train.py --profile: the cost of each operation of a step, and no training."""

import re

import pytest

import train
from tests.places import here, is_fused
from tests.tiny_runs import arguments

pytestmark = pytest.mark.every_device


def dry_run(capsys):
    """What a dry run says of the same model."""
    assert train.main([*arguments(), "--dry_run"]) == 0
    return capsys.readouterr().err


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("number", [1, 2])
def test_train_py_prints_a_profile_and_trains_nothing(number, workplace, capsys):
    if number > 1 and here() != "cpu":
        pytest.skip("a GPU is kept busy by one process")
    assert train.main([*arguments(workers=number), "--profile"]) == 0
    out = capsys.readouterr().out
    assert f"in process 0 of {number}" in out
    fused = [name for name in ("linear", "scaled_dot_product_attention", "layer_norm") if is_fused(name)]
    for name in (*fused, "(sums, clipping, update)"):
        assert f"\n{name} " in out
    assert "of the step" in out
    assert max(map(len, out.splitlines())) < 80
    parameters, _ = re.search(r"\n +\d+ +([\d,]+) +([\d.]+)  together\n", out).groups()
    assert f"parameters       {parameters}\n" in dry_run(capsys)
    assert not (workplace / "run").exists()
