"""Try mutants: give each of them to the tests that run its lines, until one fails.

    python -m tests.mutation                               all of them: hours
    python -m tests.mutation tinygrad_lite/autograd.py     those of one file
    python -m tests.mutation --survivors                   those that survived before, and are not listed
    python -m tests.mutation --quick --sample 30 --seed 7  30 of them, with the tests named in quick.json alone

A mutant that no test notices has survived: a test is missing, or nobody could notice it (equivalent.toml says why). The
score is the share of killed ones among those that somebody could notice. Which tests run which lines is found out first
and kept, with the results, in the folder --cache.
"""

import argparse
import functools
import json
import random
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

from tests.mutation.covering import Session, run_on_import, run_pytest
from tests.mutation.mutants import ROOT, Mutant, mutants_of
from tests.mutation.planting import functions_by_file, in_a_child, plant, plant_for_import

GROUPS = {  # of files: a file belongs to the first that has it
    "autograd": "tinygrad_lite/autograd.py",
    "ops": "tinygrad_lite/ops/*.py",
    "functional": "tinygrad_lite/functional/*.py",
    "decoding": "text/decoding/*.py",
    "nn": "tinygrad_lite/nn/*.py tinygrad_lite/transformer.py",
    "optim": "tinygrad_lite/optim/*.py",
    "tinygrad_lite, the rest": "tinygrad_lite/*.py tinygrad_lite/debug/*.py",
    "tokenizers": "text/tokenizers/*.py",
    "checkpoint": "training/checkpoint.py",
    "gpt": "gpt/*.py gpt/fast/step.py gpt/fast/weights.py",
    "seq2seq": "seq2seq/*.py",
}
TESTS = "tests/tinygrad_lite tests/text tests/gpt tests/seq2seq tests/training tests/test_sample.py tests/test_train.py"
TESTS += " tests/test_translation_scripts.py tests/test_train_resume.py"
TESTS += "".join(f" tests/reliability/test_{name}.py" for name in ("gradients", "hard_points", "round_trip"))
TESTS += " tinygrad_lite text gpt seq2seq --ignore=tests/tinygrad_lite/cuda --ignore=tests/training/corpora"
QUICK = Path(__file__).with_name("quick.json")
LISTED = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text(encoding="utf-8"))["reason"]
EQUIVALENT = {name for reason in LISTED for name in reason["mutants"]}


def group_of_files() -> dict[str, str]:
    """The files that are mutated, and their groups."""
    groups = reversed(GROUPS.items())  # so that the first of them is the last to be entered
    named = [(path, group) for group, names in groups for name in names.split() for path in ROOT.glob(name)]
    return {str(path.relative_to(ROOT)): group for path, group in sorted(named, key=lambda pair: pair[0])}


class Trial:
    """Tries mutants one after another.

    Attributes:
        session: the tests, collected.
        traced: for each test its seconds, and the lines of each file that it runs.
        imported: the lines of each file that run on import.
        results: for each mutant the test that killed it; empty if it survived, None if the tests hang or crash.
    """

    def __init__(self, session: Session, traced: dict[str, list], imported: dict[str, list[int]], limit: float) -> None:
        self.session, self.traced, self.imported, self.limit = session, traced, imported, limit
        self.results: dict[str, str | None] = {}
        self.killers, self.tests = defaultdict(set), defaultdict(set)
        for test, (_, ran) in traced.items():
            for path, lines in ran.items():
                for line in {0, *lines}:  # 0 stands for any line
                    self.tests[path, line].add(test)

    def tests_of(self, mutant: Mutant, is_in_place: bool) -> dict[str, float]:
        """The tests that run a mutant's lines, with their seconds, no more than --limit together.

        First come those that killed others of its function, then the fastest; but the second case of a test counts as
        if it took twice its time, and so on. What lines do when they run on import may be noticed by all tests of the
        file, and by those that run no function of any file, and only read a table.
        """
        found = set().union(*(self.tests[mutant.path, line] for line in mutant.lines))
        if not is_in_place:
            found = found if found and mutant.on_import else {*self.tests[mutant.path, 0]}
            found |= {test for test, (_, ran) in self.traced.items() if not ran}
        by_function, known = defaultdict(list), self.killers[mutant.path, mutant.function]
        for test in sorted(found, key=lambda test: self.traced[test][0]):
            by_function[test.split("[")[0]].append(test)
        turns = {test: turn for tests in by_function.values() for turn, test in enumerate(tests, start=1)}
        chosen = {}
        for test in sorted(found, key=lambda test: (test not in known, turns[test] * self.traced[test][0])):
            chosen[test] = self.traced[test][0]
            if sum(chosen.values()) > self.limit:
                break
        return chosen

    @functools.cache  # noqa: B019
    def passes(self, test: str) -> bool:
        """Whether a test passes without a mutant; what it imports may have changed since it was traced."""
        return in_a_child(lambda: self.session.first_failure({test: self.traced[test][0]}), 600) == ""

    def run(self, mutants: list[Mutant]) -> dict[str, str | None]:
        """Plant each mutant in a copy of this process, and run its tests there; return the results.

        First in place. Where its lines run on import, what they made then is without the fault; so a mutant that
        survives is planted once more, before the import, which takes ten times as long.
        """
        functions = functions_by_file()

        def in_place(mutant: Mutant) -> str:
            return (
                self.session.first_failure(self.tests_of(mutant, True))
                if plant(mutant, functions)
                else on_import(mutant)
            )

        def on_import(mutant: Mutant) -> str | None:
            plant_for_import(mutant)
            tests = self.tests_of(mutant, False)
            files = sorted({test.split("::")[0] for test in tests})
            return run_pytest(files, lambda session: session.first_failure(tests)) if tests else ""

        for mutant in mutants:
            killer = "" if mutant.on_import else in_a_child(lambda mutant=mutant: in_place(mutant), 600)
            if killer == "" and (mutant.on_import or mutant.lines & {*self.imported[mutant.path]}):
                killer = in_a_child(lambda mutant=mutant: on_import(mutant), 600)
            if killer and not self.passes(killer):
                raise SystemExit(f"{killer} fails without a mutant, too: mend it, and remove the folder --cache")
            self.results[mutant.name] = killer
            self.killers[mutant.path, mutant.function].update([killer] if killer else [])
            print(f"\n{mutant.name}" if killer == "" else ".", end="", flush=True)
        return self.results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="mutate only these")
    parser.add_argument("--survivors", action="store_true", help="only those that survived before, and are not listed")
    parser.add_argument("--sample", type=int, metavar="N", help="only N mutants, at random")
    parser.add_argument("--seed", default="0", help="of the sample")
    parser.add_argument("--quick", action="store_true", help="use the tests in quick.json, and trace none")
    parser.add_argument("--write_quick", action="store_true", help="write quick.json: the tests that --quick is to use")
    parser.add_argument("--killed", type=int, default=0, metavar="N", help="exit with status 1 if fewer are killed")
    parser.add_argument("--limit", type=float, default=20, help="seconds of tests for a mutant (20)")
    parser.add_argument("--tests", default=TESTS, help="what pytest is to collect")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "tinygrad_lite_mutation")
    options = parser.parse_args()
    options.cache.mkdir(exist_ok=True)
    known = options.cache / "results.json"
    before = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
    groups = group_of_files()
    mutants = [mutant for path in options.files or groups for mutant in mutants_of(path)]
    exist = {mutant.name for mutant in mutants}
    if options.survivors:
        mutants = [mutant for mutant in mutants if before.get(mutant.name) == "" and mutant.name not in EQUIVALENT]
    if options.sample:
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    quick = json.loads(QUICK.read_text(encoding="utf-8")) if options.quick else {}
    quick = {test: about for test, about in quick.items() if about[1].keys() & {mutant.path for mutant in mutants}}
    for mutant in mutants if quick else ():
        mutant.lines = {0}  # any: the file has no lines, which would change too often

    imported = in_a_child(lambda: run_on_import([*groups]))

    def work(session: Session) -> dict[str, str | None]:
        traced = quick or session.traced([*groups], options.cache)
        results = Trial(session, traced, imported, options.limit).run(mutants)
        known.write_text(json.dumps(before | results, indent=0), encoding="utf-8")
        if options.write_quick:
            QUICK.write_text(
                json.dumps(best_tests(before | results, traced), indent=0, sort_keys=True) + "\n", encoding="utf-8"
            )
        return results

    results = run_pytest(sorted({test.split("::")[0] for test in quick}) or options.tests.split(), work)
    report({name: killer for name, killer in (before | results).items() if name in exist}, groups)
    sys.exit(sum(killer != "" for killer in results.values()) < options.killed)


def best_tests(results: dict[str, str | None], traced: dict[str, list]) -> dict[str, list]:
    """The content of quick.json: for each function the two tests that killed most, and others until all lines run."""
    kills, best = defaultdict(Counter), {}
    for name, killer in results.items():
        kills[name.split(":")[0]][killer] += killer in traced
    for path in {name.split()[0] for name in results}:
        running = {test: {*ran[path]} for test, (_, ran) in traced.items() if path in ran}
        known = [counter.most_common(2) for place, counter in kills.items() if place.split()[0] == path]
        chosen = {test for pair in known for test, count in pair if count}
        while missing := set().union(*running.values()).difference(*(running.get(test, ()) for test in chosen)):
            chosen.add(max(running, key=lambda test: len(running[test] & missing) / (0.2 + traced[test][0])))
        for test in chosen:
            best.setdefault(test, [traced[test][0], {}])[1][path] = [0]  # which stands for any line
    return best


def report(results: dict[str, str | None], groups: dict[str, str]) -> None:
    """Print a line for each group of files, of all mutants that have been tried so far."""
    counts = defaultdict(Counter)
    for name, killer in results.items():
        fate = "killed" if killer != "" else "equivalent" if name in EQUIVALENT else "survived"
        counts[groups[name.split()[0]]][fate] += 1
    print(f"\n{'':26}killed  survived  equivalent  score")
    for group, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        killed, survived = count["killed"], count["survived"]
        print(f"{group:26}{killed:6}{survived:10}{count['equivalent']:12}{killed / max(1, killed + survived):7.1%}")


if __name__ == "__main__":
    main()
