"""Documents between marks: what is learned and held out, what counts, and a run from training to its page."""

import math
from pathlib import Path

import numpy as np
import pytest

import sample
import train
from docs.course import check
from extra.families import GPT
from extra.gpt.options import GPTOptions
from extra.pairs.answering import MARK, prompt_of
from extra.pairs.documents import DocumentTask
from extra.pairs.pairs import IGNORED
from gpt.score import token_log_probs
from tests.extra.explorer.test_gpt import explained
from tests.tiny_runs import ROOT, arguments, assert_resumes
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import CorpusError, OptionError
from training.processes.processes import OneProcess

invented = check.load(ROOT / "docs/extra/invented.py")
NAMES = "\n".join(f"{a}{b}{c}" for a in "ABCD" for b in ("nn", "l") for c in "aeiou")
TEXTS = [  # a text, what ends a document, and the documents
    (f"\ufeff{NAMES}\n".replace("\n", "\r\n"), "line", NAMES.split()),
    (f"  {NAMES}".replace("\n", " \n\n \t\n"), "line", NAMES.split()),
    (f"{NAMES}\n".replace("\n", "\nund\n\n \n\n"), "blank", [f"{name}\nund" for name in NAMES.split()]),
]
FEW = [(NAMES, "blank", "has 1 document, too few"), ("A\n" * 50, "line", "has 50 documents, too few")]


@pytest.fixture
def task(workplace) -> DocumentTask:
    return task_of(NAMES)


def task_of(text: str, ended_by: str = "line", **options) -> DocumentTask:
    Path("names.txt").write_bytes(text.encode())
    small = {"block_size": 16, "batch_size": 2, "n_layer": 1, "n_head": 1, "n_embd": 8} | options
    return DocumentTask(GPTOptions.of(text=["names.txt"], documents=ended_by, **small))


@pytest.mark.parametrize(("text", "ended_by", "documents"), TEXTS)
def test_whole_documents_are_learned_or_held_out_once(workplace, text, ended_by, documents):
    corpus = task_of(text, ended_by).corpus
    found = [[text for _, text in part] for part in (corpus.train, corpus.held_out)]
    assert sorted(found[0] + found[1]) == sorted(documents)
    assert len(found[1]) == len(documents) // 10
    assert {*found[1]} == {text for _, text in task_of("\n\n".join(documents[::-1]), "blank").corpus.held_out}


@pytest.mark.parametrize(("text", "ended_by", "sentence"), FEW)
def test_too_few_documents_are_refused_with_what_helps(workplace, text, ended_by, sentence):
    advice = f"use at least 10 different ones, or omit --documents {ended_by}"
    with pytest.raises(CorpusError, match=f"{sentence}.*{advice}"):
        task_of(text, ended_by)


def test_a_document_that_occurs_again_is_on_one_side(workplace):
    held_out = task_of(NAMES).corpus.held_out
    again = task_of("\n".join([NAMES, *(text for _, text in held_out)])).corpus
    assert not {*again.train} & {*again.held_out}


def test_a_row_is_a_document_from_the_mark_to_the_mark_and_each_is_learned_once_in_a_pass(task):
    mark, seen = task.tokenizer.specials[MARK], []
    for step in range(task.data.epoch_steps):
        for (ids, targets), _ in task.batches(step):
            for row, following in zip(ids.numpy().tolist(), targets.numpy().tolist(), strict=True):
                learned = [token for token in following if token != IGNORED]
                assert (row[0], row[1 : len(learned)], learned[-1]) == (mark, learned[:-1], mark)
                seen.append(task.tokenizer.decode(learned))
    assert sorted(seen) == sorted(text for _, text in task.corpus.train)


def test_bits_per_character_count_the_ends_and_only_the_characters(task):
    """All nats of the held-out documents, each predicted alone, by their letters."""
    model = GPT.model(task.options.model_config(task.tokenizer.vocab_size)).eval()
    texts, mark = [text for _, text in task.corpus.held_out], task.tokenizer.specials[MARK]
    rows = [np.array([mark, *task.tokenizer.encode(text), mark]) for text in texts]
    nats = -sum(token_log_probs(model, row).sum() for row in rows)
    with no_grad():
        report = task.report(model, train.evaluate(task, model, OneProcess()))
    assert report.measures == {"bits_per_char": pytest.approx(nats / math.log(2) / sum(map(len, texts)), rel=1e-5)}
    assert len(report.text.split("\n")) >= 3


def test_what_is_longer_than_the_context_is_left_out_and_told(workplace):
    text = f"{NAMES}\n{'A' * 17}"
    assert "36 documents to learn from, 4 held out; left out: 1 with more than 16 tokens" in task_of(text).describe()
    advice = "use 4 or more, so that at least one training"
    with pytest.raises(CorpusError, match=f"--block_size 2 is too short .* {advice}"):
        task_of(text, block_size=2)


def test_a_run_from_training_to_its_page(workplace, ran):
    Path("names.txt").write_text(NAMES, encoding="utf-8")
    small = {"text": "names.txt", "documents": "line", "eval_iters": None, "block_size": 16, "sample_tokens": 20}
    assert_resumes(*arguments(**small, out_dir=None), stop=4)
    assert len(ran(sample.main, "run", "--num_samples", 4, "--max_new_tokens", 9).out.splitlines()) == 4
    assert ran(sample.main, "run", "--start", "An", "--max_new_tokens", 9).out.startswith("An")
    trained = GPT.read(Path("run"))
    mark = trained.tokenizer.specials[MARK]
    assert prompt_of(trained, "") == [mark]
    _, data = explained("run", start="An")
    assert data["recording"]["ids"] == [mark, *trained.tokenizer.encode("An")]
    with pytest.raises(OptionError, match="--documents blank: the run in run has line"):
        train.main(["--resume", "--out_dir=run", "--documents=blank"])


def test_the_study_counts_what_is_new_and_what_is_made_of_the_list(workplace, ran):
    Path("list.txt").write_text("anna\nbert\n", encoding="utf-8")
    Path("new.txt").write_text("anna\nanna\nannanna\nbea\n", encoding="utf-8")
    assert ran(invented.main, "new.txt", "--text", "list.txt").out.splitlines() == [
        "2 of 4 are not in the list",
        "2 of 4 have only trigrams of the list",
        "  annanna: nan",
        "  bea: bea ea|",
    ]
