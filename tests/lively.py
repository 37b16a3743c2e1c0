"""Models in which every number matters, and their gradients."""

from collections.abc import Callable

import numpy as np

from tests.places import fill, here
from tinygrad_lite.nn import Module
from tinygrad_lite.random import keyed_rng, random_key


def lively(make: Callable[[], Module], dtype: str = "float64") -> Module:
    """The model that is made, with random weights in which no bias is 0 and no gain of a norm is 1."""
    with random_key(3):
        model = make().to(here(), dtype)
    for name, parameter in model.named_parameters():
        noise = keyed_rng(1, name).standard_normal(parameter.shape)
        fill(parameter, 0.3 * noise + (1 if name.endswith("norm.weight") else 0))
    return model


def gradients(model: Module) -> dict[str, np.ndarray]:
    """The gradients of all parameters by name, each of which must have one; the model then has none."""
    found = {name: parameter.grad.numpy().copy() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = None
    return found


def assert_recompute_changes_nothing(make: Callable[[bool], Module], batches: list) -> None:
    """A model with `recompute` has the same losses and gradients, to the last bit, as one without; with dropout."""
    found = []
    for recompute in (False, True):
        model, losses = make(recompute), []
        for micro_step, batch in enumerate(batches):
            with random_key(5, micro_step):
                loss = model.loss(batch)
            loss.backward()
            losses.append(loss.item())
        found.append((losses, {name: gradient.tobytes() for name, gradient in gradients(model).items()}))
    assert found[0] == found[1]
