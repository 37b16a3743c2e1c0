"""The stand-in refuses what CuPy refuses, and a whole model trains on it."""

import numpy as np
import pytest

from gpt.model import GPT
from tests.gpt.configs import GPTConfig
from tests.standin import standin_device
from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.nn import Linear
from tinygrad_lite.optim import SGD, Adam, AdamW, decay_groups
from tinygrad_lite.random import random_key

MIXTURES = [
    lambda xp, a, host: host + a,
    lambda xp, a, host: np.add(host, a, out=host),
    lambda xp, a, host: np.concatenate([a, host]),
    lambda xp, a, host: a[host.astype(int)],
    lambda xp, a, host: a.__setitem__(..., host),
    lambda xp, a, host: host.__setitem__(..., a),
    lambda xp, a, host: np.asarray(a),
    lambda xp, a, host: xp.where(host, 1, 0),
]


@pytest.fixture
def standin():
    with standin_device() as name:
        yield name


@pytest.mark.parametrize("mix", MIXTURES)
def test_host_arrays_are_refused(standin, mix):
    xp = get_device(standin).xp
    with pytest.raises((TypeError, ValueError)):
        mix(xp, xp.ones(3), np.ones(3))


def trained(device, kind, **changes):
    """Losses, weights and moments after a few steps like those of train.py, with composed operations."""
    manual_seed(4)
    model = GPT(GPTConfig(13, block_size=8, n_layer=2, n_head=2, n_embd=8, **changes)).to(device, "float64")
    optimizer, batches, losses = kind(decay_groups(model, 0.1), 0.01), np.random.default_rng(5), []
    with composed():
        for step in range(3):
            windows = batches.integers(0, 13, (3, 9))
            optimizer.zero_grad()
            with random_key(1, step):
                loss = model.loss((Tensor(windows[:, :-1], device=device), Tensor(windows[:, 1:], device=device)))
            loss.backward()
            losses += [loss.item(), optimizer.clip_grad_norm(0.5)]
            optimizer.step()
    return {"losses": losses} | model.state_dict() | optimizer.state_dict()


OPTIMIZERS = [(AdamW, {"dropout": 0.2, "bias": True}), (Adam, {"bias": True}), (SGD, {"positions": "sinusoidal"})]


@pytest.mark.parametrize(("kind", "changes"), OPTIMIZERS)
def test_a_training_step_gives_the_parameters_of_numpy(device, kind, changes):
    found, tolerance = trained(device, kind, **changes), 0 if device == "standin" else 1e-12
    for name, expected in trained("cpu", kind, **changes).items():
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=tolerance, err_msg=name)


def test_an_optimizer_refuses_parameters_of_two_devices(standin):
    mixed = [("here", Linear(2, 2).weight), ("there", Linear(2, 2).to(standin).weight)]
    with pytest.raises(ValueError, match="there is float32 on standin, others are float32 on cpu"):
        AdamW(mixed, 0.1)
