"""The memory of an optimizer: all parameters in one flat array, and their gradients in another.

The parameters become views of the array, so the model does not change; but an update or a checkpoint then takes a few
operations on long arrays instead of a few for each of a hundred small ones, and several processes can share them.

Large gradients are the exception, in a single process: each has an array of its own, which exists only as long as it
is needed.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tinygrad_lite.device import Array, device_of
from tinygrad_lite.tensor import Tensor, writable

Stretch = tuple[slice, Array, dict[str, Any], int]  # place, flat gradient, group, number of updates that skipped it
LARGE = 1 << 18  # elements, 1 MiB in float32: joining larger arrays saves no time


class Memory:
    """Parameters, what an optimizer remembers about them, and their gradients: one array (n,) each.

    Args:
        named: the parameters by name. One that is frozen from the start has no place in the arrays, and no state.
        state_names: what is remembered about each parameter between steps, such as `exp_avg`.
        places: parameters that have a place all the same.
        states: what is remembered about them, as returned by `named_states`; anything missing is 0.
    """

    def __init__(
        self, named: dict[str, Tensor], state_names: Iterable[str], places: Mapping = {}, states: Mapping = {}
    ) -> None:
        self.named = named
        self.places = dict(places)  # where in the arrays each parameter lies
        self.part: slice | None = None  # what this process updates; None: all of it
        self.values = Tensor.wrap(np.empty(0))
        self.states = {name: Tensor.wrap(np.empty(0)) for name in state_names}
        self._lay_out(states)

    def _lay_out(self, states: Mapping[str, np.ndarray]) -> None:
        """Move all trainable parameters, and these states, into new arrays.

        Raises: ValueError if their types or devices differ, TypeError for a type that cannot be learned.
        """
        learned = {name: p for name, p in self.named.items() if p.requires_grad or name in self.places}
        first = next(iter(learned.values()))
        for name, parameter in learned.items():
            what = f"optimizer: parameter {name} is {parameter.dtype}"
            if type(parameter.data) is not type(first.data) or parameter.dtype != first.dtype:
                raise ValueError(f"{what} on {parameter.device}, others are {first.dtype} on {first.device}")
            if parameter.dtype.kind != "f":
                raise TypeError(f"{what}, and only float types can be learned")
        ends = np.cumsum([0, *(p.numel() for p in learned.values())]).tolist()
        self.places = {name: slice(*ends[i : i + 2]) for i, name in enumerate(learned)}
        self.values.data = first.xp.empty(ends[-1], first.dtype)
        for name, parameter in learned.items():
            self.values.data[self.places[name]] = parameter.data.reshape(-1)
            parameter.data = self.values.data[self.places[name]].reshape(parameter.shape)  # frees its old array
        for flat in self.states.values():  # only now, so that they can reuse the memory that was freed
            flat.data = first.xp.zeros(ends[-1], first.dtype)
        self.fill_states(states)
        self._gradients, self._is_shared = None, False
        self._lay_views()

    def _lay_views(self) -> None:
        """Make all parameters views of the array, and let their gradients be written into the other one."""
        self._views: dict[str, Array] = {}
        self._gradient_views: dict[str, Array] = {}
        self._unused: set[str] = set()  # the gradients whose views are not in use yet
        self.rounded: Any = None  # a copy of all parameters in bfloat16, for products on a GPU (see cuda/linear.py)
        for name, place in self.places.items():
            parameter = self.named[name]
            parameter.data = self._views[name] = self.values.data[place].reshape(parameter.shape)
            parameter._version = self.values._version
            parameter._gradient_memory = functools.partial(self._room_for, name)

    def move_into(self, values: Array, gradients: Array, states: Iterable[Array], contents: bool) -> None:
        """Move everything into other arrays (n,), which several processes share.

        Args:
            contents: whether to copy values and states into them; otherwise the contents of the arrays are adopted.
        """
        for flat, other in zip((self.values, *self.states.values()), (values, *states), strict=True):
            if contents:
                other[...] = flat.data
            flat.data = other
        self._gradients, self._is_shared = gradients, True
        self._lay_views()

    def follow_parameters(self) -> None:
        """Lay everything out again if a parameter was given another array (by `Module.to`) or was unfrozen.

        Raises: ValueError if its shape has changed, or if processes share the memory.
        """
        for name, parameter in self.named.items():
            view = self._views.get(name)
            if parameter.requires_grad if view is None else parameter.data is not view:
                if self._is_shared:
                    raise ValueError(f"optimizer: parameter {name} was given another array while processes share it")
                if view is not None and parameter.shape != view.shape:
                    raise ValueError(f"optimizer: parameter {name} was {view.shape}, now it is {parameter.shape}")
                self._lay_out(self.named_states())
                return

    # --- gradients ----------------------------------------------------------------------------------------------

    def _room_for(self, name: str) -> Array:
        """The memory for a parameter's first gradient in a backward pass.

        A large gradient gets an array of its own, unless it is shared or on a GPU. `zero_grad` frees it, so that the
        next forward pass can use the memory: the gradients grow while the activations, which they replace, are freed.
        """
        parameter = self.named[name]
        if self._is_shared or parameter.device != "cpu" or parameter.numel() < LARGE:
            return self._view_for(name)
        return np.empty(parameter.shape, parameter.dtype)

    def _view_for(self, name: str) -> Array:
        """A parameter's part of the flat gradients.

        No memory is used twice, since the gradient of an earlier step may still be referenced: if this part is in use,
        all parameters get parts of a new array, which takes over the memory of the old one if nothing refers to it.
        """
        if self.named[name].data is not self._views[name]:
            self.follow_parameters()
        if name not in self._unused:
            self._gradient_views.clear()
            if not self._is_shared:
                self._gradients = None  # frees it
                self._gradients = self.values.xp.empty_like(self.values.data)
            for other, place in self.places.items():
                self._gradient_views[other] = self._gradients[place].reshape(self.named[other].shape)
            self._unused = set(self._gradient_views)
        self._unused.remove(name)
        return self._gradient_views[name]

    def gather_gradients(self) -> Array:
        """All gradients in one flat array (n,), with 0 for parameters that have none."""
        for name in self.places:
            parameter = self.named[name]
            view = self._gradient_views[name] if name in self._gradient_views else self._view_for(name)
            self._unused.discard(name)
            if parameter.grad is None:
                view[...] = 0
            elif parameter.grad.data is not view:
                view[...] = self._checked_gradient(name)
                parameter.grad = Tensor.wrap(view)
        return self._gradients

    def adopt_gradients(self, names: Iterable[str]) -> None:
        """Make the contents of the flat array, which all processes share, the gradients of these parameters."""
        for name in names:
            self.named[name].grad = Tensor.wrap(self._gradient_views[name])

    def _checked_gradient(self, name: str) -> Array:
        """The array in a parameter's `.grad`, checked, since a user may have assigned anything."""
        parameter, gradient = self.named[name], self.named[name].grad
        if not isinstance(gradient, Tensor):
            raise TypeError(f"optimizer: the gradient of {name} is a {type(gradient).__name__}: make it a Tensor")
        mine, its = parameter.data, gradient.data
        if its.shape != mine.shape or its.dtype != mine.dtype or type(its) is not type(mine):
            facts, wanted = ((t.shape, str(t.dtype), t.device) for t in (gradient, parameter))
            raise ValueError(f"optimizer: the gradient of {name} is {facts}, but the parameter is {wanted}")
        return its

    # --- what an update changes ---------------------------------------------------------------------------------

    def stretches(self, groups: list[dict], skipped: dict[str, int]) -> list[Stretch]:
        """The parts of the arrays that an update changes.

        Adjacent parameters of a group whose gradients are in the flat array are joined into one long stretch.

        Args:
            skipped: the number of updates that have skipped a parameter, by name, if any have.
        Raises: ValueError or TypeError if a `.grad` does not match its parameter.
        """
        found: list[list] = []  # begin, end, gradient if it is not in the flat array, group, skipped
        for group in groups:
            last, end = [], -1  # the last stretch; where it ends, if another parameter of the group can be joined to it
            for name, parameter in zip(group["param_names"], group["params"], strict=True):
                place, count = self.places.get(name), skipped.get(name, 0)
                if place is None or parameter.grad is None or not parameter.requires_grad:
                    continue
                is_flat = self._checked_gradient(name) is self._gradient_views.get(name)
                if is_flat and place.start == end and count == last[-1]:
                    last[1] = end = place.stop
                else:
                    own = None if is_flat else writable(parameter.grad).reshape(-1)
                    found.append(last := [place.start, place.stop, own, group, count])
                    end = place.stop if is_flat else -1
        return [(slice(a, b), self._gradients[a:b] if own is None else own, *facts) for a, b, own, *facts in found]

    def to_update(self, stretches: list[Stretch]) -> Iterator[tuple[list[Tensor], dict[str, Any], int]]:
        """What this process updates: values, gradient and states of a stretch; its group; updates that skipped it.

        The caller changes values and states in place. After the last stretch, all parameters count as written.
        """
        # Where processes share the update, each knows only its own part: copies are made when they are needed.
        is_kept = self.values.device == "cuda" and self.part is None
        copy = self.rounded = device_of(self.values.data).module("linear").copy_of(self) if is_kept else None
        own = self.part or slice(0, math.inf)
        for place, gradient, group, count in stretches:
            begin, end = max(place.start, own.start), min(place.stop, own.stop)
            if begin < end:
                value, *states = (Tensor.wrap(flat.data[begin:end]) for flat in (self.values, *self.states.values()))
                value.rounded = None if copy is None else copy.array[begin:end]
                yield [value, Tensor.wrap(gradient[begin - place.start : end - place.start]), *states], group, count
                if vars(value).get("rounded") is not None:  # only a kernel writes both at once
                    value.rounded[...] = value.data
        self.values.mark_written()
        if copy is not None:
            copy.version[0] = self.values.version

    # --- the states ---------------------------------------------------------------------------------------------

    def named_states(self) -> dict[str, np.ndarray]:
        """The states by parameter, such as `exp_avg.blocks.0...`, on the host."""
        return {
            f"{state}.{name}": device_of(flat.data).to_host(flat.data[place]).reshape(self.named[name].shape)
            for state, flat in self.states.items()
            for name, place in self.places.items()
        }

    def fill_states(self, states: Mapping[str, np.ndarray]) -> None:
        """Write the given states into the arrays, if they have a place there."""
        for name, flat in self.states.items():
            for parameter, place in self.places.items():
                if (values := states.get(f"{name}.{parameter}")) is not None:
                    flat.data[place] = device_of(flat.data).from_host(np.ascontiguousarray(values).reshape(-1))

    def __reduce__(self) -> tuple:
        """For `copy.deepcopy` and pickle: a copy lays out its own arrays, with copies of the parameters."""
        return Memory, (self.named, [*self.states], self.places, self.named_states()), {"part": self.part}
