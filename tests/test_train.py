"""train.py from the user's view: what a run does, writes, prints and refuses."""

import os
import re
import shlex
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import sample
import train
from families import FAMILIES
from gpt.model import GPT
from seq2seq.model import Seq2Seq
from tests.gpt.configs import GPTConfig, Seq2SeqConfig
from tests.tiny_runs import LEFT_OUT, arguments, contents, losses, made_up_text, rows, run_training
from text.decoding.sample_options import SampleOptions
from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.device import DeviceError, why_no_cuda
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError, UserError
from tinygrad_lite.optim import Optimizer
from tinygrad_lite.random import random_key
from training import log, setup, start
from training.checkpoint import load_checkpoint
from training.cli.command_line import ELSEWHERE, FIRST_PAGE, parse_command_line
from training.cli.console import quoted
from training.cli.options import PRESETS, fields_of, list_presets
from training.corpora.texts import RECIPES
from training.folder import METRICS, RunFolder
from training.origin import name_of
from training.processes.processes import OneProcess

DEFAULT_VAL_LOSS = 3.588  # nats per token, as in the README, for the default run
FOLDERS = PRESETS, PRESETS / "extra"  # of presets: the core's and the shelf's
CACHE = os.environ.get("TINYGRAD_LITE_CACHE", "")  # the user's own, for the real corpus


pytestmark = [pytest.mark.usefixtures("workplace"), pytest.mark.every_device]


def weights(folder: RunFolder) -> np.ndarray:
    """All weights of the last checkpoint in one array."""
    return np.concatenate([array.ravel() for array in load_checkpoint(folder.last).weights.values()])


# --- what a run learns from -------------------------------------------------------------------------------------

TINY = "--n_layer=1 --n_embd=8 --block_size=8 --max_iters=1 --eval_iters=1 --sample_tokens=0 --tokenizer=byte".split()
# What is available; what a command that names no text learns from, and the beginning that is proposed.
UNNAMED = [
    (["plays", "goethe"], "goethe", "Habe nun, ach!"),
    (["plays"], "plays", "ROMEO:"),
    ([], "python-docs", "The statement"),
]
UNNAMED = [row for row in UNNAMED if row[1] in RECIPES]  # some are the shelf's


@pytest.mark.cpu_only("it is about texts")
@pytest.mark.parametrize(("available", "text", "prompt"), UNNAMED)
def test_a_command_that_names_no_text_takes_the_first_one_that_is_available(
    available, text, prompt, monkeypatch, capsys
):
    for name in RECIPES.keys() & available:
        recipe = replace(RECIPES[name], make=made_up_text, expected=None, held_out=None)
        monkeypatch.setitem(RECIPES, name, recipe)
    assert train.main(TINY) == 0
    lines = capsys.readouterr().err.splitlines()
    folder = RunFolder(Path("out", text))
    assert folder.noted_options()["dataset"] == load_checkpoint(folder.last).training["dataset"] == text
    assert f"  python sample.py {folder.path} --start {quoted(prompt)}" in lines
    assert train.main(["--resume", "--max_iters=2"]) == 0  # the same run, on its own text
    assert load_checkpoint(folder.last).step == 2
    if text != "goethe":
        with pytest.raises(CorpusError, match=r"^the corpus goethe is unavailable"):
            train.main(["goethe-char", *TINY, "--out_dir=named"])


# --- what a run does ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_iters", "evaluated"), [(0, [0]), (8, [0, 4, 8]), (10, [0, 4, 8, 10])])
def test_a_run_makes_exactly_max_iters_updates_and_evaluates_at_its_end(max_iters, evaluated, monkeypatch):
    made, step = [], Optimizer.step
    monkeypatch.setattr(Optimizer, "step", lambda self: (made.append(self.lr), step(self)))
    run = run_training(max_iters=max_iters)
    assert len(made) == max_iters
    last, best = load_checkpoint(run.last), load_checkpoint(run.best)
    assert last.step == max_iters
    validation = losses(run, "val_loss")
    assert (list(validation), list(losses(run))) == (evaluated, list(range(1, max_iters + 1)))
    assert best.best_loss == pytest.approx(min(validation.values()), rel=1e-5)
    assert validation[best.step] == min(validation.values())


def prepared(parts: int, dropout: float) -> tuple:
    """Options, task, model, optimizer and communication for updates of four sequences, in this number of parts."""
    settings = {"text": ["text.txt"], "n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 8, "dropout": dropout}
    parts = {"batch_size": 4 // parts, "gradient_accumulation_steps": parts, "eval_iters": 0}
    options = FAMILIES["gpt"].options.of(**settings, **parts)
    task = FAMILIES["gpt"].make_task(options, None)
    with random_key(0):
        model = options.built(GPT, options.model_config(task.tokenizer.vocab_size))
    return options, task, model, options.make_optimizer(model), OneProcess()


@pytest.mark.cpu_only
def test_the_gradients_of_a_step_are_those_of_its_mean_loss_clipped_and_of_no_other_step():
    found = []
    for parts in (1, 2, 4):
        options, *run = prepared(parts, dropout=0.0)
        for limit in (0.0, 0.0, 0.01):  # the weights stay as they are, so the second time nothing changes
            train.find_gradients(replace(options, grad_clip=limit), *run, 0)
            numbers, gradients = run[-1].numbers(), run[-2].gather_gradients()
            assert np.linalg.norm(gradients) == pytest.approx(limit or numbers.norm, rel=1e-5)
            found.append([numbers.loss, numbers.norm, *gradients * numbers.norm / np.linalg.norm(gradients)])
    np.testing.assert_allclose(found[1:], [found[0]] * 8, rtol=1e-3, atol=1e-6)


@pytest.mark.cpu_only
def test_an_evaluation_drops_nothing_and_is_the_mean_over_all_tokens():
    _, task, model, _, comm = prepared(1, dropout=0.5)
    nats = [(train.evaluate(task, model, comm), model.training) for _ in range(2)]
    with no_grad(), model.evaluating():
        losses = [(model.loss(batch).item(), tokens) for batch, tokens in task.validation_batches()]
    expected = sum(loss * tokens for loss, tokens in losses) / sum(tokens for _, tokens in losses)
    assert len({tokens for _, tokens in losses}) > 1
    assert nats == [(pytest.approx(expected, rel=1e-9), True)] * 2


@pytest.mark.cpu_only  # on a GPU the order is the same, but evaluating does not wait
def test_an_evaluation_saves_last_evaluates_and_saves_best_if_better(monkeypatch):
    saved, scores, save = [], iter([3.0, 2.0, 2.5]), log.save_checkpoint

    def noted_save(path, checkpoint):
        saved.append((path.stem, checkpoint.step, checkpoint.best_loss))
        save(path, checkpoint)

    def evaluate(*_):
        assert saved[-1][0] == "last"
        return next(scores)

    monkeypatch.setattr(log, "save_checkpoint", noted_save)
    monkeypatch.setattr(train, "evaluate", evaluate)
    run_training(max_iters=8)
    assert saved == [("last", 0, None), ("best", 0, 3.0), ("last", 4, 3.0), ("best", 4, 2.0), ("last", 8, 2.0)]


@pytest.mark.parametrize("broken", ["", "best"])
def test_on_a_gpu_training_continues_while_a_checkpoint_is_written(cuda, broken, monkeypatch, capsys):
    """If writing fails meanwhile, what was the best before is the best again."""
    updated, step, save = threading.Event(), Optimizer.step, log.save_checkpoint

    def slow_save(path, checkpoint):
        if checkpoint.step == 4:
            assert updated.wait(300), "the update after an evaluation waits for its checkpoints"
            if path.stem == broken:
                raise CheckpointError("the disk is full")
        save(path, checkpoint)

    def noted_step(optimizer):
        step(optimizer)
        if optimizer.steps > 4:
            updated.set()

    scores = iter([3.0, 2.0, 2.5])
    monkeypatch.setattr(log, "save_checkpoint", slow_save)
    monkeypatch.setattr(Optimizer, "step", noted_step)
    monkeypatch.setattr(train, "evaluate", lambda *_: next(scores))
    run = run_training(max_iters=8, device=cuda)
    last, best = load_checkpoint(run.last), load_checkpoint(run.best)
    assert (last.step, last.best_loss, best.step, best.best_loss) == ((8, 3.0, 8, 2.5) if broken else (8, 2.0, 4, 2.0))
    assert ("warning: the disk is full (training continues" in capsys.readouterr().err) == bool(broken)


def test_metrics_are_complete_and_numeric(monkeypatch):
    monkeypatch.setattr(FAMILIES["gpt"].options, "log_interval", 3)  # the default, where it is no option
    table = rows(run_training(max_iters=7, log_interval=3))
    assert tuple(table[0]) == (*METRICS, "bits_per_char")
    found = [(int(row["step"]), bool(row["loss"])) for row in table]
    assert found == [(0, False), (3, True), (4, False), (6, True), (7, True), (7, False)]
    for row in table:
        if row["loss"]:
            assert all(float(row[name]) > 0 for name in METRICS[1:5])
        else:  # a token is a character here
            assert float(row["bits_per_char"]) == pytest.approx(float(row["val_loss"]) / np.log(2), rel=1e-4)


def test_samples_go_to_stdout_and_to_a_file_and_everything_else_to_stderr(capsys):
    run = run_training(sample_tokens=120, max_iters=8)
    out, err = capsys.readouterr()
    for word in ("corpus", "parameters", "validation loss", "bits per character", "sample.py"):
        assert (word in err, word in out) == (True, False), word
    headings = [line.split(";")[0] for line in err.splitlines() if re.match(r"step \d+: validation loss", line)]
    blocks = run.samples.read_text(encoding="utf-8").split("=== ")[1:]
    assert ([block.splitlines()[0] for block in blocks], len(headings)) == (headings, 3)
    texts = [block.partition("\n")[2] for block in blocks]
    label, _, texts[0] = texts[0].partition("\n")
    assert "".join(texts).split() == out.split()
    assert (label, len(texts[0].strip())) == ("untrained, so this is noise:", 70)


@pytest.mark.cpu_only("a GPU replays the passes, which then need no keys")
def test_every_micro_step_drops_different_elements(monkeypatch):
    keys, random_key = [], train.random_key
    for module in (train, setup):
        monkeypatch.setattr(module, "random_key", lambda *key: keys.append(key) or random_key(*key))
    run_training(dropout=0.2, gradient_accumulation_steps=2, max_iters=5, seed=7)
    # The first makes the weights; the last two belong to the check before the last save.
    assert keys == [(7,), *((7, step, micro_step, 0) for step in range(5 + 1) for micro_step in range(2))]


def test_evaluation_and_samples_do_not_disturb_the_training():
    often = run_training(dropout=0.2, eval_interval=1, sample_tokens=3, eval_iters=1, out_dir="often")
    seldom = run_training(dropout=0.2, eval_interval=10, out_dir="seldom")
    assert (losses(often), weights(often).tobytes()) == (losses(seldom), weights(seldom).tobytes())


# --- which model, which folder, which names -------------------------------------------------------------------


def error_for(*words: str, script: ModuleType = train) -> str:
    """The error for a command line."""
    with pytest.raises(OptionError) as refused:
        script.main([*words])
    return str(refused.value)


def help_for(words: list[str], capsys) -> str:
    """The page of help for a command line."""
    with pytest.raises(SystemExit):
        train.main(words)
    return capsys.readouterr().out


def test_the_value_of_an_option_is_not_a_preset(capsys):
    """Only a word that is not an option's value chooses the model, wherever it is."""
    assert train.main([*arguments(out_dir=None, max_iters=1), "--out_dir", "reverse"]) == 0
    assert load_checkpoint(Path("reverse/last.safetensors")).family == "gpt"
    assert error_for("--dataset", "reverse") == (
        "--dataset reverse belongs to translation: use python train.py translate-de-en --dataset reverse"
    )
    assert "--batch_tokens INT" in help_for(["--max_iters", "3", "reverse", "-h", "all"], capsys)


def test_options_of_the_same_name_have_the_same_type():
    """So a command line is split in the same way for every model."""
    kinds = {pair for family in FAMILIES.values() for pair in fields_of(family.options)[1].items()}
    assert len(kinds) == len({name for name, _ in kinds})


ANSWERS = {
    train: [
        ("--label_smoothing 0.1", "--label_smoothing belongs to translation: "),
        ("reverse --text my.txt", "--text belongs to the GPT: python train.py --text ..."),
        ("--lr 1e-3", "unknown option --lr: it is called --learning_rate here (train.py --help all lists them)"),
        ("--ctx-len 3", "unknown option --ctx_len: did you mean --block_size?"),
        ("--model gpt2", "--model is not needed: a preset is named alone, as in python train.py baby-gpt"),
        ("my.txt", "my.txt is not a preset; did you mean: python train.py --text my.txt"),
        ("a/b.safetensors", "a/b.safetensors is not a preset; did you mean: python train.py --init_from a/b"),
        ("--resume --overwrite", "--resume continues a run and --overwrite starts it again: omit one of them"),
        ("--resume --init_from a", "--resume continues a run and --init_from a starts a new one: omit one"),
    ],
    sample: [
        ("--prompt Habe", "unknown option --prompt: it is called --start here (sample.py --help all lists them)"),
    ],
}


@pytest.mark.parametrize(("script", "words", "answer"), [(key, *row) for key in ANSWERS for row in ANSWERS[key]])
def test_options_of_other_programs_get_the_name_used_here(script, words, answer):
    assert error_for(*words.split(), script=script).startswith(answer)


def test_names_of_other_programs_lead_to_existing_options():
    classes = [SampleOptions, *(family.options for family in FAMILIES.values())]
    known = {name for cls in classes for name in fields_of(cls)[0]}
    assert known >= {*re.findall(r"--(\w+)", str(ELSEWHERE))} - LEFT_OUT
    assert len(ELSEWHERE) <= 15  # the nearest name is found for all others


@pytest.mark.parametrize("preset", [[], ["reverse"], ["goethe-bpe"]])
def test_the_help_has_a_first_page_and_the_defaults_of_the_preset_that_would_run(preset, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    page = help_for([*preset, "--help"], capsys)
    assert len(page.splitlines()) <= FIRST_PAGE
    assert page.endswith("  --help all                         every option\n")
    whole = help_for([*preset, "--help", "all"], capsys).split("\npresets:")[0]
    entries = {entry.split()[0]: entry for entry in whole.split("\n  --")[1:]}
    for name, value in start.settings_of(*preset or ["goethe"]).items():
        if name != "family" and value not in ("", []):
            shown = re.search(r"default (\S+)\)", entries[name])[1]
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            assert (float(shown) == value) if is_number else shown == str(value).lower(), name


@pytest.mark.parametrize("family", [*FAMILIES.values()])
def test_the_examples_of_the_help_are_valid(family):
    presets = list_presets(*FOLDERS)
    for command in family.examples:
        python, script, *words = shlex.split(command)
        _, named = parse_command_line(family.options, words, prog="train.py", description="", positional="preset")
        assert (python, script) == ("python", "train.py")
        assert {*named} <= {*presets}


def test_a_preset_may_be_a_file_of_ones_own(workplace):
    Path("my.settings").mkdir()
    own = Path("my.settings", "mine.toml")
    own.write_text('family = "seq2seq"\ndataset = "reverse"\nn_embd = 24\n', encoding="utf-8")
    for words in ([str(own), "--n_layer=1"], ["--n_layer", "1", str(own)]):
        setup = start.read_setup(words, FAMILIES)
        assert (setup.family.name, setup.options.dataset, setup.folder.path) == ("seq2seq", "reverse", Path("out/mine"))
        assert (setup.options.config.n_embd, setup.options.config.n_layer) == (24, 1)
    own.write_text("n_embd = 24 25", encoding="utf-8")
    assert "mine.toml is not valid TOML" in error_for(str(own))
    own.write_text('tokenizer = "char"\nvocab_size = 300\ntext = ["text.txt"]\n', encoding="utf-8")
    assert error_for(str(own)) == "--vocab_size changes nothing with --tokenizer char: omit it"
    assert start.read_setup([str(own), "--tokenizer=bpe"], FAMILIES).options.vocab_size == 300


# --- what it refuses ------------------------------------------------------------------------------------------


@pytest.mark.cpu_only("for machines without a GPU")
@pytest.mark.skipif(not why_no_cuda(), reason="there is a GPU")
def test_a_missing_device_is_refused_and_auto_reports_its_choice(capsys, workplace):
    with pytest.raises(DeviceError, match=r"device cuda"):
        train.main(arguments(device="cuda"))
    assert not (workplace / "run").exists()
    run = run_training(device="auto", max_iters=1)
    assert sample.main(["run", "--device=auto", "--max_new_tokens=1"]) == 0
    assert capsys.readouterr().err.count("--device auto chooses cpu (device cuda") == 2
    assert load_checkpoint(run.last).training["device"] == "cpu"


def test_overwrite_starts_again_but_not_before_the_text_is_read(workplace):
    run = run_training(max_iters=4)
    before = contents(run.path)
    with pytest.raises(UserError, match=r"--text nowhere\.txt: there is no such file"):
        train.main(arguments(text="nowhere.txt", overwrite=True))
    assert contents(run.path) == before
    run_training(max_iters=1, overwrite=True, seed=5)
    assert load_checkpoint(run.last).step == 1
    assert list(losses(run)) == [1]


def test_a_folder_that_cannot_be_made_is_reported(workplace):
    (workplace / "run").write_text("a file", encoding="utf-8")
    with pytest.raises(OptionError, match=r"--out_dir run cannot be written \(File exists\): choose another"):
        train.main(arguments())


# --- NaN and infinity -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"eval_interval": 1}, {"max_iters": 1}])
def test_a_diverging_run_stops_and_leaves_the_checkpoints_intact(changes):
    """The check comes before every save, and after the last update: neither file ever holds the broken model."""
    with pytest.raises(UserError, match=r"step 1: the loss is .*gradient of layer_norm produced .*are from before"):
        train.main(arguments(learning_rate=1e30, warmup_iters=0, **changes))
    run = RunFolder("run")
    assert load_checkpoint(run.last).step == load_checkpoint(run.best).step == 0
    assert train.main(["--resume", "--out_dir=run", "--learning_rate=1e-3", "--max_iters=3", "--min_lr=0"]) == 0


# --- the estimate of memory -----------------------------------------------------------------------------------


def memory_of_a_step(config: GPTConfig | Seq2SeqConfig) -> tuple[int, int]:
    """Bytes kept after the forward pass of a step, which is all that the backward pass needs, and the most in use.

    The step has four rows of block_size tokens, or of 16 source tokens and as many targets.
    """
    manual_seed(1)
    is_gpt, rng = isinstance(config, GPTConfig), np.random.default_rng(0)
    model = (GPT if is_gpt else Seq2Seq)(config)
    batch = tuple(Tensor(rng.integers(3, 80, (4, n))) for n in (2 * [config.block_size] if is_gpt else [16, 17]))
    model.loss(batch).backward()  # objects that are made only once exist from now on
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    loss = model.loss(batch)
    kept, _ = tracemalloc.get_traced_memory()
    loss.backward()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept - before, most - before


SMALL = {"n_layer": 2, "n_head": 2, "n_embd": 64, "block_size": 64}
ROTARY = {"qk_norm": True, "positions": "rotary", "norm": "rmsnorm"}
GPTS = [{"n_layer": 1, "n_head": 8, "n_embd": 32, "block_size": 128, "bias": True}, {"dropout": 0.2}]
GPTS += [{"activation": "relu2", "norm": "rmsnorm", "norm_weight": False}, {"activation": "swiglu"}, ROTARY]
PAIRS = [{"activation": "swiglu", "positions": "learned"}, ROTARY | {"norm_weight": False}]
ESTIMATED = [
    *((GPTConfig(80, **SMALL | changes), 4) for changes in GPTS),
    *((Seq2SeqConfig(80, 0, 1, 2, **SMALL | {"n_embd": 256, "dropout": 0.0} | changes), 128) for changes in PAIRS),
]


@pytest.mark.cpu_only("a GPU's kernels keep less")
@pytest.mark.parametrize(("config", "tokens"), ESTIMATED)
def test_the_estimate_of_memory_is_close_to_what_a_step_keeps(config, tokens):
    kept, _ = memory_of_a_step(config)
    assert config.activations(tokens) * 4 == pytest.approx(kept, rel=0.08)


# --- from pretrained weights ----------------------------------------------------------------------------------


def finetune(*words: str, **changes: object) -> RunFolder:
    """Start from out/first/best with another seed, without naming any shape."""
    shape = dict.fromkeys(("n_layer", "n_head", "n_embd", "block_size"))
    settings = {"out_dir": "second", "init_from": "first/best.safetensors", "learning_rate": 1e-3} | changes
    assert train.main([*arguments(**shape | settings), *words]) == 0
    return RunFolder(settings["out_dir"] or "out/first-finetuned")


@pytest.fixture
def first(workplace):
    """The run from whose weights others start."""
    return run_training(out_dir="first", eval_iters=0)


def test_a_run_starts_with_the_other_weights_and_a_new_optimizer():
    first = run_training(out_dir="first", max_iters=40)
    second = finetune(max_iters=6)
    best = load_checkpoint(first.best)
    assert losses(second, "val_loss")[0] == losses(first, "val_loss")[best.step]  # 6 digits, before any step
    assert losses(second, "val_loss")[6] < losses(first, "val_loss")[0]
    assert load_checkpoint(second.last).step == 6


def test_without_a_folder_it_is_named_after_its_origin_and_resumes(capsys):
    run_training(out_dir="first", bias=True, positions="sinusoidal", zero_init=True)
    second = finetune(out_dir=None, max_iters=4)
    assert second.last == Path("out/first-finetuned/last.safetensors")
    assert load_checkpoint(second.last).model["zero_init"]
    assert train.main(["--resume", "--out_dir=out/first-finetuned", "--max_iters=6"]) == 0
    assert load_checkpoint(second.last).step == 6
    for origin, name in ("gpt2/", "gpt2"), ("a/b", "b"), ("/", "gpt"):
        assert name_of(Path(origin)) == name


def test_another_shape_is_refused_by_name(first):
    conflicts = "n_layer=2 block_size=9 bias tokenizer=byte vocab_size=99 activation=relu"
    for conflict in conflicts.split():
        name = conflict.partition("=")[0]
        reason = rf"--{name} \w+ does not fit the weights of first.best.safetensors, which have"
        with pytest.raises(OptionError, match=reason):
            finetune(f"--{conflict}")
    assert not Path("second").exists()


def test_the_same_shape_may_be_given_and_that_of_a_preset_yields_to_the_weights(first, capsys):
    finetune("--n_layer=1", "--n_embd=16", "--tokenizer=char", "--dropout=0.1")
    capsys.readouterr()
    finetune("baby-gpt", out_dir="third", max_iters=1)
    said = capsys.readouterr().err
    assert "note: of the preset, block_size 256, n_embd 384, n_head 6, n_layer 6 does not apply: the weights of" in said
    assert load_checkpoint(Path("third/last.safetensors")).model["n_embd"] == 16


def test_a_shorter_context_uses_part_of_the_positions(first):
    second = finetune("--block_size=5", max_iters=0)
    name = "position_embedding.weight"
    before, after = (load_checkpoint(run.best).weights for run in (first, second))
    assert after[name].shape == (5, 16)
    np.testing.assert_array_equal(after[name], before[name][:5])


# --- the README's number --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.network
def test_the_default_run_reaches_the_loss_in_the_readme(monkeypatch):
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", CACHE)
    assert train.main([]) == 0
    run = RunFolder("out/goethe")
    assert losses(run, "val_loss")[1500] == pytest.approx(DEFAULT_VAL_LOSS, abs=0.02)
    assert load_checkpoint(run.best).best_loss <= losses(run, "val_loss")[1500] + 1e-5
