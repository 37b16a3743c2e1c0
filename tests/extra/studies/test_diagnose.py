"""python -m extra.studies.diagnose on 27 runs, sound or spoilt on purpose: what it finds in each.

diagnosed.json has their numbers, so that the rules are tried without training; `pytest -m slow` makes the runs, which
take some minutes, and so does `python -m tests.extra.studies.test_diagnose`, which then writes the numbers again.
"""

import json
import re
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import extra.corpora.texts  # noqa: F401
import train
from extra.studies import diagnose
from extra.studies.diagnose import Run, read_run, recorded, symptoms
from seq2seq.toys import toy_pairs
from tests.tiny_runs import run_training, undone
from tinygrad_lite.errors import UserError
from training.corpora.texts import load_corpus

NUMBERS = Path(__file__).with_name("diagnosed.json")
EVAL = "--workers 1 --overwrite --eval_interval 50 --log_interval 5"
SMALL = f"--text text.txt {EVAL} --sample_tokens 0 --eval_iters 100 --n_layer 2 --n_embd 64 --block_size 64"
SMALL += " --batch_size 8 --max_iters 400 --warmup_iters 20"
LETTERS = f"goethe-char-modern {SMALL} --n_head 2 --learning_rate 3e-3"
MERGES = f"goethe {SMALL} --n_head 2 --vocab_size 400"
CLASSIC = f"goethe-char {SMALL} --n_head 2 --learning_rate 5e-3 --block_size 32 --batch_size 32 --max_iters 800"
TUNED = f"--init_from out/classic --text reversed.txt {EVAL} --max_iters 100 --eval_iters 100 --sample_tokens 0"
TOY = f"reverse {EVAL} --eval_pairs 20"
# What is found in a run, and the options that make it, perhaps twice.
RUNS = {
    "modern": ("", LETTERS),
    "classic": ("", f"{CLASSIC} --eval_interval 100"),
    "merges": ("", MERGES),
    "bytes": ("", f"{LETTERS} --tokenizer byte --seed 2"),
    "words": ("", f"{MERGES} --tokenizer word --vocab_size 1500"),
    "alibi": ("", f"{LETTERS} --positions alibi --seed 7"),
    "lstm": ("", f"goethe-lstm {SMALL} --vocab_size 400 --learning_rate 3e-3"),
    "other": ("", f"{LETTERS} --text other.txt --seed 3"),
    "adamw": ("", f"{MERGES} --optimizer adamw --dropout 0.1 --learning_rate 5e-3"),
    "resumed": ("", f"{LETTERS} --schedule constant --max_iters 200", "--resume --max_iters 400 --workers 1"),
    "reverse": ("", TOY),
    "sort": ("", f"{TOY} --dataset sort --max_iters 300"),
    "rotary": ("", f"{TOY} --dataset sort --max_iters 300 --positions rotary --seed 5"),
    "high": ("single tokens", f"{LETTERS} --optimizer adamw --learning_rate 1"),
    "low": ("ln V", f"{LETTERS} --learning_rate 1e-6"),
    "nothing": ("ln V", f"{LETTERS} --learning_rate 1e-12"),
    "nan": ("NaN", f"{LETTERS} --optimizer adamw --learning_rate 30 --weight_decay 1"),
    "frozen": ("single tokens", f"{TUNED} --eval_interval 20 --freeze blocks.* token* position*"),
    "blind": ("pairs", f"{LETTERS} --block_size 1 --batch_size 512 --eval_iters 6400"),
    "little": ("overfits", f"{LETTERS} --text little.txt"),
    "seen": ("seen text", f"{LETTERS} --text seen.txt"),
    "batch": ("single tokens", f"{LETTERS} --batch_size 256 --max_iters 12 --warmup_iters 2 --eval_interval 3"),
    "shuffled": ("source", f"{TOY} --pairs shuffled.tsv --max_iters 300"),
    "longer": ("schedule", f"{LETTERS} --max_iters 200", "--resume --max_iters 400 --workers 1"),
    "early": ("pairs", f"{LETTERS} --max_iters 40 --eval_interval 10"),
    "unknown": ("unknown tokens", f"{LETTERS} --tokenizer word --vocab_size 20"),
    "dropout": ("single tokens", f"{LETTERS} --dropout 0.9"),
}
WHAT_IS_FOUND = {name: [found] if found else [] for name, (found, *_) in RUNS.items()}


def make_all() -> dict[str, Run]:
    """Make the texts and the runs in this folder, as far as they are not there."""
    docs = load_corpus("python-docs").text
    texts = {"text": docs[:200_000], "reversed": docs[:200_000][::-1], "little": docs[:3_000], "other": docs[200_000:]}
    texts["seen"] = docs[:180_000] + docs[:20_000]
    for name, text in texts.items():
        Path(f"{name}.txt").write_text(text, encoding="utf-8")
    sources, targets = zip(*toy_pairs("sort", 5000), strict=True)
    shuffled = zip(sources, np.random.default_rng(0).permutation(targets), strict=True)
    Path("shuffled.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in shuffled), encoding="utf-8")
    for name, (_, *commands) in RUNS.items():
        for command in [] if Path(f"out/{name}").exists() else commands:
            with suppress(UserError), undone():  # that of the NaN
                train.main([*command.split(), "--out_dir", f"out/{name}"])
    return {name: read_run(f"out/{name}") for name in RUNS}


def as_json(run: Run) -> dict:
    """What the rules read of a run, as JSON."""
    options = {"max_iters": run.options.max_iters, "optimizer": run.options.optimizer}
    numbers = {name: np.round(getattr(run, name), 12).tolist() for name in vars(run) if name != "options"}
    return numbers | {"options": options | {"dropout": run.options.config.dropout}}


def from_json(options: dict, **numbers) -> Run:
    """The run again."""
    config = SimpleNamespace(dropout=options.pop("dropout"))
    return Run(
        SimpleNamespace(**options, config=config, patience=0),
        **{name: np.array(value) for name, value in numbers.items()},
    )


def test_symptoms_are_found_where_they_are_and_nowhere_else():
    found = {name: [*symptoms(from_json(**run), recorded())] for name, run in json.loads(NUMBERS.read_text()).items()}
    assert found == WHAT_IS_FOUND
    assert sum(map(bool, found.values())) == 14


@pytest.mark.slow
def test_the_runs_themselves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert {name: [*symptoms(run, recorded())] for name, run in make_all().items()} == WHAT_IS_FOUND


def test_the_command_reads_runs_and_refuses_what_is_none(workplace, ran):
    Path("twice.txt").write_text(2 * Path("text.txt").read_text(encoding="utf-8"), encoding="utf-8")
    folder = run_training(out_dir="out/tiny", max_iters=6, text="twice.txt")
    run_training("reverse", out_dir="out/pairs", max_iters=6)
    tiny, pairs = ran(diagnose.main, "out/tiny", "out/pairs").out.split("out/")[1:]
    assert re.match(r"tiny: validation loss [\d.]+ at step 6 \(ln V [\d.]+, single tokens [\d.]+, pairs [\d.]+\)", tiny)
    assert "seen text: 100% of the held-out text" in tiny
    assert re.search("(ln V|single tokens|pairs): stage", tiny)
    assert "source: others add" in pairs
    head = "step,loss,learning_rate,val_loss\n"
    for lines, message in ((f"{head}0,,,4.4\n", "has no update yet"), (f"{head}0,=1+1,,\n", "line 2 is damaged")):
        folder.metrics.write_text(lines, encoding="utf-8")
        with pytest.raises(UserError, match=message):
            diagnose.main(["out/tiny"])
    folder.metrics.write_text(f"{head}0,,,-1e308\n1,1e308,1e308,1e308\n", encoding="utf-8")
    assert "NaN: ends at step 1 of 6, loss up to 1e+308" in ran(diagnose.main, "out/tiny").out


if __name__ == "__main__":
    NUMBERS.write_text(json.dumps({name: as_json(run) for name, run in make_all().items()}), encoding="utf-8")
