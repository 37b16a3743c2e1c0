"""train.py, but mortal: the process kills itself with SIGKILL at a chosen moment.

    DEATH_AT=17 PAUSE=0 JOURNAL=journal python tests/reliability/killed_train.py [options of train.py]

A moment is every point at which a kill could do harm: before and after each operation on a file, the middle of each
write, and the beginning of each pass over a batch, update and evaluation. The journal gets a "." for each of them, and
brackets around every save, so whoever reads it after the death knows how far the run came and whether it was saving.
With DEATH_AT=0 the process kills nothing; then PAUSE seconds at each moment of a save give others the time to do it.
"""

import builtins
import os
import signal
import sys
import time

ENDED = b")"
BEGAN = b"("


class Moments:
    """Counts moments, and dies at the chosen one."""

    def __init__(self, death_at, pause, journal):
        self.death_at, self.pause = death_at, pause
        self.number = self.depth = 0
        self.journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def pass_one(self):
        self.number += 1
        os.write(self.journal, b".")
        if self.number == self.death_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.depth and self.pause:
            time.sleep(self.pause)

    def around(self, function):
        """The same function with a moment before it and one after."""

        def changed(*args, **kwargs):
            self.pass_one()
            result = function(*args, **kwargs)
            self.pass_one()
            return result

        return changed

    def during(self, save):
        """The same function, marked in the journal as a save."""

        def changed(*args, **kwargs):
            os.write(self.journal, BEGAN)
            self.depth += 1
            try:
                return save(*args, **kwargs)
            finally:
                self.depth -= 1
                os.write(self.journal, ENDED)

        return changed


class HalfByHalf:
    """A file that is open for writing and takes everything in two halves, with a moment between them."""

    def __init__(self, file, moments):
        self.file, self.moments = file, moments

    def write(self, data):
        half = len(data) // 2
        for part in (data[:half], data[half:]):
            self.file.write(part)
            self.file.flush()
            self.moments.pass_one()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


def main():
    import train
    from tinygrad_lite import checkpoint, run
    from tinygrad_lite.workers import ManyProcesses, OneProcess

    moments = Moments(int(os.environ["DEATH_AT"]), float(os.environ["PAUSE"]), os.environ["JOURNAL"])
    open_file = builtins.open

    def open_mortally(path, mode="r", *args, **kwargs):
        file = open_file(path, mode, *args, **kwargs)
        if set(mode) & set("wa") and not str(path).endswith("lock"):
            moments.pass_one()
            return HalfByHalf(file, moments)
        return file

    builtins.open = open_mortally
    for name in ("fsync", "replace", "unlink"):
        setattr(os, name, moments.around(getattr(os, name)))
    for module in (checkpoint, run):
        module.write_atomically = moments.during(module.write_atomically)
    for kind in (OneProcess, ManyProcesses):
        for name in ("gradients", "update", "evaluate"):
            setattr(kind, name, moments.around(getattr(kind, name)))
    return train.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
