"""The stand-in refuses what CuPy refuses, and a whole model trains and generates on it."""

import numpy as np
import pytest

from gpt.model import GPT
from tests.gpt.configs import GPTConfig
from tests.standin import StandInArray, standin_device
from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite.device import DeviceError, device_of, get_device
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.nn import Linear
from tinygrad_lite.optim import SGD, Adam, AdamW, decay_groups
from tinygrad_lite.random import random_key

rng = np.random.default_rng(10)


@pytest.fixture
def standin():
    with standin_device() as name:
        yield name


@pytest.fixture
def xp(standin):
    return get_device(standin).xp


# --- the array type itself ------------------------------------------------------------------------------------


def test_the_stand_in_computes_as_numpy_does(xp):
    a = xp.array(np.arange(6.0).reshape(2, 3))
    assert isinstance(a, StandInArray)
    assert (a.shape, a.dtype, a.ndim, a.size, len(a)) == ((2, 3), np.float64, 2, 6, 2)
    b = xp.exp(a * 2 - 1)[:, ::2] @ xp.ones((2, 4))
    assert isinstance(b, StandInArray)
    expected = np.exp(np.arange(6.0).reshape(2, 3) * 2 - 1)[:, ::2] @ np.ones((2, 4))
    np.testing.assert_array_equal(b.hidden, expected)
    total = a.sum()
    assert isinstance(total, StandInArray)
    assert (total.shape, total.item(), float(total)) == ((), 15, 15.0)
    assert (xp.ones(2) * np.float64(3) + np.array(1.0) - 2).tolist() == [2.0, 2.0]  # numbers may mix


MIXTURES = [
    lambda a, host: a + host,
    lambda a, host: host + a,
    lambda a, host: a @ host,
    lambda a, host: np.add(host, a, out=host),
    lambda a, host: np.where(a > 0, a, host),
    lambda a, host: np.concatenate([a, host]),
    lambda a, host: a[host.astype(int)],
    lambda a, host: a.__setitem__(..., host),
    lambda a, host: a.__iadd__(host),
    lambda a, host: host.__iadd__(a),
    lambda a, host: host.__setitem__(..., a),
    lambda a, host: np.asarray(a),
    lambda a, host: np.array([a, a]),
    lambda a, host: a.dot(host),
]


@pytest.mark.parametrize("mix", MIXTURES)
def test_host_arrays_are_refused(xp, mix):
    with pytest.raises((TypeError, ValueError)):
        mix(xp.ones(3), np.ones(3))


def test_functions_of_the_module_refuse_host_arrays(xp):
    for call in (xp.exp, xp.sum, xp.zeros_like, lambda host: xp.where(host, 1, 0)):
        with pytest.raises(TypeError, match=r"a host array of shape \(3,\) is combined with a stand-in array"):
            call(np.ones(3))


def test_copies_to_and_from_the_host_share_nothing(standin):
    place, host = get_device(standin), np.ones(3)
    moved = place.from_host(host)
    host[0] = 7
    back = place.to_host(moved)
    back[1] = 9
    assert moved.tolist() == [1.0, 1.0, 1.0]


def test_the_device_is_removed_afterwards():
    with standin_device() as name:
        assert device_of(get_device(name).xp.ones(1)).name == name
    with pytest.raises(DeviceError, match="there is no device 'standin'"):
        get_device("standin")
    with pytest.raises(TypeError, match="not an array of a known device"):
        device_of(StandInArray(np.ones(1)))


# --- the engine on it -----------------------------------------------------------------------------------------


def make(device, **changes):
    manual_seed(4)
    return GPT(GPTConfig(13, block_size=8, n_layer=2, n_head=2, n_embd=8, **changes)).to(device, "float64")


def trained(device, kind, **changes):
    """The parameters after a few steps like those of train.py, with composed operations."""
    model, batches = make(device, **changes), np.random.default_rng(5)
    optimizer = kind(decay_groups(model, 0.1), 0.01)
    losses = []
    with composed():
        for step in range(3):
            windows = batches.integers(0, 13, (3, 9))
            optimizer.zero_grad()
            with random_key(1, step):
                loss = model.loss((Tensor(windows[:, :-1], device=device), Tensor(windows[:, 1:], device=device)))
            loss.backward()
            losses += [loss.item(), optimizer.clip_grad_norm(0.5)]
            optimizer.step()
    return losses, model.state_dict(), optimizer.state_dict()


OPTIMIZERS = [(AdamW, {"dropout": 0.2, "bias": True}), (Adam, {"bias": True}), (SGD, {"positions": "sinusoidal"})]


@pytest.mark.parametrize(("kind", "changes"), OPTIMIZERS)
def test_a_training_step_gives_the_parameters_of_numpy(device, kind, changes):
    tolerance = {"rtol": 0, "atol": 0 if device == "standin" else 1e-12}
    losses, weights, moments = trained(device, kind, **changes)
    expected_losses, expected_weights, expected_moments = trained("cpu", kind, **changes)
    np.testing.assert_allclose(losses, expected_losses, **tolerance)
    for name, expected in (expected_weights | expected_moments).items():
        np.testing.assert_allclose((weights | moments)[name], expected, **tolerance, err_msg=name)


def test_an_optimizer_refuses_parameters_of_two_devices(standin):
    mixed = [("here", Linear(2, 2).weight), ("there", Linear(2, 2).to(standin).weight)]
    with pytest.raises(ValueError, match="there is float32 on standin, others are float32 on cpu"):
        AdamW(mixed, 0.1)
