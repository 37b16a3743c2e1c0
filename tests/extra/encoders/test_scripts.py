"""train.py, sample.py and the commands of extra/encoders/ from the user's view."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sample
import train
from docs.course import check
from extra.corpora import pictures
from extra.corpora.pictures import Pictures
from extra.encoders.bert import Bert
from extra.encoders.config import BertConfig
from extra.encoders.family import BERT
from extra.encoders.vit import ViT, ViTConfig
from extra.encoders.words import SPECIALS
from extra.tokenizers.labels import LabelTokenizer
from tests.gpt.saved_models import save
from tests.tiny_runs import rows, sampled
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError
from training.checkpoint import load_checkpoint
from training.folder import RunFolder

pytestmark = pytest.mark.usefixtures("workplace")
evaluate = check.load(check.chapters()[17] / "accuracy.py")
pixel_counts = check.load(Path(__file__).parents[3] / "docs/extra/pixel_counts.py")
TINY = "--lr_decay_iters=10 --n_head=2 --n_embd=16 --batch_size=8 --eval_interval=5 --warmup_iters=2".split()
TINY += ["--log_interval=1"]
TEXT = [*TINY, "--n_layer=1", "--block_size=16", "--tokenizer=bpe", "--vocab_size=300"]


def run(*words: str, max_iters: int = 10) -> RunFolder:
    """Train to the end, and return the run's folder, the last word."""
    assert train.main([*words[:-1], f"--max_iters={max_iters}", f"--out_dir={words[-1]}"]) == 0
    return RunFolder(words[-1])


def same_weights(one: str, two: str) -> None:
    """Assert that the last weights of two runs are the same."""
    first, second = (load_checkpoint(RunFolder(name).last).weights for name in (one, two))
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


@pytest.fixture
def table(workplace):
    """A table of texts whose label is told by one word."""
    rng, lines = np.random.default_rng(1), ["text,label"]
    for number in range(80):
        words = [*rng.choice("der Mensch strebt grün Baum süß".split(), 3), "gut" if number % 2 else "schlecht"]
        lines.append(f"{' '.join(words)} {number},{'positive' if number % 2 else 'negative'}")
    Path("table.csv").write_text("\n".join(lines), encoding="utf-8")
    return "--table=table.csv"


@pytest.fixture
def drawn(monkeypatch):
    """Pictures of 4 x 4 pixels, of which one half is bright: above, below, left or right."""

    def make() -> list[Pictures]:
        rng, halves, parts = np.random.default_rng(2), [np.s_[:2], np.s_[2:], np.s_[:, :2], np.s_[:, 2:]], []
        for count in (60, 12, 12):
            labels = rng.integers(0, 4, count).astype(np.uint8)
            pixels = rng.integers(0, 4, (count, 4, 4)).astype(np.uint8)
            for picture, label in zip(pixels, labels, strict=True):
                picture[halves[label]] += 12
            parts.append(Pictures(pixels, labels))
        return parts

    recipe = replace(pictures.RECIPES["digits"], make=make, labels=("above", "below", "left", "right"))
    monkeypatch.setitem(pictures.RECIPES, "digits", recipe)


VIT = ["vit-digits", *TINY, "--n_layer=1", "--shift=0"]
CNN = ["cnn-digits", *TINY[2:], "--n_stage=1"]
IGPT = ["igpt-digits", *TINY, "--n_layer=1", "--block_size=16", "--dropout=0.0"]
WORDS = ["bert-goethe", "--text=text.txt", *TEXT]


# --- what every run does --------------------------------------------------------------------------------------


RESUMED = {"words": [*WORDS, "--dropout=0.1"], "labels": ["classify", "--table=table.csv", *TEXT]}
RESUMED["pictures"] = [*VIT, "--shift=1", "--flip=true"]


@pytest.mark.usefixtures("table", "drawn")
@pytest.mark.parametrize("words", RESUMED.values(), ids=RESUMED)
def test_a_resumed_run_gives_the_same_weights(words):
    run(*words, "whole")
    run(*words, "parts", max_iters=5)
    assert train.main(["--resume", "--out_dir=parts", "--max_iters=10"]) == 0
    same_weights("whole", "parts")


def test_sample_refuses_what_an_encoder_cannot_do(drawn):
    run(*VIT, "pictures", max_iters=0)
    for words, sentence in (
        ([], "give a picture"),
        (["--image", "test:99"], "numbered from test:0 to test:11"),
        (["--image", "test:1", "--beam", "2"], "--beam is for models that write"),
    ):
        with pytest.raises((OptionError, CorpusError), match=sentence):
            sample.main(["pictures", *words])


# --- words ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--next_sentence=true", "--block_size=32"]])
def test_a_run_learns_hidden_words_and_reports_its_accuracy(more, capsys):
    found = rows(run(*WORDS, *more, "--learning_rate=1e-2", "--lr_decay_iters=40", "words", max_iters=40))
    losses = [float(row["val_loss"]) for row in found if row["val_loss"]]
    assert losses[-1] < losses[0] - 0.5
    assert 0 < float(found[-1]["accuracy"]) <= 1
    said = capsys.readouterr()
    assert ("second segments" in said.err) == bool(more)
    assert "[MASK]" in said.out  # guesses in a sentence
    first, *guesses = sampled(capsys, "words", "--start", "Es [MASK] der [MASK]", "--answers", "2").out.splitlines()
    assert first == "Es [MASK] der [MASK]"
    assert [len(re.findall(r"\d%", line)) for line in guesses] == [2, 2]


# --- labels ---------------------------------------------------------------------------------------------------


HEAD = {f"{name}.{kind}" for name in ("pooler", "label_head") for kind in ("weight", "bias")}


def test_a_pretrained_encoder_learns_labels(table, ran):
    run(*WORDS, "words", max_iters=0)
    run("classify", "--init_from=words", table, "--learning_rate=1e-2", *TINY[3:], "labels", max_iters=40)
    before, after = (load_checkpoint(RunFolder(name).last) for name in ("words", "labels"))
    assert (set(after.weights) - set(before.weights), after.model["labels"]) == (HEAD, "negative|positive")
    assert float(rows(RunFolder("labels"))[-1]["accuracy"]) > 0.8
    said = ran(sample.main, "labels", "--start", "der Baum gut 3\nder Baum schlecht 3").out
    assert [line.split("\t")[0] for line in said.splitlines()] == ["positive", "negative"]
    assert "gain, in pairs: +0.0%" in ran(evaluate.main, "labels,labels", "--against", "labels,labels").out


@pytest.mark.parametrize("option", ["--freeze=base", "--lora_rank=2"])
def test_a_frozen_encoder_stays_as_it_is(option, table, capsys):
    """A new head learns in any case; it stands in the checkpoint, and with its base it makes a whole model."""
    run(*WORDS, "words", max_iters=0)
    for folder, steps in (("labels", 10), ("parts", 5)):
        run("classify", "--init_from=words", option, table, TINY[0], *TINY[3:], folder, max_iters=steps)
    assert train.main(["--resume", "--out_dir=parts", "--max_iters=10"]) == 0
    same_weights("labels", "parts")
    before, after = (load_checkpoint(RunFolder(name).last) for name in ("words", "labels"))
    assert {name for name in after.weights if "lora" not in name} == HEAD
    assert not after.tokenizer
    assert np.abs(after.weights["label_head.weight"]).max() > 0
    whole = BERT.read(Path("labels")).weights
    same = [name for name in before.weights.keys() & whole.keys() if (before.weights[name] == whole[name]).all()]
    assert len(before.weights.keys() & whole.keys()) - len(same) == (0 if "freeze" in option else 6)
    for words in (["labels"], ["words/best.safetensors", "--adapter", "labels"]):
        assert "negative" in sampled(capsys, *words, "--start", "der Baum gut 3").out


def test_labels_of_pairs_of_texts(workplace, capsys):
    rows_ = ["sentence1,sentence2,label"]
    for number in range(80):
        rows_.append(f"der Baum {number},grün {'gut,positive' if number % 2 else 'schlecht,negative'}")
    (workplace / "pairs.csv").write_text("\n".join(rows_), encoding="utf-8")
    settings = ["classify", "--table=pairs.csv", *TEXT]
    run(*settings, "--block_size=32", "--learning_rate=1e-2", "pairs", max_iters=40)
    assert float(rows(RunFolder("pairs"))[-1]["accuracy"]) > 0.8
    said = sampled(capsys, "pairs", "--start", "der Baum 3 ||| grün gut\nder Baum 3\tgrün schlecht").out
    assert [line.split("\t")[0] for line in said.splitlines()] == ["positive", "negative"]
    with pytest.raises(OptionError, match=r"into 3 texts, but the model reads a text or a pair of texts"):
        sample.main(["pairs", "--start", "a ||| b ||| c"])
    Path("bars.csv").write_text("text,label\n" + "".join(f"text {n},{'ab'[n % 2]}|c\n" for n in range(20)))
    with pytest.raises(CorpusError, match=r"the label 'a\|c' in bars has the mark \|: rename it"):
        run(*settings, "--table=bars.csv", "bars")
    with pytest.raises(CorpusError, match="pairs has pairs of texts, which need a model with two segments"):
        run(*settings, "--block_size=32", "--segments=1", "one")


# --- pictures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["vit", "cnn"])
def test_pictures_are_learned_and_looked_at(kind, drawn, capsys):
    folder = run(*(VIT if kind == "vit" else CNN), "--learning_rate=1e-2", "pictures", max_iters=60)
    assert float(rows(folder)[-1]["accuracy"]) > 0.9
    said = sampled(capsys, "pictures", "--image", "test:1")
    label = re.search("picture 1 of the test of digits: (.*)", said.err)[1]
    assert said.out.splitlines()[0].split()[1:] == [label]
    assert ("  |  " in said.err) == (kind == "vit")  # the rollout beside the picture
    assert evaluate.main(["pictures"]) == 0


# --- checkpoints from anyone ----------------------------------------------------------------------------------

BYTES = ByteTokenizer(SPECIALS)
IDS = {name.strip("[]").lower(): BYTES.specials[name] for name in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")}
TINY_BERT = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 32, **IDS}
TINY_VIT = {"image_size": 4, "patch_size": 2, "n_layer": 1, "n_head": 2, "n_embd": 16}
FORGED = {
    "bert": (Bert(BertConfig(BYTES.vocab_size, **TINY_BERT)), BYTES, ["--start=a [MASK]", "--similar=text.txt"]),
    "vit": (ViT(ViTConfig(4, **TINY_VIT)), LabelTokenizer(["a", "b", "c", "d"]), ["--image=test:1"]),
}


@pytest.mark.parametrize("family", FORGED)
def test_a_model_that_computes_no_numbers_says_so(family, drawn, capsys):
    model, tokenizer, words = FORGED[family]
    weights = {name: np.full_like(array, 1e38) for name, array in model.state_dict().items()}
    path = str(save(Path("forged.safetensors"), family, model, weights, tokenizer, 0, dataset="digits"))
    for given in words[:1], words, [words[0], "--explain=page.html"]:
        with pytest.raises(CheckpointError, match="the model computes NaN or infinity: its training diverged"):
            sample.main([path, *given])
    assert capsys.readouterr().out == ""
    assert not Path("page.html").exists()


# --- pixels ---------------------------------------------------------------------------------------------------


def test_a_gpt_learns_pixels_and_completes_pictures(drawn, capsys):
    folder = run(*IGPT, "--learning_rate=1e-2", "igpt", max_iters=60)
    bits = [float(row["bits_per_char"]) for row in rows(folder) if row["val_loss"]]
    assert bits[-1] < bits[0] - 0.5
    drawn_rows = sampled(capsys, *"igpt --image test:1 --keep_rows 2 --num_samples 3".split()).out.split("\n\n")
    assert len(drawn_rows) == 3
    assert len({tuple(one.strip("\n").split("\n")[:2]) for one in drawn_rows}) == 1  # what is kept
    assert pixel_counts.main(["digits"]) == 0
    with pytest.raises(OptionError, match="keep at most 3"):
        sample.main(["igpt", "--image", "test:1", "--keep_rows", "4"])
