"""train.py in a process that kills itself at a chosen moment, or stops itself until another process continues it.

    DEATH_AT=17 PAUSE=0 JOURNAL=journal python tests/reliability/killed_train.py [options of train.py]

The journal gets a letter for each moment, "s" during a save and "w" during other work, so its reader knows how far the
run came and whether it was saving. With DEATH_AT=0 the process does not kill itself; a PAUSE of some seconds at each
moment of a save then gives another process time to do it. The signal is SIGKILL unless SIGNAL names another.
"""

import os
import signal
import sys
import time


def main() -> int:
    import train
    from tests.reliability.moments import Moments

    journal = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def hit(number, saving):
        os.write(journal, b"s" if saving else b"w")
        if number == int(os.environ["DEATH_AT"]):
            os.kill(os.getpid(), signal.Signals[os.environ.get("SIGNAL", "SIGKILL")])
        if saving:
            time.sleep(float(os.environ["PAUSE"]))

    with Moments(hit).happening():
        return train.main(sys.argv[1:])


if __name__ == "__main__":  # not in the workers, which also import this file
    sys.exit(main())
