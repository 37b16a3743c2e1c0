"""train.py and sample.py with a translation model: the same loop, the same checkpoints, the same ways to resume."""

import functools
import io
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import train
from families import FAMILIES
from seq2seq.toys import toy_pairs
from seq2seq.translate import text_of
from tests import tiny_runs
from tests.tiny_runs import losses, sampled, undone
from text.tokenizers.char import CharTokenizer
from text.tokenizers.word import WordTokenizer
from tinygrad_lite.errors import CheckpointError, OptionError, UserError
from training.checkpoint import load_checkpoint
from training.folder import RunFolder
from training.setup import warn_of_unknown

pytestmark = [pytest.mark.usefixtures("workplace"), pytest.mark.every_device]
arguments = functools.partial(tiny_runs.arguments, "reverse")
run_training = functools.partial(tiny_runs.run_training, "reverse")


# --- training -------------------------------------------------------------------------------------------------


def test_a_run_learns_and_shows_translations(capsys):
    run = run_training(max_iters=60, learning_rate=1e-2)
    out, err = capsys.readouterr()
    validation = losses(run, "val_loss")
    assert validation[60] < validation[0] - 0.2
    assert "exactly right" in err
    exact = losses(run, "exact")
    assert err.count("too early to translate") == len(validation) - len(exact) > 0
    assert out.count("\n  -> ") == out.count("\n  == ") == 2 * len(exact) > 0


TODAYS = {"positions": "rotary", "norm": "rmsnorm", "norm_weight": False, "qk_norm": True, "attention_scale": 0.5}
TODAYS |= {"activation": "swiglu", "zero_init": True, "bias": False}


@pytest.mark.parametrize("optimizer", [pytest.param("adamw", marks=pytest.mark.slow), "muon"])
def test_a_model_with_other_parts_learns_resumes_and_translates(optimizer, capsys):
    assert_learns_resumes_and_translates(TODAYS, optimizer, 30, capsys)


def assert_learns_resumes_and_translates(kind, optimizer, steps, capsys):
    """Stopped and resumed, it has the same weights to the last bit; then the ways to use it."""
    settings = kind | {"optimizer": optimizer, "dropout": 0.1, "eval_pairs": 2}
    # A rate that does not depend on the number of steps.
    settings |= {"learning_rate": 3e-2, "eval_interval": steps // 2, "schedule": "inverse_square_root"}
    whole = run_training(**settings, max_iters=steps, out_dir="whole")
    validation = losses(whole, "val_loss")
    assert validation[steps] < validation[0] - 0.2
    run_training(**settings, max_iters=steps * 3 // 5)
    assert train.main(["--resume", "--out_dir=run", f"--max_iters={steps}"]) == 0
    held, resumed = (load_checkpoint(RunFolder(name).last) for name in ("whole", "run"))
    assert kind.items() <= (held.model | {"n_head": None}).items()
    assert all(resumed.weights[name].tobytes() == array.tobytes() for name, array in held.weights.items())
    start = ["whole", "--start=abcdefghij"]
    for more in (["--beam=3"], ["--temperature=1"]):
        assert len(sampled(capsys, *start, *more).out.splitlines()) == 1
    return settings


@pytest.mark.cpu_only("several workers are for the CPU")
def test_two_processes_learn_what_one_learns_with_other_parts():
    assert_two_learn_the_same(TODAYS)


def assert_two_learn_the_same(kind):
    """Of two processes the losses are those of one."""
    one, two = (run_training(**kind, max_iters=4, workers=n, out_dir=f"of-{n}") for n in (1, 2))
    for step, loss in losses(one).items():
        assert losses(two)[step] == pytest.approx(loss, rel=1e-4), step


def test_words_are_trained_and_translated(workplace, capsys):
    """Pairs from a file: the loss falls, and translations have the original spaces and no <unk>."""
    pairs = [(source, f"{target}, bitte. ") for source, target in toy_pairs("numbers", 200)]
    (workplace / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    run = run_training(
        pairs="pairs.tsv", toy_size=None, tokenizer="word", vocab_size=24, max_iters=24, eval_interval=24
    )
    validation, said = losses(run, "val_loss"), capsys.readouterr().err
    assert validation[24] < validation[0] - 0.4
    assert "word tokenizer with 24 tokens" in said
    assert " of those held out are <unk>)" in said  # some numbers are not among 20 words
    trained = FAMILIES["seq2seq"].read(run.best)
    known = [target.strip() for _, target in pairs if not trained.tokenizer.unknown(target)]
    assert len(known) >= 10
    assert [text_of(trained.tokenizer, trained.tokenizer.encode(text)) for text in known] == known
    for more, lines in (([], 1), (["--beam=3"], 1), (["--temperature=2", "--num_samples=4"], 4)):
        written = sampled(capsys, "run", "--start", pairs[0][0], *more).out
        assert (len(written.splitlines()), "\ufffd" in written) == (lines, False)


UNKNOWN_UNITS = [
    (WordTokenizer.train("ab ba", 20, ("<unk>",)), "3 words of the text are unknown"),
    (CharTokenizer.train("ab ba", ("<unk>",)), "9 characters of the text are unknown"),
]


@pytest.mark.parametrize(("tokenizer", "warning"), UNKNOWN_UNITS, ids=lambda value: getattr(value, "kind", ""))
def test_the_warning_names_what_is_unknown(tokenizer, warning, capsys):
    assert_warning(tokenizer, warning, capsys)


def assert_warning(tokenizer, warning, capsys):
    """Of a text with three unknown words, the warning says this, and names the words if these are what is unknown."""
    warn_of_unknown(SimpleNamespace(tokenizer=tokenizer, unknown=lambda: tokenizer.unknown("acht ab acht ba acht")))
    said = capsys.readouterr().err
    assert f"warning: {warning}" in said
    assert ("'acht' 3" in said) == ("words" in warning)


def test_a_run_can_start_from_another_run():
    first = run_training(out_dir="first", positions="learned", max_iters=12)
    # Another preset was requested by name, so its shape must fit; every option of the shape is given again here.
    second = run_training(
        init_from="first", dataset="sort", out_dir="second", positions="learned", block_size=40, max_iters=2
    )
    held = load_checkpoint(second.last)
    assert held.weights["source_positions.weight"].shape == (40, 16)
    assert held.tokenizer == load_checkpoint(first.last).tokenizer


def test_only_loaded_weights_determine_the_model_and_must_be_of_the_family_that_is_named():
    """The output folder of a new run does not."""
    run_training(max_iters=1)
    for words in (["--out_dir=run"], ["--overwrite", "--out_dir", "run"]):
        with pytest.raises(UserError, match=r"--text gone\.txt: there is no such file"):
            train.main([*words, "--text=gone.txt"])
    for words in (["--resume", "--out_dir=run"], ["--init_from=run", "--out_dir=new"]):
        with pytest.raises(OptionError, match=r"--text belongs to the GPT: python train\.py --text"):
            train.main([*words, "--text=gone.txt"])
        with pytest.raises(CheckpointError, match="of the family 'seq2seq', not 'gpt'"):
            train.main(["goethe-char", *words])


def test_the_error_about_long_pairs_says_what_helps(workplace):
    table = "".join(f"{'abcdefgh'[: 4 + i % 4]} {i}\t{'x' * (i % 9 + 1)} {i}\n" for i in range(10, 60))
    (workplace / "pairs.tsv").write_text(table, encoding="utf-8")
    with pytest.raises(UserError, match=r"--block_size 4 is too short for pairs\.tsv: use \d or more") as refused:
        train.main(arguments(pairs="pairs.tsv", toy_size=None, block_size=4))
    needed = int(re.search("use (.) or", str(refused.value))[1])
    run_training(pairs="pairs.tsv", toy_size=None, block_size=needed, max_iters=1)


# --- translating ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_trained(tmp_path_factory):
    """The folder of a run; made once, because no test changes it."""
    with undone():
        return run_training(max_iters=30, out_dir=tmp_path_factory.mktemp("trained") / "run").path


@pytest.fixture
def trained(workplace, long_trained):
    """A working folder with a copy of the trained run."""
    shutil.copytree(long_trained, "run")
    return RunFolder("run")


def test_file_and_stdin_give_the_same_translations(trained, capsys, monkeypatch):
    lines = ["abcdefghij", "", "zyx", "qqq"]
    Path("in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    from_file = sampled(capsys, "run", "--start", "FILE:in.txt").out
    translations = from_file.splitlines()
    assert (len(translations), translations[1]) == (4, "")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()), "utf-8"))
    assert sampled(capsys, "run", "--start", "-").out == from_file
    assert [sampled(capsys, "run", "--start", line).out for line in lines] == [f"{text}\n" for text in translations]


def test_translations_can_be_sampled(trained, capsys):
    command = ["run", "--start", "abcdefghij", "--temperature", "1.5", "--num_samples", "3"]
    first, again, other, best = (sampled(capsys, *command, *more).out for more in ([], [], ["--seed=4"], ["--top_k=1"]))
    assert first == again != other
    assert best == 3 * sampled(capsys, "run", "--start", "abcdefghij").out


def test_a_greedy_translation_respects_the_repetition_settings(trained, capsys):
    greedy, varied, twice = (
        sampled(capsys, "run", "--start=abcdefghij", "--greedy", *more).out
        for more in ([], ["--no_repeat_ngram_size=1"], ["--num_samples=2"])
    )
    assert (twice, len(set(varied))) == (greedy * 2, len(varied))
