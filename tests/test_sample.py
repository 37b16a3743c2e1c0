"""sample.py: finds the right checkpoint, continues any prompt, and refuses invalid input in one sentence.

Also stop strings, probabilities and scores.
"""

import re
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sample
from gpt import sample as speaking
from gpt.model import GPT
from gpt.options import GPTOptions
from gpt.task import TextTask
from tests.gpt.configs import GPTConfig, load_trained
from tests.gpt.saved_models import padded
from tests.tiny_runs import made_up_text, rows, run_training, sampled
from text.decoding.probabilities import legend
from text.decoding.sample_options import SampleOptions, check_beam
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.errors import CheckpointError, OptionError, UserError
from tinygrad_lite.functional import registry
from training.checkpoint import load_checkpoint, save_checkpoint
from training.cli.command_line import FIRST_PAGE, split_command_line
from training.cli.console import quoted
from training.folder import RunFolder

pytestmark = pytest.mark.every_device

BEST = "out/goethe/best.safetensors"
TABLE = "position_embedding.weight"
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def written(capsys, *arguments: object) -> str:
    """The output of sample.py on stdout."""
    return sampled(capsys, *arguments).out


# --- options --------------------------------------------------------------------------------------------------------


OPTIONS = {  # of sample.py: the default, the smallest and the largest value
    **{"temperature": (0.8, 0.0, None), "top_k": (200, 0, None), "top_p": (1.0, None, 1.0), "min_p": (0.0, 0.0, 1.0)},
    **{"repetition_penalty": (1.0, None, 100.0), "no_repeat_ngram_size": (0, 0, None), "seed": (1337, 0, None)},
    **{"start": ("\n", None, None), "max_new_tokens": (500, 0, 10_000_000), "num_samples": (1, 1, 1_000_000)},
    **{
        "beam": (0, 0, 1000),
        "length_penalty": (None, 0.0, 10.0),
        "n_best": (1, 1, None),
        "device": ("cpu", None, None),
    },
    **{"show_probs": (False, None, None), "greedy": (False, None, None), "use_cache": (True, None, None)},
}


def test_the_options_have_these_defaults_and_limits():
    found = {field.name: (field.default, field.metadata["bounds"]) for field in fields(SampleOptions)}
    read = {name: (default, bounds["at least"], bounds["at most"]) for name, (default, bounds) in found.items()}
    assert {name: read[name] for name in OPTIONS} == OPTIONS
    assert [field.name for field in fields(SampleOptions) if field.metadata["is_path"]] == ["score", "out_dir"]


# --- output -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [5, 30])  # the context holds 8 tokens
def test_greedy_equals_temperature_0_and_a_beam_of_1_and_needs_no_cache(trained, capsys, length):
    common = ("--start", "Grau", "--max_new_tokens", length)
    ways = (["--greedy"], ["--temperature=0"], ["--beam=1"], ["--greedy", "--use_cache=False"])
    assert len({written(capsys, *common, *way) for way in ways}) == 1


def test_several_samples_differ_and_the_first_equals_a_single_one(trained, capsys):
    common = ("--start", "Grau", "--max_new_tokens", 25)
    three, said = sampled(capsys, *common, "--num_samples", 3)
    assert re.findall("---.*", said) == [f"--- sample {number} of 3" for number in (1, 2, 3)]
    texts = ["Grau" + part for part in three.split("Grau")[1:]]
    assert (len(texts), len(set(texts))) == (3, 3)
    for count in (1, 2):
        two, said = sampled(capsys, *common, "--num_samples", count)
        assert (two, "---" in said) == ("".join(texts[:count]), count > 1)


def test_a_beam_shows_texts_with_consistent_scores(trained, capsys):
    words = "--start Grau --beam 3 --n_best 3 --max_new_tokens 9".split()  # the length penalty is 0.6
    out, err = sampled(capsys, *words)
    assert out.count("Grau") >= 3
    found = re.findall(r"--- (\d): log-prob (-\S+) nats, length (\d+) tokens, score (-\S+) \(", err)
    assert [(number, length) for number, _, length, _ in found] == [("1", "9"), ("2", "9"), ("3", "9")]
    scores = [float(score) for *_, score in found]
    assert scores == sorted(scores, reverse=True)
    right = [float(log_prob) / ((5 + 9) / 6) ** 0.6 for _, log_prob, *_ in found]
    assert scores == pytest.approx(right, abs=1e-3)


def test_an_end_that_only_begins_a_stop_string_is_written(trained, capsys):
    words = "--start Grau --greedy --max_new_tokens 20".split()
    text = written(capsys, *words)
    assert written(capsys, *words, "--stop", text.rstrip("\n")[-2:] + "§") == text


# --- prompts ------------------------------------------------------------------------------------------------------


def test_unknown_characters_are_named_once_twenty_at_most_and_a_text_follows(trained, capsys):
    out, err = sampled(capsys, "--start", "Grau €α€", "--max_new_tokens", "10")
    assert out.startswith("Grau €α€")
    assert err.count("warning") == 1
    assert "'€'" in err
    assert "'α'" in err
    err = sampled(capsys, "--start", "".join(map(chr, range(0x4E00, 0x4E64))), "--max_new_tokens", "1").err
    assert err.count("'") == 2 * 20
    assert "...; it reads them as unknown" in err


@pytest.mark.parametrize("prompt", ["", "Was du ererbt von deinen Vätern hast"])  # which fills the context
def test_an_empty_prompt_and_a_long_one_are_continued(prompt, trained, capsys):
    text = written(capsys, "--start", prompt, "--max_new_tokens", 10)
    assert (text[: len(prompt)], len(text)) == (prompt, len(prompt) + 10 + 1)


def test_without_a_prompt_there_is_no_warning_about_it(workplace, capsys):
    """The default prompt, a line break, is unknown to a model of a one-line text; only a given prompt is checked."""
    (workplace / "line.txt").write_text(made_up_text().replace("\n", " "), encoding="utf-8")
    run_training(text="line.txt", max_iters=1, out_dir="out/line")
    for words, warned in (((), False), (("--start", "\n"), True)):
        said = sampled(capsys, "--max_new_tokens", "3", *words).err
        assert ("warning: the model never saw" in said) is warned


class FillsUp(GPT):
    """A model that finds the tokens that only pad its vocabulary far more probable than all others."""

    def start(self, prompts, use_cache=True):
        log_probs, state = super().start(prompts, use_cache)
        return log_probs + 30 * (np.arange(256 + 7) >= 256), state

    def step(self, tokens, state):
        log_probs, state = super().step(tokens, state)
        return log_probs + 30 * (np.arange(256 + 7) >= 256), state


def test_tokens_that_only_pad_a_vocabulary_are_never_generated(capsys, monkeypatch):
    tokenizer, model = padded(ByteTokenizer()), FillsUp(GPTConfig(256 + 7, block_size=8, n_layer=1, n_head=1, n_embd=4))
    assert tokenizer.textless == tuple(range(256, 256 + 7))
    ids = speaking.show_samples(SampleOptions(max_new_tokens=20), model, tokenizer, "", [0])
    assert (ids[0], len(ids)) == (0, 21)
    out = capsys.readouterr().out
    assert len(out.encode("utf-8")) > 20
    pieces = speaking.write_continuation(SampleOptions(max_new_tokens=20), model, tokenizer, [0], 0)
    assert "".join(pieces) + "\n" == out == capsys.readouterr().out
    assert speaking.show_beam(SampleOptions(max_new_tokens=5, beam=2), model, tokenizer, "", [0])[0] == 0
    assert len(capsys.readouterr().out.encode("utf-8")) > 5  # a byte that is no character is shown by three
    task = TextTask.__new__(TextTask)
    task.tokenizer, task.options = tokenizer, GPTOptions.of(sample_tokens=50)
    assert task.sample(model)


# --- which checkpoint ---------------------------------------------------------------------------------------------


def test_a_word_that_is_not_a_checkpoint_gets_a_suggestion(trained):
    for named, meant in (
        ("Habe nun", f"--start {quoted('Habe nun')}"),
        ("x" * 1000, f"--start {'x' * 1000}"),
        ("goethe", str(Path("out/goethe"))),
    ):
        with pytest.raises(CheckpointError) as refused:
            sample.main([named])
        sentence = f"there is no checkpoint {named}; did you mean: python sample.py {meant}"
        assert str(refused.value) == sentence


def test_the_newest_checkpoint_is_used_unless_one_is_named(trained, capsys):
    run_training(max_iters=2, seed=5, out_dir="out/other")
    named = {"goethe": ([BEST], ["out/goethe"], ["--out_dir", "out/goethe"]), "other": ([],)}
    for name, ways in named.items():
        for words in ways:
            assert str(Path("out", name)) in sampled(capsys, *words, "--max_new_tokens", "1").err
    with pytest.raises(OptionError, match="name only one of them"):
        sample.main([BEST, "--out_dir", "out/other"])


BROKEN = [
    (lambda it: it.weights.update({TABLE: it.weights[TABLE].T.copy()}), f"mis-shaped: {TABLE}"),
    (lambda it: it.model.update(n_embd=10**9), "cannot be|parameters, but the weights have"),
    (lambda it: setattr(it, "family", "rnn"), "'rnn', not 'gpt'"),
]


@pytest.mark.parametrize(("break_it", "reason"), BROKEN)
def test_a_broken_checkpoint_is_refused_with_the_reason(trained, break_it, reason):
    checkpoint = load_checkpoint(Path(BEST))
    break_it(checkpoint)
    save_checkpoint(Path("broken.safetensors"), checkpoint)
    with pytest.raises(CheckpointError, match=reason):
        sample.main(["broken.safetensors"])


# --- options ------------------------------------------------------------------------------------------------------


OUT_OF_RANGE = "temperature=-1 temperature=inf top_k=-1 top_p=0 top_p=1.1 min_p=1.5 repetition_penalty=0".split()
OUT_OF_RANGE += "no_repeat_ngram_size=-1 max_new_tokens=-1 max_new_tokens=1e300 num_samples=0 seed=-1 beam=-1".split()
OUT_OF_RANGE += "num_samples=1000001 beam=1001 n_best=2 length_penalty=1 temprature=1 device=tpu stop= stop".split()


@pytest.mark.parametrize("setting", OUT_OF_RANGE)
def test_a_setting_out_of_range_ends_with_one_sentence(workplace, setting):
    with pytest.raises(UserError, match=setting.split("=")[0][:4]) as refused:
        sample.main([f"--{setting}"])
    assert "\n" not in str(refused.value)


def test_the_help_begins_with_the_most_used_options(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        sample.main(["--help"])
    page = capsys.readouterr().out
    assert len(page.splitlines()) <= FIRST_PAGE
    marks = ["examples:", "  python sample.py", "  checkpoint ", "  --start TEXT", "  --max_new_tokens INT"]
    assert [page.index(mark) for mark in marks] == sorted(page.index(mark) for mark in marks)
    for command in SampleOptions.EXAMPLES:
        assert any(split_command_line(shlex.split(command)[2:], SampleOptions))


# --- more about prompts, processes and files ----------------------------------------------------------------------


def test_sampling_changes_no_file_and_needs_no_text(trained, capsys):
    (trained / "text.txt").unlink()
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    written(capsys, "--max_new_tokens", 3)
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


@pytest.mark.cpu_only("calls of the CPU's version are counted")
def test_a_model_trained_with_reference_versions_is_sampled_with_them(tmp_path, capsys, monkeypatch):
    """A reader may have changed one of them: then no fused version, nor the fast step, computes the model."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(made_up_text(), encoding="utf-8")
    monkeypatch.setattr(registry, "_composed_only", False)  # as it is again after the test
    run = run_training(max_iters=2, composed=True)
    registry.set_composed(False)
    attention, calls = registry.REGISTRY["scaled_dot_product_attention"], []
    whole = attention.composed
    monkeypatch.setattr(attention, "composed", lambda *args, **more: calls.append(1) or whole(*args, **more))
    assert sample.main([str(run.best), "--start", "der", "--max_new_tokens", "3"]) == 0
    assert len(calls) == 3 * load_checkpoint(run.best).model["n_layer"]
    assert "trained with the reference versions of all operations (--composed); they" in capsys.readouterr().err
    registry.set_composed(False)
    load_trained(run.best).make_model()  # as the studies do
    assert registry.is_composed()


# --- sampling -----------------------------------------------------------------------------------------------------


def test_the_settings_reach_the_sampler(trained, capsys):
    common = ("--start", "Grau", "--max_new_tokens", 60)
    greedy, _ = sampled(capsys, *common, "--greedy")
    assert sampled(capsys, *common, "--min_p", 1)[0] == greedy
    text, _ = sampled(capsys, *common, "--greedy", "--no_repeat_ngram_size", 3)
    grams = [text.strip()[i : i + 3] for i in range(len(text.strip()) - 2)]
    assert len(set(grams)) == len(grams)
    assert text != greedy
    varied, _ = sampled(capsys, *common, "--greedy", "--repetition_penalty", 5)
    assert len(set(varied)) > len(set(greedy))


def test_repetition_rules_consider_only_the_part_of_the_prompt_in_the_context(trained, capsys):
    """The context holds 8 tokens."""
    rules = ("--greedy", "--no_repeat_ngram_size", 1, "--max_new_tokens", 5)
    short, _ = sampled(capsys, "--start", "r Mensch", *rules)
    assert sampled(capsys, "--start", "Es irrt der Mensch", *rules)[0] == "Es irrt de" + short


def test_a_beam_that_would_fill_the_memory_is_refused(trained, monkeypatch):
    monkeypatch.setattr("text.decoding.sample_options.MAX_BEAM_MEMORY", 2**-10)
    with pytest.raises(OptionError, match=r"--beam 900: .* would take 0\.0 GiB .* a smaller beam"):
        sample.main(["--beam", "900"])


def test_a_beam_may_take_4_gib():
    """2 layers with 2**21 numbers each, of 4 bytes, which are copied: 2**25 bytes, or 1/32 GiB, for a hypothesis."""
    config = SimpleNamespace(n_layer=2, cached_numbers=2**21)
    check_beam(SampleOptions(beam=128), config)
    with pytest.raises(OptionError, match=r"would take 4\.0 GiB of memory, more than the 4 GiB allowed"):
        check_beam(SampleOptions(beam=129), config)


# --- stop strings -------------------------------------------------------------------------------------------------


def test_a_text_ends_before_the_first_stop_string(trained, capsys):
    common = ("--start", "Grau", "--max_new_tokens", 80, "--temperature", 1.5)
    text, _ = sampled(capsys, *common)
    body = text.removeprefix("Grau").removesuffix("\n")
    stop = body[30:33]  # three tokens
    assert sampled(capsys, *common, "--stop", stop, "€€")[0] == "Grau" + body[: body.index(stop)] + "\n"
    assert sampled(capsys, *common, "--stop", "€€")[0] == text


def test_the_prompt_does_not_stop_the_text_and_a_stop_string_can_be_a_line_break(trained, capsys):
    text, _ = sampled(capsys, "--start", "ab", "--max_new_tokens", 9, "--stop", "ab")
    assert len(text) > 4
    sample.main(["--start", "strebt.", "--max_new_tokens", "300", "--stop", r"\n"])
    assert capsys.readouterr().out.count("\n") == 1


# --- probabilities ------------------------------------------------------------------------------------------------


COMMON = ("--start", "Grau", "--max_new_tokens", 20)


def test_without_a_terminal_show_probs_changes_nothing(trained, capsys):
    plain, said = sampled(capsys, *COMMON)
    out, err = sampled(capsys, *COMMON, "--show_probs")
    assert (out, "--show_probs" in said, "probability" in err) == (plain, False, False)
    assert "--show_probs does nothing here" in err
    assert "entropy" not in err


@pytest.mark.parametrize("stop", [(), ("--stop", "e")])
def test_on_a_terminal_tokens_are_coloured_and_entropies_are_listed(trained, capsys, monkeypatch, stop):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    plain, said = sampled(capsys, *COMMON, *stop)
    out, err = sampled(capsys, *COMMON, *stop, "--show_probs")
    assert (ESCAPES.sub("", out), legend(False) in said, legend(False) in err) == (plain, False, True)
    assert out.startswith("Grau\x1b[")
    lines = err[err.index("position") :].splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [str(i + 1) for i in range(len(lines) - 2)]
    assert (len(lines) - 2 < 20) == bool(stop)
    assert lines[-1].startswith("mean entropy")


# --- scores -------------------------------------------------------------------------------------------------------


def test_the_score_of_the_held_out_text_equals_that_of_training(trained, capsys):
    text = made_up_text()
    (trained / "held.txt").write_text(text[round(len(text) * 0.9) :], encoding="utf-8")
    out, err = sampled(capsys, "out/goethe/last.safetensors", "--score", "held.txt")
    bits, nats = map(float, re.fullmatch(r"(\S+) bits per character, (\S+) nats per token\n", out).groups())
    noted = [row for row in rows(RunFolder("out/goethe")) if row["val_loss"]][-1]
    assert nats == pytest.approx(float(noted["val_loss"]), abs=1e-4)
    assert bits == pytest.approx(float(noted["bits_per_char"]), abs=1e-4)
    assert "in windows of 8" in err


def test_unknown_characters_are_named(trained, capsys):
    (trained / "odd.txt").write_text("Grün €α€", encoding="utf-8")
    _, err = sampled(capsys, "--score", "odd.txt")
    assert "never saw 'α' '€';" in err
