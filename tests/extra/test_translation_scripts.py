"""Translation models with what the shelf adds: recurrent layers, conversations, pages, plots, adapters and scores."""

from pathlib import Path

import pytest

import train
from extra.studies import scores as evaluate
from tests import test_translation_scripts as core
from tests.test_translation_scripts import arguments
from tests.tiny_runs import sampled

pytestmark = [pytest.mark.usefixtures("workplace"), pytest.mark.every_device]
long_trained, trained = core.long_trained, core.trained  # fixtures
LUONG = {"mixer": "lstm", "attend": "predictive", "attention_reach": 4, "input_feeding": True, "n_head": None}


def test_a_model_of_recurrent_layers_is_explained_profiled_and_adapted(capsys):
    settings = core.assert_learns_resumes_and_translates(LUONG, "adamw", 30, capsys)
    assert "wrote page.html" in sampled(capsys, "whole", "--start=abcdefghij", "--explain=page.html").err
    assert train.main([*arguments(**settings), "--profile"]) == 0
    more = ["--dataset=reverse", "--lora_rank=2", "--max_iters=4", "--out_dir=adapted", "--toy_size=300"]
    assert train.main(["--init_from=whole", *more]) == 0
    ways = (["adapted"], ["whole", "--adapter=adapted"])
    assert len({sampled(capsys, *words, "--start=abc").out for words in ways}) == 1


def test_quantized_weights_translate(trained, capsys):
    translation = sampled(capsys, "run", "--start=abcdefghij", "--quantize=int8", "--device=cpu").out
    assert len(translation.splitlines()) == 1


def test_a_conversation_gives_the_translations_of_its_lines(trained, capsys, typed):
    lines = ["abcdefghij", "zyx", "qqq"]
    typed("".join(f"{line}\n" for line in lines))
    talk = sampled(capsys, "run", "--interactive").out
    assert talk == "".join(sampled(capsys, "run", "--start", line).out for line in lines)


def test_the_attention_is_plotted(trained, capsys, matplotlib):
    for name in ("plot.svg", "plot.png"):
        assert f"wrote {name}" in sampled(capsys, "run", "--start", "abc", "--beam", "2", "--attention", name).err
    picture = Path("plot.svg").read_text(encoding="utf-8")
    for words in ("layer 1, head 2", ">a<", ">b<", "&lt;eos&gt;"):
        assert words in picture


# --- scoring --------------------------------------------------------------------------------------------------


def test_a_run_is_scored_on_its_held_out_pairs(trained, ran, sacrebleu):
    out, err = ran(evaluate.main, "run", "--out", "written.txt", "--beam", 2)
    assert "30 texts in" in err
    assert out.startswith("exactly right: ")
    assert "no BLEU: it counts four words in a row" in out  # a word is reversed here
    assert "chrF2 = " in out
    assert out.count("signature nrefs:1|bs:1000|seed:12345|case:mixed") == 1
    assert len(Path("written.txt").read_text(encoding="utf-8").splitlines()) == 30


def test_other_pairs_can_be_scored(trained, ran, sacrebleu):
    Path("pairs.tsv").write_text("cba\tabc\nzyx\txyz\n\t\nx\t\n", encoding="utf-8")
    Path("a").write_text("abc\nxyz\n", encoding="utf-8")
    Path("b").write_text("cba\nzyx\n", encoding="utf-8")
    first, second = (
        ran(evaluate.main, "run", *words, "--beam", 1).out
        for words in (["--pairs", "pairs.tsv", "--swap"], ["--src", "a", "--tgt", "b"])
    )
    assert first == second
    assert "1 text in" in ran(evaluate.main, "run", "--pairs", "pairs.tsv", "--max_pairs", 1).err


def test_length_penalties_are_compared(trained, ran, sacrebleu):
    """A row for each, in ascending order, with the score that a run with this penalty alone prints."""
    Path("pairs.tsv").write_text("abc def ghi jkl\tlkj ihg fed cba\nab\tba\n", encoding="utf-8")
    words = ("run", "--pairs", "pairs.tsv", "--beam", 2)
    _, *lines, best = ran(evaluate.main, *words, "--compare", "10, 0,0.6").out.splitlines()
    table = [[float(number) for number in line.split()] for line in lines]
    assert [row[0] for row in table] == [0, 0.6, 10]
    top = max(table, key=lambda row: row[1])
    assert best == f"best BLEU with --length_penalty {top[0]:g}"
    for penalty, _, _, brevity, ratio in table:
        said = ran(evaluate.main, *words, "--length_penalty", penalty).out
        assert f"(BP = {brevity:.3f} ratio = {ratio:.3f} " in said
