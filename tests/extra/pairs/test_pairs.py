"""A GPT that answers: what is learned of a pair, prompts with a separator, answers that end."""

import functools
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sample
import train
from extra.gpt.options import GPTOptions
from extra.pairs.answering import END, answer, prompt_ids, separator_of
from extra.pairs.pairs import IGNORED, AnswerData, AnswerTask
from extra.studies import scores as evaluate
from gpt.score import token_log_probs
from seq2seq.toys import toy_pairs
from tests.gpt.small_gpts import gradients, small_gpt
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.errors import UserError
from training.pair_data import encode_pairs

TO = "<to-en>"
TOKENIZER = ByteTokenizer((TO, END))
A, B, C, D = (ord(letter) for letter in "abcd")
SEPARATOR, STOP = TOKENIZER.specials[TO], TOKENIZER.specials[END]
small = functools.partial(small_gpt, vocab_size=TOKENIZER.vocab_size, n_layer=1, n_embd=8, block_size=32)


SETTINGS = {"pairs": "n.tsv", "separator": TO, "tokenizer": "byte", "batch_size": 6}


@pytest.fixture
def pairs_file(workplace):
    """A file of pairs, in the folder that the test runs in."""
    lines = (f"{one}\t{other}\n" for one, other in toy_pairs("numbers", 400) if len(one) + len(other) < 24)
    Path("n.tsv").write_text("".join(lines), encoding="utf-8")
    return "n.tsv"


def test_only_the_answer_and_its_end_are_learned():
    pairs = encode_pairs(TOKENIZER, [("ab", "cd"), ("a", "")], TO, END)
    data = AnswerData(TOKENIZER, pairs, pairs, batch_tokens=99, micro_steps=1, seed=1)
    ids, targets = (tensor.numpy().tolist() for tensor in data.batch(pairs))
    assert (ids[0], targets[0]) == ([A, B, SEPARATOR, C, D], [IGNORED, IGNORED, C, D, STOP])
    assert (ids[1][:2], targets[1]) == ([A, SEPARATOR], [IGNORED, STOP, IGNORED, IGNORED, IGNORED])
    assert data.target_tokens(0) == 4
    # Each counted token is predicted from all before it, and padding changes nothing.
    model, nats = small(), []
    for source, target in pairs:
        row = np.array([*source, *target])
        nats += list(-token_log_probs(model, row)[len(source) :])
    assert model.loss(data.batch(pairs)).item() == pytest.approx(np.mean(nats), rel=1e-9)


def test_parts_of_an_update_sum_to_the_gradient_of_the_whole(pairs_file):
    """Accumulated batches, or several processes, though their parts have different numbers of counted tokens."""
    task = AnswerTask(GPTOptions.of(**SETTINGS, block_size=32, gradient_accumulation_steps=3))
    whole = task.data.batch([task.data.train[i] for part in task.data.update(2) for i in part])
    expected = gradients(small(), (whole, 1.0))
    for parts in (task.batches(2), [*task.batches(2, 0, 2), *task.batches(2, 1, 2)]):
        found = gradients(small(), *parts)
        for name, gradient in expected.items():
            np.testing.assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-13)


def test_a_prompt_has_the_separator_as_one_token_whether_it_is_given_or_not():
    for text in ("ab", " ab ", f"ab {TO}", f"ab{TO} "):
        assert prompt_ids(TOKENIZER, text, 64) == [A, B, SEPARATOR]
    assert prompt_ids(TOKENIZER, f"ab {TO} c", 64) == [A, B, SEPARATOR, C]
    assert prompt_ids(TOKENIZER, "a" * 99, 64) == [A] * 31 + [SEPARATOR]  # room for an answer
    assert (separator_of(TOKENIZER), separator_of(ByteTokenizer())) == (TO, "")


@pytest.mark.parametrize("source", [f"ab {TO} c", f"a {END} b"])
def test_a_source_with_the_name_of_a_separator_is_read_as_it_was_learned(source, pairs_file):
    ((learned, target),) = AnswerTask(GPTOptions.of(**SETTINGS, block_size=64)).encode([(source, "x")])
    asked, model = [], small(block_size=64)
    start = model.start
    model.start = lambda prompts, *more: asked.extend(prompts) or start(prompts, *more)
    answer(model, TOKENIZER, [source])
    assert [*asked[0]] == [*learned, *target[:1]]


def test_an_answer_does_not_depend_on_the_others_and_ends():
    model, sources = small(), ["abc", "d", "cab" * 5, "dd"]
    together = answer(model, TOKENIZER, sources, beam=2)
    assert together == [answer(model, TOKENIZER, [source], beam=2)[0] for source in sources]
    bias = np.full(TOKENIZER.vocab_size, -9.0)
    bias[STOP] = 9.0
    model.step = lambda tokens, state: (np.tile(bias, (len(tokens), 1)), state)  # after its first token, it ends
    assert all(len(text.encode()) <= 3 for text in answer(model, TOKENIZER, sources))


def test_a_run_on_pairs_from_training_to_scores(pairs_file, ran, monkeypatch):
    shape = "--n_layer 1 --n_head 2 --n_embd 16 --block_size 32 --batch_size 8 --tokenizer char --eval_pairs 5".split()
    short = "--max_iters 30 --warmup_iters 3 --eval_interval 15 --learning_rate 1e-2 --out_dir run".split()
    said = ran(train.main, "gpt-translate", "--pairs", pairs_file, *shape, *short)
    assert "  == " in said.out  # translations are shown
    for more in [], ["--beam", 2]:
        out, err = ran(sample.main, "run", "--start", "zwei", *more)
        assert out.startswith(f"zwei {TO} ")
        assert ("never saw" in err, out.count("\n")) == (False, 1)
    monkeypatch.setattr(evaluate, "metrics", lambda references: None)
    monkeypatch.setattr(evaluate, "scores_with_confidence", lambda written, targets: [f"{len(written)} scored"])
    monkeypatch.setattr(evaluate, "scores_with_brevity", lambda written, targets: (len(written), "  a row"))
    for more, last in (([], "3 scored"), (["--compare", "1,0"], "best BLEU with --length_penalty 0")):
        said = ran(evaluate.main, "run", "--max_pairs", 3, "--beam", 2, *more)
        assert said.out.splitlines()[-1] == last
    long = ("zwei " * 8, "two")  # does not fit into the context
    corpus = SimpleNamespace(held_out=[long, ("zwei", "two"), long])
    monkeypatch.setattr(evaluate, "load_answers", lambda options: corpus)
    assert ran(evaluate.main, "run").out.splitlines()[-1] == "1 scored"


def test_rouge_of_the_model_stands_beside_that_of_simple_summaries():
    texts = ["a b c d. E f.", "one two three four five six seven eight nine"]
    if importlib.util.find_spec("rouge_score") is None:
        with pytest.raises(UserError, match=r"rouge-score is not installed; for ROUGE: pip install"):
            evaluate.rouge(texts, texts)
        return
    _, model, sentence, words = evaluate.rouge_table(texts, ["a b c d.", "one"], ["a b", "one"])
    assert model.split()[2::3] == ["83.3", "25.0", "83.3"]  # 2 of 4 words, 1 of 3 pairs of words; one word, no pair
    assert (sentence.split()[3::3][0], words.split()[4::3][0]) == ("60.0", "51.1")
