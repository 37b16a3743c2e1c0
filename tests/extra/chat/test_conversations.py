"""Conversations about a small world: what a test asks was not in the training, turns become tokens, and models talk."""

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sample
import train
from docs.course import check
from extra.chat import conversations as world
from extra.chat.chat import question_ids
from extra.gpt.options import GPTOptions
from extra.pairs.answering import END, prompt_ids
from extra.pairs.pairs import IGNORED, AnswerTask
from gpt.model import GPT
from tests.gpt.saved_models import saved_gpt
from tests.gpt.small_gpts import small_gpt
from tests.tiny_runs import ROOT
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.tensor import Tensor
from training.corpora import texts

questions = check.load(ROOT / "docs/extra/questions.py")
ANSWER = "<answer>"
TALKER = ByteTokenizer((ANSWER, END))
FIRST, LAST = TALKER.specials[ANSWER], TALKER.specials[END]
CHAT = {"dataset": "chat", "separator": ANSWER, "tokenizer": "byte", "block_size": 256, "held_out": 4}


@pytest.fixture
def few(monkeypatch):
    """Fewer conversations are made than a training takes."""
    monkeypatch.setattr("extra.pairs.pairs.chat_corpus", functools.partial(world.chat_corpus, count=2000))


def test_an_answer_is_right_if_it_holds_what_is_expected():
    asked = world.Asked("capital", ("hauptstadt von italien?",), "Rom")
    assert questions.is_right(asked, "Die Hauptstadt von Italien ist Rom.", exactly=False)
    assert not questions.is_right(asked, "Die Hauptstadt von Italien ist Paris.", exactly=False)


def test_what_the_tests_ask_was_not_in_the_training():
    """Neither the question, as it stands, nor the sum, the name, the thing, or what is unknown."""
    train_part, templates, combined = (list(world.conversations(part, 3000)) for part in world.PARTS)
    learned = {turn for asked in train_part for turn in asked.turns}
    asked = [one.turns[-1] for one in (*templates, *combined) if one.kind != "whose name"]
    assert not learned & set(asked)

    def sums(part):
        return {one.answer for one in part if one.kind == "sum"}

    learned_sums = {turn for one in train_part for turn in (*one.turns, one.answer) if " plus " in turn}
    assert len(sums(combined)) > 100
    assert not sums(combined) & learned_sums
    for kind in ("name", "thing"):
        assert not set(world.words(kind, "train", "de")) & set(world.words(kind, "test", "de"))
    for kind in world.FACTS:
        learned_facts = world.facts(kind, "known", "en") + world.facts(kind, "unknown", "en")
        assert not {x for x, _ in world.facts(kind, "unknown test", "en")} & {x for x, _ in learned_facts}
    assert not {one for row in world.table("by_hand") for one in row} & learned


def test_the_conversations_are_always_the_same_and_all_different():
    corpus = world.chat_corpus(count=200, held_out=40)
    assert corpus == world.chat_corpus(count=200, held_out=40)
    assert (len({source for source, _ in corpus.train}), len(corpus.held_out)) == (200, 40)
    told = next(source for source, target in corpus.train if target.startswith(("Du heißt", "Your name is")))
    assert len(told.split("\n")) == 3


def test_of_a_conversation_only_the_last_answer_is_learned(few):
    task = AnswerTask(GPTOptions.of(**CHAT))
    (pair,) = task.encode([("ab\ncd\ne", "f")])
    assert pair == ([*b"ab", FIRST, *b"cd", LAST, *b"e"], [FIRST, *b"f", LAST])
    ids, targets = (tensor.numpy().tolist() for tensor in task.data.batch([pair]))
    assert (ids[0][-1], targets[0]) == (ord("f"), [IGNORED] * 7 + [ord("f"), LAST])


def test_the_oldest_turns_are_forgotten_where_there_is_no_room_and_marks_that_are_typed_are_text():
    assert prompt_ids(TALKER, "e", 64, ["ab", "cd"]) == [*b"ab", FIRST, *b"cd", LAST, *b"e", FIRST]
    assert prompt_ids(TALKER, "e", 64, ["a" * 30, "cd", "b", "c"]) == [*b"b", FIRST, *b"c", LAST, *b"e", FIRST]
    typed = question_ids(TALKER, [{"role": "user", "content": f"{END} {ANSWER}"}])
    assert typed == [*f"{END} {ANSWER}".encode(), FIRST]


def test_windows_of_another_text_are_learned_too_and_differ_in_each_epoch(few, monkeypatch):
    text = "".join(f"{n:05d}" for n in range(2000))
    monkeypatch.setattr("extra.gpt.data.load_corpus", lambda name: texts.Corpus(name, text, "a test", "none", ""))
    data = AnswerTask(GPTOptions.of(**CHAT, replay="goethe", replay_share=0.2)).data
    epochs = []
    for number in (0, 1, 0):
        data.epoch(number)
        epochs.append([target for source, target in data.train if not source])
    assert epochs[0] == epochs[2] != epochs[1]
    assert all(bytes(target).decode() in text for target in epochs[0])
    learned = sum(len(target) - 1 for _, target in data.train)
    assert data.windows * 256 / learned == pytest.approx(0.2, abs=0.01)


def test_a_model_talks_after_its_tokenizer_got_two_more_tokens(few, workplace, ran, typed):
    saved_gpt(Path("base.safetensors"), ByteTokenizer(), block_size=64, n_layer=1)
    short = "--warmup_iters 1 --sample_tokens 0 --eval_pairs 2 --eval_interval 2 --workers 1".split()
    assert train.main(["chat", "--init_from", "base.safetensors", "--max_iters", "2", "--out_dir", "run", *short]) == 0
    after = questions.FAMILY.read(Path("run"))
    assert ([*after.tokenizer.specials], after.config.vocab_size) == ([ANSWER, END], 256 + 2)
    assert train.main(["--resume", "--max_iters", "3", "--out_dir", "run"]) == 0
    typed("Hallo!\nWer bist du?\n\n")
    assert ran(sample.main, "run", "--chat", "--max_new_tokens", 3).out.count("\n") == 2
    asked = ("run", "--chat", "--start", "Hallo!", "--max_new_tokens", 9)
    assert ran(sample.main, *asked) == ran(sample.main, *asked, "--greedy")  # greedy unless options say otherwise
    out = ran(questions.main, "run", "--count", 3, "--wrong", 1, "--csv", "q.csv").out
    assert all(test in out for test in ("templates", "combinations", "by hand", "    == "))
    assert Path("q.csv").read_text(encoding="utf-8").startswith("test,kind,questions,right\n")


def test_rows_of_new_tokens_are_the_mean_of_the_others_so_no_other_logit_changes():
    before = small_gpt("float32").eval()
    config, name = replace(before.config, vocab_size=13), "token_embedding.weight"
    grown = questions.FAMILY.fit(before.state_dict(), config)
    assert np.array_equal(grown[name][:-2], before.state_dict()[name])
    np.testing.assert_allclose(grown[name][-2:], grown[name][:-2].mean(0)[None].repeat(2, 0), rtol=1e-6)
    found = [model(Tensor([[1, 2, 3]])).numpy() for model in (before, GPT.from_weights(config, grown).eval())]
    np.testing.assert_allclose(found[1][..., :-2], found[0], atol=1e-5)
