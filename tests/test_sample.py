"""sample.py: texts, beams, stop strings, probabilities and scores; invalid input is refused in one sentence."""

import re
import sys
from pathlib import Path

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
from text.decoding.sample_options import SampleOptions
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.functional import registry
from training.checkpoint import load_checkpoint
from training.folder import RunFolder

pytestmark = pytest.mark.every_device

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def written(capsys, *arguments: object) -> str:
    """The output of sample.py on stdout."""
    return sampled(capsys, *arguments).out


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
    one, said = sampled(capsys, *common)
    assert (one, "---" in said) == (texts[0], False)


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


# --- prompts ------------------------------------------------------------------------------------------------------


def test_unknown_characters_are_named_once_twenty_at_most_and_a_text_follows(trained, capsys):
    out, err = sampled(capsys, "--start", "Grau €α€", "--max_new_tokens", "10")
    assert out.startswith("Grau €α€")
    assert (err.count("warning"), err.count("'€'"), err.count("'α'")) == (1, 1, 1)
    err = sampled(capsys, "--start", "".join(map(chr, range(0x4E00, 0x4E64))), "--max_new_tokens", "1").err
    assert err.count("'") == 2 * 20


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
    ids = speaking.show_samples(SampleOptions(max_new_tokens=20), model, tokenizer, "", [0])
    assert (ids[0], len(ids)) == (0, 21)
    out = capsys.readouterr().out
    pieces = speaking.write_continuation(SampleOptions(max_new_tokens=20), model, tokenizer, [0], 0)
    assert "".join(pieces) + "\n" == out == capsys.readouterr().out
    assert speaking.show_beam(SampleOptions(max_new_tokens=5, beam=2), model, tokenizer, "", [0])[0] == 0
    task = TextTask.__new__(TextTask)
    task.tokenizer, task.options = tokenizer, GPTOptions.of(sample_tokens=50)
    assert task.sample(model)


# --- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", "temperature=inf top_p=1.1 num_samples=0 n_best=2 length_penalty=1 stop=".split())
def test_a_setting_out_of_range_ends_with_one_sentence(workplace, setting):
    with pytest.raises(UserError, match=setting.split("=")[0][:4]) as refused:
        sample.main([f"--{setting}"])
    assert "\n" not in str(refused.value)


# --- more about prompts, processes and files ----------------------------------------------------------------------


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
    registry.set_composed(False)
    load_trained(run.best).make_model()  # as the studies do
    assert registry.is_composed()


# --- sampling -----------------------------------------------------------------------------------------------------


def test_the_settings_reach_the_sampler(trained, capsys):
    common = ("--start", "Grau", "--max_new_tokens", 60)
    greedy = written(capsys, *common, "--greedy")
    assert written(capsys, *common, "--min_p", 1) == written(capsys, *common, "--top_k", 1) == greedy
    text = written(capsys, *common, "--greedy", "--no_repeat_ngram_size", 3).strip()
    assert len({text[i : i + 3] for i in range(len(text) - 2)}) == len(text) - 2
    assert len(set(written(capsys, *common, "--greedy", "--repetition_penalty", 5))) > len(set(greedy))


def test_repetition_rules_consider_only_the_part_of_the_prompt_in_the_context(trained, capsys):
    """The context holds 8 tokens."""
    rules = ("--greedy", "--no_repeat_ngram_size", 1, "--max_new_tokens", 5)
    short, _ = sampled(capsys, "--start", "r Mensch", *rules)
    assert sampled(capsys, "--start", "Es irrt der Mensch", *rules)[0] == "Es irrt de" + short


def test_sampling_changes_no_file_and_needs_no_text(trained, capsys):
    (trained / "text.txt").unlink()
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    written(capsys, "--max_new_tokens", 3)
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


def test_a_beam_that_would_fill_the_memory_is_refused(trained, monkeypatch):
    monkeypatch.setattr("text.decoding.sample_options.MAX_BEAM_MEMORY", 2**-10)
    with pytest.raises(OptionError, match=r"--beam 900: .* would take 0\.0 GiB .* a smaller beam"):
        sample.main(["--beam", "900"])


# --- stop strings -------------------------------------------------------------------------------------------------


def test_a_text_ends_before_the_first_stop_string_that_follows_the_prompt(trained, capsys):
    common = ("--start", "Grau", "--max_new_tokens", 80, "--temperature", 1.5)
    text = written(capsys, *common)
    body = text.removeprefix("Grau").removesuffix("\n")
    stop = body[30:33]  # three tokens
    assert written(capsys, *common, "--stop", stop, "€€") == "Grau" + body[: body.index(stop)] + "\n"
    assert written(capsys, *common, "--stop", "Grau") == text
    assert written(capsys, "--start", "strebt.", "--max_new_tokens", 300, "--stop", r"\n").count("\n") == 1


# --- probabilities ------------------------------------------------------------------------------------------------


COMMON = ("--start", "Grau", "--max_new_tokens", 20)


def test_without_a_terminal_show_probs_changes_nothing(trained, capsys):
    plain, said = sampled(capsys, *COMMON)
    out, err = sampled(capsys, *COMMON, "--show_probs")
    assert (out, "--show_probs" in said, "--show_probs does nothing here" in err) == (plain, False, True)


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
