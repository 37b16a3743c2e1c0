"""What all optimizers share: which parameters they update, with which options, and what happens in a step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tinygrad_lite.debug import profiler
from tinygrad_lite.device import Array, device_of
from tinygrad_lite.nn.module import Module, clear_gradients
from tinygrad_lite.optim.memory import FlatMemory
from tinygrad_lite.tensor import Tensor, writable

PARAMS = "model.parameters(), model.named_parameters(), or a list of groups such as {'params': ..., 'lr': 1e-4}"


def groups_of(params: Any, defaults: dict[str, Any]) -> list[dict[str, Any]]:
    """Groups with all their options, from any form that torch accepts: parameters, pairs of name and parameter, groups.

    In each group, `params` is a list of parameters and `param_names` the list of their names. A parameter without a
    name is named by its number.
    """
    refusal = TypeError(f"optimizer: pass {PARAMS}, not a {type(params).__name__}")
    if isinstance(params, (Tensor, Module, Mapping, str)) or not isinstance(params, Iterable):
        raise refusal
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
        ready = defaults | group | {"params": [], "param_names": []}
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
        groups.append(ready)
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


class Optimizer(FlatMemory):
    """What all optimizers share: groups of parameters, clipping, and an update that `update` defines.

    `step()` applies the contents of each parameter's `.grad`, whoever set it; if it is None, or if the parameter is
    frozen (`requires_grad` is False), the parameter is unchanged.

    Args:
        params: `model.parameters()`, `model.named_parameters()`, or a list of groups: dicts with "params" and, if they
            differ from the defaults, "lr", "weight_decay" or other options of the optimizer.
        options: the defaults for all groups.

    `param_groups` holds the groups, whose options may be changed at any time; `optimizer.lr = x` changes all of them.
    """

    def __init__(self, params: Any, **options: Any) -> None:
        self.param_groups = groups_of(params, options)
        named = {name: p for g in self.param_groups for name, p in zip(g["param_names"], g["params"], strict=True)}
        self.steps = 0  # updates made
        self.skipped: dict[str, int] = {}  # how many of them skipped a parameter, by name, if any did
        self.part: slice | None = None  # the part of the flat arrays that this process updates; None: all of it
        self.guard: Tensor | None = None  # on a GPU, may forbid updates and scale gradients (see cuda/guard.py)
        self._warned: set[str] = set()  # names of parameters that no gradient reached
        if not any(parameter.requires_grad for parameter in named.values()):
            raise ValueError("optimizer: there are no parameters that require a gradient")
        super().__init__(named)

    @property
    def lr(self) -> float:
        """The learning rate (of the first group, if they differ)."""
        return self.param_groups[0]["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        for group in self.param_groups:
            group["lr"] = value

    # --- gradients ----------------------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove all gradients: `.grad` is None until the next backward pass (or 0, if set_to_none is False)."""
        clear_gradients(self.named.values(), set_to_none)

    def unreached(self) -> set[str]:
        """The names of the parameters that an update would skip: frozen, or without a gradient."""
        return {name for name, p in self.named.items() if p.grad is None or not p.requires_grad}

    def _stretches(self) -> Iterator[tuple[slice, Array, dict[str, Any], int]]:
        """The parts of an update: (place, flat gradient, group, number of updates that skipped it).

        Adjacent parameters of a group whose gradients are in the flat array are joined into one long stretch.
        """
        start = end = skipped = 0  # the open stretch, and the number of updates that skipped it
        for group in self.param_groups:
            is_open = False
            for name, parameter in zip(group["param_names"], group["params"], strict=True):
                if name not in self.places or parameter.grad is None or not parameter.requires_grad:
                    continue
                place, gradient = self.places[name], self._checked_gradient(name)
                is_flat, before = gradient is self._memory.get(name), self.skipped.get(name, 0)
                if is_open and not (is_flat and place.start == end and before == skipped):
                    yield slice(start, end), self._gradients[start:end], group, skipped
                    is_open = False
                if not is_flat:
                    yield place, writable(parameter.grad).reshape(-1), group, before
                    continue
                if not is_open:
                    start, skipped, is_open = place.start, before, True
                end = place.stop
            if is_open:
                yield slice(start, end), self._gradients[start:end], group, skipped

    def _check_groups(self) -> None:
        """Raise ValueError if options, which a schedule may have changed, or parameters of a group are not right."""
        for group in self.param_groups:
            check_options(group)
            if [*map(id, group["params"])] != [id(self.named[name]) for name in group["param_names"]]:
                raise ValueError("optimizer: a group keeps its parameters: make a new optimizer to add or remove any")

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
        gradients = [gradient for _, gradient, _, _ in self._stretches()]
        with np.errstate(all="ignore"):
            norm = math.sqrt(sum(float(gradient @ gradient) for gradient in gradients))
            for gradient in gradients if max_norm and not norm <= max_norm else ():
                gradient *= max_norm / norm
        return norm

    # --- the update ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Update all parameters that have a gradient, and warn once about each that has none.

        Raises: ValueError or TypeError if a `.grad` does not match its parameter.
        """
        self._check_groups()
        self._follow_parameters()
        self._count_update()
        # Where processes share the update, each knows only its own part: copies are made when they are needed.
        is_kept = self.values.device == "cuda" and self.part is None
        copy = self._copy = device_of(self.values.data).module("linear").copy_of(self, self._copy) if is_kept else None
        for place, gradient, group, skipped in self._stretches():
            begin, end = place.start, place.stop
            if self.part is not None:
                begin, end = max(begin, self.part.start), min(end, self.part.stop)
            if begin < end:
                gradient = gradient[begin - place.start : end - place.start]
                value = Tensor.wrap(self.values.data[begin:end])
                arrays = gradient, *(flat.data[begin:end] for flat in self.states.values())
                options = {name: value for name, value in group.items() if name not in ("params", "param_names")}
                value.rounded = None if copy is None else copy.array[begin:end]
                self.update(value, *map(Tensor.wrap, arrays), step=self.steps - skipped, **options)
                if vars(value).get("rounded") is not None:  # only a kernel writes both at once
                    value.rounded[...] = value.data
        self.values.mark_written()
        if copy is not None:
            copy.version[0] = self.values.version
        if profiler.running:
            profiler.running.note("(sums, clipping, update)")

    def _count_update(self) -> None:
        """Count an update, and the parameters that it skips."""
        self.steps += 1
        unreached = self.unreached()
        for name in unreached:
            self.skipped[name] = self.skipped.get(name, 0) + 1
        new = [n for n, p in self.named.items() if n in unreached and n not in self._warned and p.requires_grad]
        self._warned.update(new)
        if new and (self.part is None or self.part.start == 0 < self.part.stop):  # the first process
            shown = ", ".join(new[:8]) + (f" and {len(new) - 8} more" if len(new) > 8 else "")
            warnings.warn(f"no gradient has reached {shown}: not updated in this step", stacklevel=3)

    def slice_of(self, rank: int, size: int) -> slice:
        """The part of the flat arrays that process `rank` of `size` updates."""
        n = self.values.data.size
        return slice(n * rank // size, n * (rank + 1) // size)

    def update(self, value: Tensor, gradient: Tensor, *states: Tensor, step: int, lr: float, **options: float) -> None:
        """Update values (and states) in place; `step` counts their updates. Every optimizer defines its own."""
        raise NotImplementedError

    # --- the state ----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """The optimizer's state by parameter, such as `exp_avg.blocks.0...`, on the host.

        `step` is the number of updates made, `skipped.NAME` the number of those that skipped a parameter, if any did.
        """
        skipped = {f"skipped.{name}": np.array(float(n)) for name, n in self.skipped.items() if name in self.places}
        return self._named_states() | skipped | {"step": np.array(self.steps)}

    def load_state_dict(self, state: Mapping[str, np.ndarray], steps: int | None = None) -> None:
        """Restore the state of another optimizer; `steps` is for a state that does not contain its step.

        Raises: ValueError if names or shapes differ.
        """
        state = dict(state)
        steps = state.pop("step", steps)
        if steps is None:
            raise ValueError("the optimizer's state has no 'step', the number of updates made: pass it as steps=...")
        skipped = {name.removeprefix("skipped."): n for name, n in state.items() if name.startswith("skipped.")}
        own = {name: array.shape for name, array in self.state_dict().items() if not name.startswith("skipped.")}
        own.pop("step")
        given = {name: array.shape for name, array in state.items() if not name.startswith("skipped.")}
        wrong = sorted(own.keys() ^ given.keys()) or [name for name in own if own[name] != given[name]]
        wrong += [f"skipped.{name}" for name, n in skipped.items() if name not in self.places or n.shape != ()]
        if wrong:
            raise ValueError(f"the optimizer's state does not fit: {', '.join(wrong)}")
        self._fill_states(state)
        self.steps = int(steps)
        without_place = self.named.keys() - self.places.keys()  # no update has reached them
        self.skipped = dict.fromkeys(without_place, self.steps) if self.steps else {}
        self.skipped |= {name: int(count) for name, count in skipped.items()}

    def __getstate__(self) -> dict[str, Any]:
        """For `copy.deepcopy` and pickle: parameters, options and states by name, but not the memory they share."""
        kept = ("param_groups", "steps", "skipped", "part", "_warned")
        memory = {"named": self.named, "places": self.places, "states": self._named_states()}
        return {name: getattr(self, name) for name in kept} | {"memory": memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Lay out the memory of a copy, with copies of the parameters."""
        memory = state.pop("memory")
        vars(self).update(state, guard=None)
        super().__init__(**memory)
