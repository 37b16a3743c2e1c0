"""An array type that refuses host arrays, as CuPy does. It stands in for a GPU on machines without one.

A `StandInArray` hides a NumPy array and computes with it, but a NumPy array of one axis or more as the other operand,
as an index, or as a value to be written raises TypeError, and so does every implicit conversion to the host. Code that
mixes the two by mistake therefore fails in the tests, without a GPU. Numbers may be mixed in, as with CuPy, and
reductions return 0-d arrays, not numbers, as CuPy's do.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from tinygrad_lite import device

_owners: Any = weakref.WeakValueDictionary()
fence: Callable[[int, int], None] | None = None  # called with the bytes around each array, which nothing may access
# While the emulator records a graph: called instead of a function of NumPy, with that, its arguments and options.
record: Callable[[Callable, tuple, dict], Any] | None = None
kept: list[Any] | None = None  # where memory goes that must stay as long as a graph


def allow(what: str) -> None:
    """Called as `refuse` before an array is allocated or read by the host; the emulator replaces it while recording."""


refuse: Callable[[str], None] = allow


def moved(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 512 bytes, as CuPy's arrays do unless they are views.

    What a kernel fetches at once depends on its arrays' addresses, and the last digit of a sum depends on that.
    """
    refuse("an allocation")
    room = np.empty(array.nbytes + 2048, np.uint8)  # more than NumPy would keep for the next array of this size
    if kept is not None:
        kept.append(room)
    start = -room.__array_interface__["data"][0] % 512
    copy = np.ndarray(array.shape, array.dtype, memoryview(room), start, array.strides)
    copy[...] = array
    if fence:
        begin = room.__array_interface__["data"][0]
        fence(begin, begin + start)
        fence(begin + start + array.nbytes, begin + room.nbytes)
    return copy


class StandInArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A wrapped NumPy array; all operators arrive at `__array_ufunc__`."""

    def __init__(self, hidden: np.ndarray) -> None:
        if hidden.dtype.kind in "OSUMm":
            raise ValueError(f"Unsupported dtype {hidden.dtype}")
        self.hidden = hidden if hidden.base is not None else moved(hidden)
        # A view keeps the array whose memory it shares alive, as NumPy's and CuPy's do.
        owner = _owners.setdefault(id(self.hidden.base), self)
        self.owner = None if owner is self else owner

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **options: Any) -> Any:
        return _call(getattr(ufunc, method), args, options)

    def __array_function__(self, function: Callable, types: Any, args: tuple, options: dict) -> Any:
        return _call(function, args, options)

    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        raise TypeError("a stand-in array is not converted to a host array implicitly: use to_host")

    @property
    def data(self) -> SimpleNamespace:
        """The address of the memory, as in CuPy: `array.data.ptr`."""
        return SimpleNamespace(ptr=self.hidden.ctypes.data)

    @property
    def base(self) -> Any:
        """The array whose memory this view shares; None if it is not a view."""
        return self.owner

    def __getattr__(self, name: str) -> Any:
        """Attributes such as `shape`, and methods such as `sum`."""
        if name.startswith("__") or name == "hidden":
            raise AttributeError(name)
        attribute = getattr(self.hidden, name)
        return (lambda *args, **options: _call(attribute, args, options)) if callable(attribute) else _wrap(attribute)

    def __getitem__(self, index: Any) -> Any:
        index = _unwrap(index)
        found = self.hidden[index]
        if isinstance(found, np.generic):  # a single element is a view too, as in CuPy
            found = self.hidden[(*(index if isinstance(index, tuple) else (index,)), ...)]
        if record is not None and not np.may_share_memory(found, self.hidden):
            return record(self.hidden.__getitem__, (index,), {})
        return _wrap(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        _call(self.hidden.__setitem__, (index, value), {})

    def set(self, array: np.ndarray) -> None:
        """Copy a host array into this one."""
        refuse("a copy from the host")
        self.hidden[...] = array

    def __len__(self) -> int:
        return len(self.hidden)

    def __float__(self) -> float:
        refuse("a number that the host reads")
        return float(self.hidden)

    def __bool__(self) -> bool:
        refuse("a number that the host reads")
        return bool(self.hidden)


class StandInModule:
    """numpy for stand-in arrays; only `array` and `asarray` accept host arrays, and copy them."""

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(np, name)
        if isinstance(attribute, type) or not callable(attribute):
            return attribute  # float32, pi

        def function(*args: Any, **options: Any) -> Any:
            if name in ("array", "asarray") and not isinstance(args[0], StandInArray):
                if np.ndim(args[0]):  # a single number is an argument of the kernel that writes it
                    refuse("a copy from the host")
                if isinstance(args[0], np.ndarray):
                    return StandInArray(np.array(*args, **options))
            return _call(attribute, args, options)

        function.at = getattr(attribute, "at", None)  # xp.add.at
        return function


def _call(function: Callable, args: tuple, options: dict) -> Any:
    args, options = _unwrap(args), _unwrap(options)
    if record is not None:
        return record(function, args, options)
    with np.errstate(all="ignore"):  # CuPy does not warn about NaN and infinity
        return _wrap(function(*args, **options))


def _unwrap(value: Any) -> Any:
    if isinstance(value, StandInArray):
        return value.hidden
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError(f"a host array of shape {value.shape} is combined with a stand-in array")
    if isinstance(value, (tuple, list)):
        return type(value)(_unwrap(part) for part in value)
    if isinstance(value, dict):
        return {name: _unwrap(part) for name, part in value.items()}
    return value


def _wrap(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return StandInArray(np.asarray(value))
    return type(value)(map(_wrap, value)) if type(value) in (list, tuple) else value


@contextmanager
def standin_device() -> Iterator[str]:
    """Inside, there is a device called `standin`; yields its name."""
    standin = device.Device(
        name="standin",
        xp=StandInModule(),
        array_type=StandInArray,
        from_host=lambda array: StandInArray(np.array(array)),
        to_host=lambda array: array.hidden.copy(),
        synchronize=lambda: None,
    )
    device.register_device(standin)
    try:
        yield standin.name
    finally:
        del device._BY_NAME[standin.name], device._BY_TYPE[StandInArray]
