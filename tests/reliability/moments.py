"""The moments at which a run can be hit: each operation on a file, the middle of each write, each pass over a batch."""

import builtins
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import train
from tinygrad_lite.optim import Optimizer
from training import checkpoint
from training import folder as run


class Moments:
    """Calls `hit` with the number of each moment of a run, counted from 1, and whether a save is under way."""

    def __init__(self, hit: Callable[[int, bool], None], at_work: bool = True) -> None:
        self.hit = hit
        self.at_work = at_work  # whether computation has moments too, or only writing
        self.number = self.saves = 0

    def happen(self) -> None:
        self.number += 1
        self.hit(self.number, self.saves > 0)

    @contextmanager
    def happening(self) -> Iterator[None]:
        """Inside, the moments happen."""
        wrapped = [(os, name) for name in ("fsync", "replace", "unlink", "truncate")]
        if self.at_work:
            wrapped += [(Optimizer, "zero_grad"), (Optimizer, "step"), (train, "evaluate")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(builtins, "open", self.opening(builtins.open))
            for module in (checkpoint, run):
                patch.setattr(module, "save_file", self.during(module.save_file))
            for owner, name in wrapped:
                patch.setattr(owner, name, self.around(getattr(owner, name)))
            yield

    def around(self, function: Callable) -> Callable:
        """The same function with a moment before it and one after."""

        def changed(*args, **kwargs):
            self.happen()
            result = function(*args, **kwargs)
            self.happen()
            return result

        return changed

    def during(self, save: Callable) -> Callable:
        """The same function, known as a save, with a moment after it."""

        def changed(*args, **kwargs):
            self.saves += 1
            try:
                result = save(*args, **kwargs)
            finally:
                self.saves -= 1
            self.happen()
            return result

        return changed

    def opening(self, open_file: Callable) -> Callable:
        """The same `open`, but files that it opens for writing have moments."""

        def changed(path, mode="r", *args, **kwargs):
            if not set(mode) & set("wa") or str(path).endswith("lock"):
                return open_file(path, mode, *args, **kwargs)
            self.happen()
            return HalfByHalf(open_file(path, mode, *args, **kwargs), self)

        return changed


class HalfByHalf:
    """A file open for writing that writes everything in two halves, with a moment after each."""

    def __init__(self, file: Any, moments: Moments) -> None:
        self.file, self.moments = file, moments

    def write(self, data: bytes | str) -> None:
        half = len(data) // 2
        for part in (data[:half], data[half:]):
            self.file.write(part)
            self.file.flush()
            self.moments.happen()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> "HalfByHalf":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
