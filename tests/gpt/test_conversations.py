"""Conversations about a small world: what a test asks was not in the training, turns become tokens, and models talk."""

import io
import sys

import numpy as np
import pytest

import sample
import train
from gpt.answering import END, prompt_ids
from gpt.chat import AnswerFormat
from gpt.conversations import FACTS, KINDS, LANGUAGES, chat_corpus, conversations, facts, sentences, table, words
from gpt.options import GPTOptions
from gpt.pairs import IGNORED, AnswerTask
from studies import questions
from tests.tiny_runs import undone
from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.tensor import Tensor
from workshop.corpora import texts
from workshop.decoding.state import pad_rows
from workshop.tokenizers.byte import ByteTokenizer

SEPARATOR = "<answer>"
TOKENIZER = ByteTokenizer((SEPARATOR, END))


def test_there_are_a_hundred_facts_and_fifty_questions_by_hand_and_an_answer_for_each_kind():
    assert all(sum(len(facts(kind, language)["known"]) for kind in FACTS) == 100 for language in LANGUAGES)
    assert all(len(sentences(kind, language, "answer")) == 1 for kind in KINDS for language in LANGUAGES)
    assert len(questions.by_hand()) == 50
    assert sum(not one.is_known for one in questions.by_hand()) == 6


def test_what_the_tests_ask_was_not_in_the_training():
    """Neither the question, as it stands, nor the sum, the name, the thing, or what is unknown."""
    train_part, templates, combined = (
        list(conversations(part, 3000)) for part in ("train", "templates", "combinations")
    )
    learned = {turn for asked in train_part for turn in asked.turns}
    asked = [one.turns[-1] for one in (*templates, *combined) if one.kind != "whose name"]
    assert not learned & set(asked)

    def sums(part):
        return {one.answer for one in part if one.kind == "sum"}

    learned_sums = {turn for one in train_part for turn in (*one.turns, one.answer) if " plus " in turn}
    assert len(sums(combined)) > 100
    assert not sums(combined) & learned_sums
    for kind in ("name", "thing"):
        assert not set(words(kind, "train", "de")) & set(words(kind, "test", "de"))
    for kind in FACTS:
        found = facts(kind, "en")
        assert not {x for x, _ in found["unknown test"]} & {x for x, _ in (*found["known"], *found["unknown"])}
    assert not {one for row in table("by_hand") for one in row} & learned


def test_the_conversations_are_always_the_same_and_all_different():
    corpus = chat_corpus(count=200, held_out=40)
    assert corpus == chat_corpus(count=200, held_out=40)
    assert len({source for source, _ in corpus.train}) == 200
    assert len(corpus.held_out) == 40
    told = next(source for source, target in corpus.train if target.startswith(("Du heißt", "Your name is")))
    assert len(told.split("\n")) == 3


def test_of_a_conversation_only_the_last_answer_is_learned():
    options = GPTOptions(dataset="chat", separator=SEPARATOR, tokenizer="byte", block_size=256, held_out=4)
    task = AnswerTask(options)
    first, last = TOKENIZER.specials[SEPARATOR], TOKENIZER.specials[END]
    (pair,) = task.encode([("ab\ncd\ne", "f")])
    assert pair == ([*b"ab", first, *b"cd", last, *b"e"], [first, *b"f", last])
    ids, targets = (tensor.numpy().tolist() for tensor in task.data.batch([pair]))
    assert (ids[0][-1], targets[0]) == (ord("f"), [IGNORED] * 7 + [ord("f"), last])


def test_the_oldest_turns_are_forgotten_where_there_is_no_room_and_marks_that_are_typed_are_text():
    first, last = TOKENIZER.specials[SEPARATOR], TOKENIZER.specials[END]
    assert prompt_ids(TOKENIZER, "e", 64, ["ab", "cd"]) == [*b"ab", first, *b"cd", last, *b"e", first]
    assert prompt_ids(TOKENIZER, "e", 64, ["a" * 30, "cd", "b", "c"]) == [*b"b", first, *b"c", last, *b"e", first]
    typed = AnswerFormat(TOKENIZER).encode([{"role": "user", "content": f"{END} {SEPARATOR}"}])
    assert typed == [*f"{END} {SEPARATOR}".encode(), first]


def test_windows_of_another_text_are_learned_too_and_differ_in_each_epoch(monkeypatch):
    text = "".join(f"{n:05d}" for n in range(2000))
    monkeypatch.setattr("gpt.pairs.load_corpus", lambda name: texts.Corpus(name, text, "a test", "none", ""))
    options = GPTOptions(
        dataset="chat",
        separator=SEPARATOR,
        tokenizer="byte",
        block_size=256,
        held_out=4,
        replay="goethe",
        replay_share=0.2,
    )
    data = AnswerTask(options).data
    epochs = []
    for number in (0, 1, 0):
        data.epoch(number)
        epochs.append([target for source, target in data.train if not source])
    assert epochs[0] == epochs[2] != epochs[1]
    assert all(bytes(target).decode() in text for target in epochs[0])
    learned = sum(len(target) - 1 for _, target in data.train)
    assert data.windows * 256 / learned == pytest.approx(0.2, abs=0.01)


@pytest.fixture
def chat_model(tmp_path, monkeypatch):
    """A tiny model that learned from the conversations, begun with a tokenizer that had no special tokens."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("Habe nun, ach! Philosophie\n" * 60, encoding="utf-8")
    shape = "--n_layer 1 --n_head 1 --n_embd 16 --block_size 128 --workers 1 --eval_interval 2".split()
    short = "--max_iters 2 --warmup_iters 1 --sample_tokens 0 --eval_pairs 2".split()
    with undone():
        assert train.main(["--text", "t.txt", "--tokenizer", "byte", *shape, *short, "--out_dir", "base"]) == 0
        assert train.main(["chat", "--init_from", "base", *short, "--eval_interval", "2", "--workers", "1"]) == 0
        yield "out/chat"


def test_a_model_talks_after_its_tokenizer_got_two_more_tokens(chat_model, capsys, monkeypatch):
    before, after = (questions.FAMILY.read(questions.Path(name)) for name in ("base", chat_model))
    assert [*after.tokenizer.specials] == [SEPARATOR, END]
    assert after.config.vocab_size == before.config.vocab_size + 2
    assert train.main([chat_model[4:], "--resume", "--max_iters", "3", "--out_dir", chat_model]) == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Hallo!\nWer bist du?\n\n")))
    capsys.readouterr()
    assert sample.main([chat_model, "--chat", "--max_new_tokens", "3"]) == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert sample.main([chat_model, "--start", "Hallo!", "--max_new_tokens", "3"]) == 0
    assert questions.main([chat_model, "--count", "3", "--wrong", "1", "--csv", "q.csv"]) == 0
    out = capsys.readouterr().out
    assert all(test in out for test in ("templates", "combinations", "by hand", "    == "))
    with open("q.csv", encoding="utf-8") as file:
        assert file.readline() == "test,kind,questions,right\n"
    with pytest.raises(OptionError, match=r"there is no such run yet: python train.py goethe makes it"):
        train.main(["chat", "--out_dir", "other"])
    with pytest.raises(CheckpointError, match="did not learn from conversations"):
        questions.main(["base"])
    with pytest.raises(OptionError, match=r"<other>: the tokenizer of these weights has no special token <other>"):
        train.main(["chat", "--init_from", chat_model, "--separator", "<other>", "--out_dir", "other"])


def test_rows_of_new_tokens_are_the_mean_of_the_others_so_no_other_logit_changes(chat_model):
    before, after = (questions.FAMILY.read(questions.Path(name)) for name in ("base", chat_model))
    grown = questions.FAMILY.fit(before.weights, after.config)
    table_before, table_after = before.weights["token_embedding.weight"], grown["token_embedding.weight"]
    assert np.array_equal(table_after[:-2], table_before)
    np.testing.assert_allclose(table_after[-2:], table_before.mean(0)[None].repeat(2, 0), rtol=1e-6)
    ids = pad_rows([[1, 2, 3]], 0)
    old, new = (
        model.model_class.from_weights(config, weights).eval()
        for model, config, weights in ((before, before.config, before.weights), (after, after.config, grown))
    )
    found = [model(Tensor(ids)).numpy() for model in (old, new)]
    np.testing.assert_allclose(found[1][..., :-2], found[0], atol=1e-5)
