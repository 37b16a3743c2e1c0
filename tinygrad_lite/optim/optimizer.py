"""What all optimizers share: which parameters they update, with which options, and what happens in a step."""

import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tinygrad_lite.device import Array
from tinygrad_lite.nn.module import Module, clear_gradients
from tinygrad_lite.optim.memory import Memory
from tinygrad_lite.tensor import Listed, Tensor

PARAMS = "model.parameters(), model.named_parameters(), or a list of groups such as {'params': ..., 'lr': 1e-4}"


class Optimizer(metaclass=Listed):
    """What all optimizers share: groups of parameters, clipping, and an update that `update` defines.

    `step()` applies the contents of each parameter's `.grad`, whoever set it; if it is None, or if the parameter is
    frozen (`requires_grad` is False), the parameter is unchanged.

    Args:
        params: `model.parameters()`, `model.named_parameters()`, or a list of groups: dicts with "params" and, if they
            differ from the defaults, "lr", "weight_decay" or other options of the optimizer.
        options: the defaults for all groups.

    `param_groups` holds the groups, whose options may be changed at any time; `optimizer.lr = x` changes all of them.
    `memory` has the parameters, their gradients, and what is remembered about them (memory.py). A new optimizer moves
    the parameters there: views and detached tensors of a parameter that were made before keep its old memory.
    """

    state_names: tuple[str, ...] = ()  # the state of each parameter that is kept between steps

    def __init__(self, params: Any, **options: Any) -> None:
        self.param_groups = groups_of(params, options)
        named = {name: p for g in self.param_groups for name, p in zip(g["param_names"], g["params"], strict=True)}
        self.steps = 0  # updates made
        self.skipped: dict[str, int] = {}  # how many of them skipped a parameter, by name, if any did
        self.guard: Tensor | None = None  # on a GPU, may forbid updates and scale gradients (see cuda/guard.py)
        self._warned: set[str] = set()  # names of parameters that no gradient reached
        if not any(parameter.requires_grad for parameter in named.values()):
            raise ValueError("optimizer: there are no parameters that require a gradient")
        self.memory = Memory(named, self.state_names)

    @property
    def lr(self) -> float:
        """The learning rate (of the first group, if they differ)."""
        return self.param_groups[0]["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        for group in self.param_groups:
            group["lr"] = value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove all gradients: `.grad` is None until the next backward pass (or 0, if set_to_none is False)."""
        clear_gradients(self.memory.named.values(), set_to_none)

    def unreached(self) -> set[str]:
        """The names of the parameters that an update would skip: frozen, or without a gradient."""
        return {name for name, p in self.memory.named.items() if p.grad is None or not p.requires_grad}

    def clip_grad_norm(self, max_norm: float) -> float:
        """Scale all gradients down so that their global norm is at most max_norm; return the norm before scaling.

        The global norm is the Euclidean norm of all gradients as one vector. Scaling keeps its direction.
        max_norm 0 only measures. If the norm is NaN, all gradients become NaN, as in torch.

        Raises: ValueError if max_norm is negative or NaN.
        Reference: Pascanu et al. 2013, algorithm 1 (arXiv:1211.5063).
        """
        self._check_groups()
        if not max_norm >= 0:
            raise ValueError(f"clip_grad_norm: max_norm is {max_norm}: use at least 0, which only measures")
        gradients = [gradient for _, gradient, *_ in self.memory.stretches(self.param_groups, self.skipped)]
        with np.errstate(all="ignore"):
            norm = math.sqrt(sum(float(gradient @ gradient) for gradient in gradients))
            for gradient in gradients if max_norm and not norm <= max_norm else ():
                gradient *= max_norm / norm
        return norm

    def step(self) -> None:
        """Update all parameters that have a gradient, and warn once about each that has none.

        Raises: ValueError or TypeError if a `.grad` does not match its parameter; nothing is changed then.
        """
        self._check_groups()
        self.memory.follow_parameters()
        stretches = self.memory.stretches(self.param_groups, self.skipped)
        self._count_update()
        for tensors, group, skipped in self.memory.to_update(stretches):
            options = {name: option for name, option in group.items() if name not in ("params", "param_names")}
            self.update(*tensors, step=self.steps - skipped, **options)

    def update(self, value: Tensor, gradient: Tensor, *states: Tensor, step: int, lr: float, **options: float) -> None:
        """Update values (and states) in place; `step` counts their updates. Every optimizer defines its own."""
        raise NotImplementedError

    def _check_groups(self) -> None:
        """Raise ValueError if options, which a schedule may have changed, or parameters of a group are not right."""
        for group in self.param_groups:
            check_options(group)
            if [*map(id, group["params"])] != [*map(id, map(self.memory.named.get, group["param_names"]))]:
                raise ValueError("optimizer: a group keeps its parameters: make a new optimizer to add or remove any")

    def _count_update(self) -> None:
        """Count an update, and the parameters that it skips."""
        self.steps += 1
        for name in self.unreached():
            self.skipped[name] = self.skipped.get(name, 0) + 1
        named, part = self.memory.named, self.memory.part or slice(0, 1)
        new = [n for n, p in named.items() if p.grad is None and p.requires_grad and n not in self._warned]
        self._warned.update(new)
        if new and part.start == 0 < part.stop:  # the first process
            shown = ", ".join(new[:8]) + (f" and {len(new) - 8} more" if len(new) > 8 else "")
            warnings.warn(f"no gradient has reached {shown}: not updated in this step", stacklevel=3)

    # --- the state ----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """The optimizer's state by parameter, such as `exp_avg.blocks.0...`, on the host.

        `step` is the number of updates made, `skipped.NAME` the number of those that skipped a parameter, if any did.
        """
        skipped = {f"skipped.{n}": np.array(float(c)) for n, c in self.skipped.items() if n in self.memory.places}
        return self.memory.named_states() | skipped | {"step": np.array(self.steps)}

    def load_state_dict(self, state: Mapping[str, np.ndarray], steps: int | None = None) -> None:
        """Restore the state of another optimizer; `steps` is for a state that does not contain its step.

        Raises: ValueError if names or shapes differ.
        """
        state = dict(state)
        steps = state.pop("step", steps)
        if steps is None:
            raise ValueError("the optimizer's state has no 'step', the number of updates made: pass it as steps=...")
        skipped = {name[8:]: state.pop(name) for name in [*state] if name.startswith("skipped.")}
        own = {name: array for name, array in self.state_dict().items() if name != "step" and name[:8] != "skipped."}
        wrong = sorted(own.keys() ^ state.keys()) or [name for name in own if own[name].shape != state[name].shape]
        wrong += [f"skipped.{name}" for name, n in skipped.items() if name not in self.memory.places or n.shape != ()]
        if wrong:
            raise ValueError(f"the optimizer's state does not fit: {', '.join(wrong)}")
        self.memory.fill_states(state)
        self.steps = int(steps)
        without_place = self.memory.named.keys() - self.memory.places.keys()  # no update has reached them
        self.skipped = dict.fromkeys(without_place, self.steps) if self.steps else {}
        self.skipped |= {name: int(count) for name, count in skipped.items()}

    def __getstate__(self) -> dict[str, Any]:
        """For `copy.deepcopy` and pickle: everything but the guard, which belongs to a training run."""
        return vars(self) | {"guard": None}

    # --- for several processes ----------------------------------------------------------------------------------

    def slice_of(self, rank: int, size: int) -> slice:
        """The part of the flat arrays that process `rank` of `size` updates."""
        n = self.memory.values.data.size
        return slice(n * rank // size, n * (rank + 1) // size)

    def move_into(self, values: Array, gradients: Array, states: Iterable[Array], contents: bool) -> None:
        """Move everything into other arrays (n,), which several processes share."""
        self.memory.move_into(values, gradients, states, contents)

    def gather_gradients(self) -> Array:
        """All gradients in one flat array (n,), with 0 for parameters that have none."""
        return self.memory.gather_gradients()

    def adopt_gradients(self, names: Iterable[str]) -> None:
        """Make the contents of the flat array, which all processes share, the gradients of these parameters."""
        self.memory.adopt_gradients(names)


# --- groups of parameters ---------------------------------------------------------------------------------------


def groups_of(params: Any, defaults: dict[str, Any]) -> list[dict[str, Any]]:
    """Groups with all their options, from any form that torch accepts: parameters, pairs of name and parameter, groups.

    In each group, `params` is a list of parameters and `param_names` the list of their names. A parameter without a
    name is named by its number.
    """
    if isinstance(params, (Tensor, Module, Mapping, str)) or not isinstance(params, Iterable):
        raise TypeError(f"optimizer: pass {PARAMS}, not a {type(params).__name__}")
    given = list(params)
    if not any(isinstance(item, dict) for item in given):
        given = [{"params": given}]
    groups: list[dict[str, Any]] = []
    given_before: set[str | int] = set()  # the names and the ids of parameters
    for group in given:
        if not isinstance(group, dict) or "params" not in group:
            raise TypeError(f"optimizer: a group is a dict with 'params', not {group!r:.60}")
        if unknown := group.keys() - defaults.keys() - {"params", "param_names"}:
            raise TypeError(f"optimizer: a group has no option {min(unknown)!r}: it may have {', '.join(defaults)}")
        check_options(defaults | group)
        members = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        groups.append(ready := defaults | group | {"params": [], "param_names": []})
        for number, member in enumerate(members, start=len(given_before) // 2):
            name, parameter = member if isinstance(member, tuple) and len(member) == 2 else (str(number), member)
            if not isinstance(parameter, Tensor) or not isinstance(name, str):
                raise TypeError(f"optimizer: pass {PARAMS}; {member!r:.60} is not a parameter")
            if not parameter._is_leaf:
                raise ValueError(f"optimizer: {name} is the result of '{parameter.op}'; only leaves can be learned")
            if {name, id(parameter)} & given_before:
                raise ValueError(f"optimizer: parameter {name} was given twice")
            given_before |= {name, id(parameter)}
            ready["params"].append(parameter)
            ready["param_names"].append(name)
    return groups


def decay_groups(model: Module, weight_decay: float) -> list[dict[str, Any]]:
    """nanoGPT's two groups: matrices and tables (2 axes or more) decay, gains and biases (1 axis) do not.

    Decay pulls a weight towards 0. A layer norm's gain belongs near 1, and a bias does no harm by being large.
    """
    named = list(model.named_parameters())
    return [
        {"params": [(n, p) for n, p in named if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [(n, p) for n, p in named if p.ndim < 2], "weight_decay": 0.0},
    ]


def check_options(group: Mapping[str, Any]) -> None:
    """Raise ValueError if a rate of a group is negative or NaN, or if a beta is not in [0, 1)."""
    for name in ("lr", "eps", "weight_decay", "momentum", "muon_lr_factor"):
        number = group.get(name, 0)
        is_number = hasattr(number, "__float__")
        if not (is_number and number >= 0):
            raise ValueError(f"optimizer: {name} is {number!r}: use {'' if is_number else 'a number of '}at least 0")
    betas = group.get("betas", (0, 0))
    if np.shape(betas) != (2,) or not all(hasattr(beta, "__float__") and 0 <= beta < 1 for beta in betas):
        raise ValueError(f"optimizer: betas are {betas}: use numbers of at least 0 and below 1")
