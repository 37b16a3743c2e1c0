"""The memory behind the optimizers: all parameters in one flat array, and their gradients in another.

The parameters become views of the array, so the model does not change; but an update or a checkpoint then takes a few
operations on long arrays instead of a few for each of a hundred small ones, and several processes can share them.

Large gradients are the exception, in a single process: each has an array of its own, which exists only as long as it
is needed.

The user sees no difference. `step()` applies the contents of each parameter's `.grad`, whoever set it; if it is None,
or if the parameter is frozen (`requires_grad` is False), the parameter is unchanged.
"""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tinygrad_lite.debug import profiler
from tinygrad_lite.device import Array, device_of
from tinygrad_lite.nn import Module
from tinygrad_lite.tensor import Tensor

LARGE = 1 << 18  # elements, 1 MiB in float32: joining larger arrays saves no time
PARAMS = "model.parameters(), model.named_parameters(), or a list of groups such as {'params': ..., 'lr': 1e-4}"


def groups_of(params: Any, defaults: dict[str, Any]) -> list[dict[str, Any]]:
    """Groups with all their options, from any form that torch accepts: parameters, pairs of name and parameter, groups.

    In each group, `params` is a list of parameters and `param_names` the list of their names. A parameter without a
    name gets its number as its name.
    """
    refusal = TypeError(f"optimizer: pass {PARAMS}, not a {type(params).__name__}")
    if isinstance(params, (Tensor, Module, Mapping, str)) or not isinstance(params, Iterable):
        raise refusal
    given = list(params)
    if not any(isinstance(item, dict) for item in given):
        given = [{"params": given}]
    groups: list[dict[str, Any]] = []
    names: set[str] = set()
    for group in given:
        if not isinstance(group, dict) or "params" not in group:
            raise TypeError(f"optimizer: a group is a dict with 'params', not {group!r:.60}")
        if unknown := group.keys() - defaults.keys() - {"params", "param_names"}:
            raise TypeError(f"optimizer: a group has no option {min(unknown)!r}: it may have {', '.join(defaults)}")
        check_options(defaults | group)
        members = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        ready = defaults | group | {"params": [], "param_names": []}
        for number, member in enumerate(members, start=len(names)):
            name, parameter = member if isinstance(member, tuple) and len(member) == 2 else (str(number), member)
            if not isinstance(parameter, Tensor) or not isinstance(name, str):
                raise TypeError(f"optimizer: pass {PARAMS}; {member!r:.60} is no parameter")
            if not parameter._is_leaf:
                raise ValueError(f"optimizer: {name} is the result of '{parameter.op}'; only leaves can be learned")
            if name in names or any(parameter is other for g in (*groups, ready) for other in g["params"]):
                raise ValueError(f"optimizer: parameter {name} was given twice")
            names.add(name)
            ready["params"].append(parameter)
            ready["param_names"].append(name)
        groups.append(ready)
    return groups


def check_options(group: Mapping[str, Any]) -> None:
    """Raise ValueError if a rate of a group is negative or NaN, or if a beta is not in [0, 1)."""
    for name in ("lr", "eps", "weight_decay", "momentum", "muon_lr_factor"):
        if not group.get(name, 0) >= 0:
            raise ValueError(f"optimizer: {name} is {group[name]}: use at least 0")
    if not all(0 <= beta < 1 for beta in group.get("betas", ())):
        raise ValueError(f"optimizer: betas are {group['betas']}: use numbers of at least 0 and below 1")


class Optimizer:
    """The flat arrays that all optimizers share.

    Args:
        params: `model.parameters()`, `model.named_parameters()`, or a list of groups: dicts with "params" and, if they
            differ from the defaults, "lr", "weight_decay" or other options of the optimizer.
        options: the defaults for all groups.

    `param_groups` has the groups, whose options may be changed at any time; `optimizer.lr = x` changes all of them.
    """

    state_names: tuple[str, ...] = ()  # the state of each parameter that is kept between steps

    def __init__(self, params: Any, **options: Any) -> None:
        self.param_groups = groups_of(params, options)
        self.named = {name: p for g in self.param_groups for name, p in zip(g["param_names"], g["params"], strict=True)}
        self.steps = 0  # updates made
        self.skipped: dict[str, int] = {}  # how many of them left a parameter out; names of the others are missing
        self.part: slice | None = None  # the part of the flat arrays that this process updates; None: all of it
        self.guard: Tensor | None = None  # on a GPU, may forbid updates and scale gradients (see cuda/guard.py)
        self.places: dict[str, slice] = {}  # where in the flat arrays each parameter lies
        self.values = Tensor.wrap(np.empty(0))
        self.states: dict[str, Tensor] = {}
        self._warned: set[str] = set()  # names of parameters that no gradient reached
        if not any(parameter.requires_grad for parameter in self.named.values()):
            raise ValueError("optimizer: there are no parameters that require a gradient")
        self._lay_out()

    @property
    def lr(self) -> float:
        """The learning rate (of the first group, if they differ)."""
        return self.param_groups[0]["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        for group in self.param_groups:
            group["lr"] = value

    def __getstate__(self) -> dict[str, Any]:
        """For `copy.deepcopy` and pickle: parameters, options and states by name, but not the memory they share."""
        kept = ("param_groups", "named", "places", "steps", "skipped", "part", "_warned")
        return {name: getattr(self, name) for name in kept} | {"state": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Lay out the memory of a copy, with copies of the parameters."""
        vars(self).update(state, guard=None, states={}, values=Tensor.wrap(np.empty(0)), _views=state["places"])
        self._lay_out()
        self._fill_states(vars(self).pop("state"))

    # --- the flat arrays ----------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Move all trainable parameters, and their states, into flat arrays.

        A parameter that was frozen from the beginning has no place there, and no state.
        """
        learned = {name: p for name, p in self.named.items() if p.requires_grad or name in self.places}
        first = next(iter(learned.values()))
        for name, parameter in learned.items():
            if type(parameter.data) is not type(first.data) or parameter.dtype != first.dtype:
                raise ValueError(
                    f"optimizer: parameter {name} is {parameter.dtype} on {parameter.device}, "
                    f"others are {first.dtype} on {first.device}"
                )
            if parameter.dtype.kind != "f":
                raise TypeError(
                    f"optimizer: parameter {name} is {parameter.dtype}, and only float types can be learned"
                )
        old, ends = self.state_dict(), np.cumsum([0, *(p.numel() for p in learned.values())]).tolist()
        self.places = {name: slice(*ends[i : i + 2]) for i, name in enumerate(learned)}
        self.values.data = first.xp.empty(ends[-1], first.dtype)
        for name, parameter in learned.items():
            self.values.data[self.places[name]] = parameter.data.reshape(-1)
            parameter.data = self.values.data[self.places[name]].reshape(parameter.shape)  # frees its old array
            if self.steps and name not in self._views:
                self.skipped[name] = self.steps
        # Only now, so that they can reuse the memory that was freed.
        zeros = (Tensor.wrap(first.xp.zeros(ends[-1], first.dtype)) for _ in self.state_names)
        self.states = dict(zip(self.state_names, zeros, strict=True))
        self._fill_states(old)
        self._lay_views()
        self._gradients: Array | None = None
        self._is_shared = False

    def _lay_views(self) -> None:
        """Make all parameters views of the flat array, and let their gradients be written into the other one."""
        self._views: dict[str, Array] = {}
        self._memory: dict[str, Array] = {}  # the views of the flat gradients
        self._unused: set[str] = set()  # those that are not in use yet
        self._copy: Any = None  # of all parameters in bfloat16, for products on a GPU (see cuda/linear.py)
        for name, place in self.places.items():
            parameter = self.named[name]
            parameter.data = self._views[name] = self.values.data[place].reshape(parameter.shape)
            parameter._version = self.values._version
            parameter._gradient_memory = functools.partial(self._memory_for, name)

    def _memory_for(self, name: str) -> Array:
        """The memory for a parameter's first gradient in a backward pass.

        A large gradient gets an array of its own, unless it is shared or on a GPU. `zero_grad` frees it, so that the
        next forward pass can use the memory: the gradients grow while the activations, which they replace, are freed.
        """
        parameter = self.named[name]
        if parameter.numel() < LARGE or self._is_shared or parameter.device != "cpu":
            return self._memory_of(name)
        return np.empty(parameter.shape, parameter.dtype)

    def _memory_of(self, name: str) -> Array:
        """A parameter's part of the flat gradients.

        No memory is used twice, since the gradient of an earlier step may still be referenced. If the part of this
        parameter is in use, all parameters get new parts: in the same array if no part of it is referenced.
        """
        if self.named[name].data is not self._views[name]:
            self._follow_parameters()
        if name not in self._unused:
            self._memory.clear()
            # Two references are this attribute and the function's argument; each view of the array is one more.
            if self._gradients is None or not (self._is_shared or sys.getrefcount(self._gradients) == 2):
                self._gradients = self.values.xp.empty_like(self.values.data)
            for other, place in self.places.items():
                self._memory[other] = self._gradients[place].reshape(self.named[other].shape)
            self._unused = set(self._memory)
        self._unused.remove(name)
        return self._memory[name]

    def move_into(self, values: Array, gradients: Array, states: Iterable[Array], contents: bool) -> None:
        """Move everything into other flat arrays (n,), such as memory that several processes share.

        Args:
            contents: whether to copy values and states into them; otherwise those in the arrays are adopted.
        """
        for flat, other in zip((self.values, *self.states.values()), (values, *states), strict=True):
            if contents:
                other[...] = flat.data
            flat.data = other
        self._gradients, self._is_shared = gradients, True
        self._lay_views()

    def _follow_parameters(self) -> None:
        """Build the flat arrays again if a parameter was given another array (by `Module.to`) or was unfrozen."""
        for name, parameter in self.named.items():
            view = self._views.get(name)
            if parameter.requires_grad if view is None else parameter.data is not view:
                if self._is_shared:
                    raise ValueError(f"optimizer: parameter {name} was given another array while processes share it")
                if view is not None and parameter.shape != view.shape:
                    raise ValueError(f"optimizer: parameter {name} was {view.shape}, now it is {parameter.shape}")
                self._lay_out()
                return

    # --- gradients ----------------------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove all gradients: `.grad` is None until the next backward pass (or 0, if set_to_none is False)."""
        for parameter in self.named.values():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad = parameter.grad.zeros_like()

    def unreached(self) -> set[str]:
        """The names of the parameters that an update would skip: frozen, or without a gradient."""
        return {name for name in self.places if self.named[name].grad is None or not self.named[name].requires_grad}

    def gather_gradients(self) -> Array:
        """All gradients in one flat array (n,), with 0 for parameters that have none."""
        for name in self.places:
            parameter = self.named[name]
            memory = self._memory[name] if name in self._memory else self._memory_of(name)
            if parameter.grad is not None and parameter.grad.data is memory:
                continue
            self._unused.discard(name)
            memory[...] = 0 if parameter.grad is None else self._checked_gradient(name)
            if parameter.grad is not None:
                parameter.grad = Tensor.wrap(memory)
        return self._gradients

    def adopt_gradients(self, names: Iterable[str]) -> None:
        """Make the contents of the flat array, which all processes share, the gradients of these parameters."""
        for name in names:
            self.named[name].grad = Tensor.wrap(self._memory[name])

    def _checked_gradient(self, name: str) -> Array:
        """The array in a parameter's `.grad`, checked, since a user may have assigned anything."""
        parameter, gradient = self.named[name], self.named[name].grad
        if not isinstance(gradient, Tensor):
            raise TypeError(f"optimizer: the gradient of {name} is a {type(gradient).__name__}: make it a Tensor")
        mine, its = parameter.data, gradient.data
        if its.shape != mine.shape or its.dtype != mine.dtype or type(its) is not type(mine):
            facts, wanted = ((t.shape, str(t.dtype), t.device) for t in (gradient, parameter))
            raise ValueError(f"optimizer: the gradient of {name} is {facts}, but the parameter is {wanted}")
        return gradient.data

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
                    yield place, gradient.reshape(-1), group, before
                    continue
                if not is_open:
                    start, skipped, is_open = place.start, before, True
                end = place.stop
            if is_open:
                yield slice(start, end), self._gradients[start:end], group, skipped

    def clip_grad_norm(self, max_norm: float) -> float:
        """Scale all gradients down so that their global norm is at most max_norm; return the norm before.

        The global norm is the Euclidean norm of all gradients as one vector. Scaling keeps its direction.
        max_norm 0 only measures.

        Reference: Pascanu et al. 2013, algorithm 1 (arXiv:1211.5063).
        """
        gradients = [gradient for _, gradient, _, _ in self._stretches()]
        norm = math.sqrt(sum(float(gradient @ gradient) for gradient in gradients))
        if 0 < max_norm < norm:
            for gradient in gradients:
                gradient *= max_norm / norm
        return norm

    # --- the update ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Update all parameters that have a gradient, and warn once of each that has none.

        Raises: ValueError or TypeError if a `.grad` does not match its parameter.
        """
        for group in self.param_groups:
            check_options(group)  # a schedule may have changed them
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
        new = [name for name, p in self.named.items() if p.requires_grad and name in unreached - self._warned]
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

    # --- the state -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """The optimizer's state by parameter, such as `exp_avg.blocks.0...`, on the host.

        `step` is the number of updates made, `skipped.NAME` that of those that skipped a parameter, if there are any.
        """
        state = {
            f"{state}.{name}": device_of(flat.data).to_host(flat.data[place]).reshape(self.named[name].shape)
            for state, flat in self.states.items()
            for name, place in self.places.items()
        }
        state |= {f"skipped.{name}": np.array(float(count)) for name, count in self.skipped.items()}
        return state | {"step": np.array(self.steps)}

    def load_state_dict(self, state: Mapping[str, np.ndarray], steps: int | None = None) -> None:
        """Restore the state of another optimizer; `steps` is for one that does not say its step.

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
        self.skipped = {name: int(count) for name, count in skipped.items()}
        self.steps = int(steps)

    def _fill_states(self, state: Mapping[str, np.ndarray]) -> None:
        """Write the given states into the flat arrays."""
        for name, flat in self.states.items():
            for parameter, place in self.places.items():
                if (values := state.get(f"{name}.{parameter}")) is not None:
                    flat.data[place] = device_of(flat.data).from_host(np.ascontiguousarray(values).reshape(-1))
