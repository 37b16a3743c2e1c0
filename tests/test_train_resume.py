"""A run that was stopped and resumed equals an uninterrupted one: the same losses, the same bytes."""

import os
import re
import select
import signal
import subprocess
import sys

import pytest

import train
from families import FAMILIES
from tests import tiny_runs
from tests.gpt.combined_settings import COMBINED
from tests.reliability.disturbed import wait_until
from tests.tiny_runs import LEFT_OUT, arguments, contents, finish, losses, run_training, same, script
from tinygrad_lite.errors import OptionError, counted
from tinygrad_lite.optim import Optimizer
from training.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from training.folder import STOPPING, RunFolder
from training.log import RunLog
from training.start import read_setup

RESUME = ["--resume", "--out_dir=run"]


pytestmark = [pytest.mark.usefixtures("workplace", "no_signal_ignored"), pytest.mark.every_device]


# --- resuming -------------------------------------------------------------------------------------------------


@pytest.fixture
def run(workplace) -> RunFolder:
    """The folder of a run of two steps."""
    return run_training(max_iters=2)


CHAR = {"dropout": 0.2, "gradient_accumulation_steps": 2, "sample_tokens": 5, "keep": 2}
BPE = {"tokenizer": "bpe", "vocab_size": 300, "dropout": 0.1, "log_interval": 3}
BPE |= COMBINED.get("qwen", COMBINED["speed run"])
MUON = {"optimizer": "muon", "schedule": "trapezoid", "data_order": "epochs", "dropout": 0.1}
SGD = {"optimizer": "sgd", "positions": "sinusoidal", "gradient_accumulation_steps": 3, "dropout": 0.1}
TRANSLATION = {"preset": "reverse", "eval_pairs": 2, "dropout": 0.2, "gradient_accumulation_steps": 2}


# Settings, and after which steps each run is stopped; an evaluation is at 4 and at 8.
STOPPED = [(CHAR, [[1], [4], [9], [2, 3, 8]]), (BPE, [[4]]), (SGD, [[6]]), (MUON, [[6]])]
STOPPED += [(TRANSLATION, [[3]])]
STOPPED += [pytest.param(kind, [[1], [stop], [9]], marks=pytest.mark.slow) for kind, stop in ((BPE, 6), (SGD, 4))]


@pytest.mark.parametrize(("settings", "runs"), STOPPED)
def test_a_stopped_run_resumes_bit_for_bit(settings, runs, monkeypatch, capsys):
    whole, run = run_training(out_dir="whole", **settings), RunFolder("run")
    for stops in runs:
        words = [*arguments(**settings), "--overwrite"]
        for stop, number in zip(stops, STOPPING, strict=False):
            with monkeypatch.context() as patch:
                tiny_runs.stop_after(patch, stop, number)
                assert train.main(words) == 128 + number
            assert f"stopped by {number.name} after {counted(stop, 'step')}; saved run" in capsys.readouterr().err
            assert load_checkpoint(run.last).step == stop
            words = RESUME
        assert train.main(RESUME) == 0
        said = capsys.readouterr().err
        assert f"resuming after {counted(stops[-1], 'step')}" in said
        assert ("changed" in said, "warning" in said) == (False, False)
        same(run, whole)


@pytest.mark.parametrize(("where", "owner"), [("evaluate", train), ("report", RunLog), ("step", Optimizer)])
def test_a_killed_run_resumes_from_its_last_checkpoint(where, owner, monkeypatch):
    """Nothing is saved at the end, the log has extra rows, and `best` may be newer than `last` says."""
    whole = run_training(out_dir="whole", **CHAR)
    calls, function = [], getattr(owner, where)

    def killed(*values):
        calls.append(where)
        if len(calls) == (7 if where == "step" else 2):
            raise MemoryError
        return function(*values)

    with monkeypatch.context() as patch:
        patch.setattr(owner, where, killed)
        with pytest.raises(MemoryError):
            train.main(arguments(**CHAR))
    run = RunFolder("run")
    assert load_checkpoint(run.last).step == 4
    assert train.main(RESUME) == 0
    same(run, whole)


def test_the_patience_of_a_stopped_run_continues(monkeypatch, capsys):
    settings = {"patience": 2, "eval_interval": 2, "max_iters": 40, "learning_rate": 3.0, "warmup_iters": 0}
    whole = run_training(out_dir="whole", **settings)
    end = load_checkpoint(whole.last).step
    assert end == load_checkpoint(whole.best).best_step + 4 < 40
    tiny_runs.stop_after(monkeypatch, end - 1)
    assert train.main(arguments(**settings)) == 130
    assert train.main(RESUME) == 0
    assert f"stopped early: no better validation loss since step {end - 4}" in capsys.readouterr().err
    same(RunFolder("run"), whole)


def test_a_finished_run_that_is_resumed_makes_no_step():
    run = run_training()
    before = contents(run.path)
    assert train.main(RESUME) == 0
    after = contents(run.path)
    before["options.json"] = after["options.json"]  # notes how it was started
    assert after == before


def test_a_changed_text_is_refused_unless_it_is_named(run, workplace, capsys):
    (workplace / "text.txt").write_text(tiny_runs.made_up_text(seed=2), encoding="utf-8")
    before = contents(run.path)
    with pytest.raises(OptionError, match=r"this is not the text on which the run .* name this one with --text"):
        train.main([*RESUME, "--max_iters=4"])
    assert contents(run.path) == before
    assert train.main([*RESUME, "--max_iters=4", "--text=text.txt"]) == 0
    assert "warning: this is not the text on which the run was trained so far" in capsys.readouterr().err
    assert load_checkpoint(run.best).step == 4  # whatever the loss on the other text was


# --- what may change and what may not -------------------------------------------------------------------------


FIXED = "n_layer=2 n_head=4 n_embd=32 block_size=16 bias=True positions=sinusoidal tokenizer=bpe vocab_size=400"


def test_what_a_resumed_run_cannot_change_is_refused_by_name(run):
    before = contents(run.path)
    refusals = dict.fromkeys([*FIXED.split(), "dtype=float64"], "cannot resume with --{}: the run in run has ")
    refusals |= {"max_iters=1": "--{}: the run in run has already made 2 steps"}
    refusals |= dict.fromkeys(("optimizer=sgd", "optimizer=muon"), "was --optimizer changed")
    for change, sentence in refusals.items():
        with pytest.raises(OptionError, match=sentence.format(change.replace("=", " "))):
            train.main([*RESUME, f"--{change}"])
        assert contents(run.path) == before


def test_the_same_model_may_be_named_again_and_other_changes_are_shown_as_a_diff(run, capsys):
    changed = ["--max_iters=4", "--dropout=0.1", "--learning_rate=0.002"]
    assert train.main([*RESUME, "--n_layer=1", "--n_embd=16", *changed]) == 0
    changes = re.findall(r"^changed: (.*)$", capsys.readouterr().err, re.MULTILINE)
    assert changes == ["dropout: 0.0 -> 0.1", "learning_rate: 0.01 -> 0.002", "max_iters: 2 -> 4"]
    checkpoint = load_checkpoint(run.last)
    assert (checkpoint.model["dropout"], checkpoint.training["learning_rate"]) == (0.1, 0.002)


# The schedule of a run of eight steps, and the note about the learning rate if it is resumed for sixteen.
RATES = [
    ("cosine", "from 0.00134 to 0.0055; it would not with --lr_decay_iters 8"),
    ("inverse_square_root", None),
]


@pytest.mark.parametrize(("schedule", "note"), RATES)
def test_a_jump_of_the_learning_rate_is_said_with_what_avoids_it(schedule, note, capsys):
    if note and "lr_decay_iters" in LEFT_OUT:
        note = note.replace("lr_decay_iters", "max_iters")
    run_training(max_iters=8, warmup_iters=0, schedule=schedule)
    kept = (note or "").partition("with ")[2].split()
    for words, expected in (["--max_iters=16"], note), (["--max_iters=16", *kept], None):
        capsys.readouterr()
        read_setup([*RESUME, *words], FAMILIES)
        said = re.search("note: the learning rate jumps (.*)", capsys.readouterr().err)
        assert (said and said[1]) == expected


@pytest.mark.parametrize("note", ["[", '{"text": 5}', '{"text": ["gone.txt"]}', None])
def test_without_options_json_a_resumed_run_needs_the_text(note, run):
    """People may edit and damage options.json, so its contents are checked."""
    run.options.unlink()
    if note is not None:
        run.options.write_text(note, encoding="utf-8")
    before = contents(run.path)
    unknown = r"options\.json is missing or damaged, so the text of the run is unknown: .* --text"
    with pytest.raises(train.UserError, match="text" if note and "text" in note else unknown):
        train.main([*RESUME, "--max_iters=4"])
    assert contents(run.path) == before
    assert train.main([*RESUME, "--max_iters=4", "--text=text.txt"]) == 0


@pytest.mark.parametrize("field", ["block_size", "n_head", "tokenizer"])
def test_a_checkpoint_that_contradicts_itself_is_refused(field, run):
    checkpoint = load_checkpoint(run.last)
    if field == "tokenizer":
        checkpoint.tokenizer["characters"].append("\U0001f600")
    else:
        checkpoint.training[field] *= 2
    save_checkpoint(run.last, checkpoint)
    with pytest.raises(CheckpointError, match="not the one that its tokenizer and settings describe"):
        train.main([*RESUME, "--max_iters=4"])


# --- signals to a process -------------------------------------------------------------------------------------


def has_made_a_step(run: RunFolder, terminal: int | None = None) -> bool:
    """Whether a run has; what it says on a terminal is read, or it would wait."""
    if terminal is not None and select.select([terminal], [], [], 0)[0]:
        os.read(terminal, 1 << 16)
    return run.metrics.exists() and bool(losses(run))


@pytest.mark.cpu_only("runs in a separate process")
@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_saves_and_says_how_to_resume_and_to_sample():
    """Other processes get the other signals: in test_workers.py, and below when a terminal is closed."""
    run = RunFolder("run")
    endless = arguments(max_iters=1_000_000, warmup_iters=0, eval_interval=1_000_000, workers=1)
    process = script("train.py", *endless)
    wait_until(lambda: has_made_a_step(run))
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert (code, "Traceback" in err) == (130, False)
    stopped = int(re.search(r"stopped by SIGINT after ([\d,]+) steps?", err)[1].replace(",", ""))
    assert load_checkpoint(run.last).step == stopped > 0
    assert "continue with:\n  python train.py --resume --out_dir run\ntry it with:\n  python sample.py run " in err
    assert train.main([*RESUME, f"--max_iters={stopped + 2}"]) == 0
    assert load_checkpoint(run.last).step == stopped + 2


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX terminal")
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_run_whose_terminal_is_closed_is_saved(workers):
    """What it would say has no place any more, which must not be an error before the checkpoint is written."""
    run, (ours, terminal) = RunFolder("run"), os.openpty()
    endless = arguments(max_iters=1_000_000, warmup_iters=0, eval_interval=1_000_000, workers=workers)
    code = "import fcntl, os, runpy, sys, termios; fcntl.ioctl(2, termios.TIOCSCTTY, 0); "
    code += f"sys.argv[0] = {train.__file__!r}; sys.path[0] = os.path.dirname(sys.argv[0]); "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    with subprocess.Popen([sys.executable, "-c", code, *endless], **streams, start_new_session=True) as process:
        os.close(terminal)
        try:
            wait_until(lambda: has_made_a_step(run, ours))
            os.close(ours)
            assert process.wait(300) == 129
        finally:
            process.kill()
    made = load_checkpoint(run.last).step
    assert max(losses(run)) == (made // 10 * 10 if LEFT_OUT else made) > 0


def test_a_second_ctrl_c_stops_at_once(monkeypatch):
    for _ in range(2):
        tiny_runs.stop_after(monkeypatch, 7)
    lost = "and lost 3 steps; continue from step 4 with:\n  python train.py --resume --out_dir run"
    with pytest.raises(KeyboardInterrupt, match=f"^{lost}$"):
        train.main(arguments())


@pytest.mark.cpu_only("runs in a separate process")
@pytest.mark.parametrize("name", ["train.py", "sample.py"])
def test_ctrl_c_while_a_script_imports_gives_one_sentence(name, workplace):
    (workplace / "safetensors.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n", encoding="utf-8")
    assert finish(script(name, PYTHONPATH=str(workplace))) == (130, "", f"\n{name}: stopped\n")
