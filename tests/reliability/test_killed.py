"""A run that is killed with SIGKILL, repeatedly and at any moment, ends with the bytes of an uninterrupted run."""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import test_translation_scripts as translation
from tests.reliability.disturbed import marked, wait_until, whole_checkpoints
from tests.tiny_runs import arguments, finish, same, script
from training.folder import RunFolder

pytestmark = [
    pytest.mark.usefixtures("workplace"),
    pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs SIGKILL and /proc"),
]

SEED = 20260
CHAR = {"dropout": 0.2, "gradient_accumulation_steps": 2, "sample_tokens": 5, "keep": 2}
BPE = {"tokenizer": "bpe", "vocab_size": 300, "dropout": 0.1, "optimizer": "sgd", "log_interval": 3, "patience": 2}
PAIRS = {"dropout": 0.2, "keep": 1}


def commands(workers):
    """The command lines of runs of several kinds, without their folder."""
    return {
        "characters": arguments(**CHAR, workers=workers, out_dir=None),
        "merges": arguments(**BPE, workers=workers, out_dir=None),
        "pairs": translation.arguments(**PAIRS, workers=workers, out_dir=None),
    }


class Mortal:
    """A run that is killed and resumed, in its own folder."""

    def __init__(self, words, name):
        self.folder, self.name = RunFolder(name), name
        self.words = [word for word in words if "None" not in word]
        self.journal = Path(f"{name}.journal")

    def live(self, death_at=0, delay=None, pause=0.0):
        """Train until killed or finished; returns whether it was killed, whether during a save, and its journal."""
        # Before the first checkpoint there is nothing to resume.
        words = ["--resume"] if self.folder.last.exists() else self.words
        settings = {"DEATH_AT": str(death_at), "PAUSE": str(pause), "JOURNAL": str(self.journal)}
        self.journal.unlink(missing_ok=True)
        name = "tests/reliability/killed_train.py"
        process = script(name, *words, f"--out_dir={self.name}", FAMILY=f"{os.getpid()} {self.name}", **settings)
        if delay is not None:
            time.sleep(delay)
            process.kill()
        status, _, err = finish(process)  # this also waits for the workers, which share its stderr
        wait_until(lambda: not marked(f"FAMILY={os.getpid()} {self.name}"))  # no process is left
        assert status in (0, -9), err
        written = self.journal.read_bytes() if self.journal.exists() else b""
        return status == -9, written.endswith(b"s"), written


TIMES = [(1, 1), (1, 2), *(pytest.param(50, workers, marks=pytest.mark.slow) for workers in (1, 2))]


@pytest.mark.parametrize(("kills", "workers"), TIMES)
def test_a_run_killed_repeatedly_ends_like_an_uninterrupted_one(kills, workers, report, workplace):
    """Half of the kills come at a numbered moment, half from a timer; after about every second one, another follows."""
    rng, counts = random.Random(SEED + workers), Counter()
    wholes, seconds, moments = {}, {}, {}
    kinds = commands(workers)
    shared_before = set(os.listdir("/dev/shm"))
    while counts["kills"] < kills:
        kind = rng.choice(sorted(kinds)[: 1 if kills < 10 else 3])
        if kind not in wholes:
            wholes[kind] = Mortal(kinds[kind], f"whole-{kind}")
            began = time.perf_counter()
            died, _, moments[kind] = wholes[kind].live()
            seconds[kind] = time.perf_counter() - began
            assert not died
        run = Mortal(kinds[kind], f"run-{counts['runs']}")
        counts["runs"] += 1
        died = True
        while died:
            if counts["kills"] >= kills or rng.random() < 0.3:
                chosen = {}  # run to the end
            elif rng.random() < 0.5:
                where = rng.choice("ssw")  # during a save, or elsewhere
                chosen = {"death_at": 1 + rng.choice([i for i, at in enumerate(moments[kind]) if chr(at) == where])}
            else:
                chosen = {"delay": rng.uniform(0.4, 1.1) * seconds[kind], "pause": 0.004}
            died, in_save, _ = run.live(**chosen)
            if died:
                counts["kills"] += 1
                counts["during a save"] += in_save
                counts["by a timer"] += "delay" in chosen
                counts["checkpoints loaded"] += whole_checkpoints(run.folder)
        whole = wholes[kind].folder
        context = f"seed {SEED + workers}, {run.name}, {kind}"
        names = [sorted(path.name for path in folder.path.iterdir()) for folder in (run.folder, whole)]
        assert names[0] == names[1], context
        same(run.folder, whole)
    assert set(os.listdir("/dev/shm")) <= shared_before
    report(f"killed, {workers} worker(s): the same bytes after {dict(counts)}")
