"""sample.py beyond plain generation: stop strings, probabilities, conversations, scores, contradictory options."""

import re
import sys

import pytest

import sample
from tests.tiny_runs import made_up_text, rows, sampled
from tinygrad_lite.errors import OptionError
from training.folder import RunFolder

pytestmark = pytest.mark.every_device

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


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
    plain, _ = sampled(capsys, *COMMON)
    out, err = sampled(capsys, *COMMON, "--show_probs")
    assert out == plain
    assert "--show_probs does nothing here" in err
    assert "entropy" not in err


@pytest.mark.parametrize("stop", [(), ("--stop", "e")])
def test_on_a_terminal_tokens_are_coloured_and_entropies_are_listed(trained, capsys, monkeypatch, stop):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    plain, _ = sampled(capsys, *COMMON, *stop)
    out, err = sampled(capsys, *COMMON, *stop, "--show_probs")
    assert ESCAPES.sub("", out) == plain
    assert out.startswith("Grau\x1b[")
    lines = err[err.index("position") :].splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [str(i + 1) for i in range(len(lines) - 2)]
    assert len(lines) - 2 == 20 or stop
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
