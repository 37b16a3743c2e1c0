"""The calculator computes arithmetic and nothing else; a model that calls it writes the result, however it decodes."""

from pathlib import Path

import numpy as np
import pytest

import sample
from extra.chat.conversations import is_held_out
from extra.pairs.answering import END, answer
from extra.rewards.arithmetic import arithmetic_corpus, question
from extra.rewards.calculator import CallingModel, calculate, computed, with_calculator, without_calls
from tests.gpt.saved_models import saved_gpt
from tests.gpt.small_gpts import small_gpt
from text.decoding.beam import beam_search
from text.decoding.sampling import generate
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.random import keyed_rng

ASK = "<answer>"
TOKENIZER = ByteTokenizer((ASK, END))
rng = np.random.default_rng(2)


CALL = "<calc>12*7</calc>"


EXPRESSIONS = [
    *[("12*7", "84"), ("2+3*4", "14"), ("(2+3)*4", "20"), ("8-3-2", "3"), ("8/4/2", "1"), ("--5", "5")],
    *[("-(1+2)/4", "-0.75"), (" 1 + 1 ", "2"), ("2/3", "0.6667"), ("1/3*3", "1"), ("0/5", "0"), ("007", "7")],
    *[("9" * 31 + "*" + "9" * 31, str((10**31 - 1) ** 2)), ("((((((((1))))))))", "1"), ("1/99999", "0")],
    *[("9999999999999/7", "1428571428571.2857"), ("1234567890123456789/2", "617283945061728394.5"), ("-1/99999", "0")],
    *[("-9" + "0" * 40 + "/7-1/32", f"-{9 * 10**40 // 7}.1741"), ("1/32", "0.0312"), ("200/2", "100")],
    # What is no expression, is too long, too deep, or has no value.
    *[("", ""), (" ", ""), ("1/0", ""), ("1/(2-2)", ""), ("2**9", ""), ("9**9**9", ""), ("1 2", ""), ("1+", "")],
    *[("*1", ""), ("(1", ""), ("1)", ""), (")1(", ""), ("1e9", ""), ("0x10", ""), ("1.5", ""), ("1,5", "")],
    *[("1\n+1", ""), ("١+١", ""), ("１+１", ""), ("²", ""), ("1;2", ""), ("1_000", ""), ("True+1", "")],
    *[("__import__('os').system('id')", ""), ("open('/etc/passwd')", ""), ("1 if 1 else 2", "")],
    *[("1+" * 40 + "1", ""), ("(" * 31 + "1" + ")" * 31, ""), ("-" * 60 + "1", ""), ("9" * 65, ""), ("1%2", "")],
]


@pytest.mark.parametrize(("expression", "value"), EXPRESSIONS)
def test_the_calculator_does_arithmetic_and_nothing_else(expression, value):
    assert calculate(expression) == value


class Parrot:
    """A model that writes a text after any prompt, whatever it has written before, and makes up what it is due."""

    def __init__(self, text):
        self.config = small_gpt(block_size=64).config
        self.ids = [*TOKENIZER.encode(text), TOKENIZER.specials[END]]

    def start(self, prompts, use_cache=True):
        return self.predict(np.zeros(len(prompts), int)), Places(np.zeros(len(prompts), int))

    def step(self, tokens, state):
        return self.predict(state.places + 1), Places(state.places + 1)

    def predict(self, places):
        scores = np.full((len(places), TOKENIZER.vocab_size), -9.0)
        for row, place in enumerate(places):
            scores[row, self.ids[min(place, len(self.ids) - 1)]] = 0
        scores.flags.writeable = False
        return scores


class Places:
    def __init__(self, places):
        self.places = places

    def select(self, rows):
        return Places(self.places[rows])


CALLS = [
    (f"{CALL}?? ok", f"{CALL}84 ok"),  # the result takes the place of what the model would have written
    (f"{CALL}??{CALL}??", f"{CALL}84{CALL}84"),
    ("<calc>1/0</calc>5", "<calc>1/0</calc>5"),
    ("<calc>import os</calc>5", "<calc>import os</calc>5"),
    ("<calc>1<calc>2*3</calc>?", "<calc>1<calc>2*3</calc>6"),  # the last mark opens
    ("1+1</calc>5", "1+1</calc>5"),  # nothing was opened
    ("<calc>1+1", "<calc>1+1"),
]


@pytest.mark.parametrize(("text", "said"), CALLS)
def test_a_call_is_answered_however_the_model_decodes(text, said):
    model = CallingModel(Parrot(text), TOKENIZER)
    end = TOKENIZER.specials[END]
    most = {"max_new_tokens": 60, "stop_token": end}
    for prompts in ([[1, 2]], [[1], [2], [3]]):
        for temperature in (0.0, 0.01):
            steps = generate(model.step, *model.start(prompts), temperature=temperature, **most)
            for row in np.stack([*steps], axis=1).tolist():
                assert TOKENIZER.decode(row[: row.index(end)]) == said
    (best, *_), *_ = beam_search(model.step, *model.start([[1]]), beam=3, **most)
    assert TOKENIZER.decode(best.tokens) == said


def test_a_call_in_a_prompt_is_only_text():
    model = CallingModel(Parrot("5"), TOKENIZER)
    assert answer(model, TOKENIZER, [CALL, f"{CALL}\n{CALL}\n1"]) == ["5", "5"]


def test_results_are_not_the_models_own():
    ids = TOKENIZER.encode(f"a{CALL}84!<calc>1+1</calc>2")
    assert TOKENIZER.decode(np.array(ids)[computed(TOKENIZER, ids)].tolist()) == "842"
    assert (without_calls(f"{CALL}84"), without_calls("84")) == ("84", "84")


@pytest.mark.parametrize("dataset", ["sums", "calculations"])
def test_questions_have_their_answers_and_none_is_in_both_parts(dataset):
    corpus = arithmetic_corpus(dataset, count=2000, held_out=200)
    assert corpus.sha256 == arithmetic_corpus(dataset, count=2000, held_out=200).sha256
    for text, right in (*corpus.train, *corpus.held_out):
        assert without_calls(right) == calculate(text)
    assert not {text for text, _ in corpus.train} & {text for text, _ in corpus.held_out}
    calls = [right for _, right in corpus.train if right.startswith("<calc>")]
    assert len(calls) == (1000 if dataset == "calculations" else 0)
    rng = keyed_rng(1, "questions")
    drawn = [question(rng, "sums")[0] for _ in range(200)]
    assert not any(is_held_out(*map(int, text.split("+"))) for text in drawn)


def test_sample_answers_the_calls_of_a_model_that_learned_to_call(workplace, monkeypatch, capsys):
    path = Path("m.safetensors")
    for dataset in ("calculations", "sums"):
        assert isinstance(with_calculator(small_gpt(), TOKENIZER, dataset), CallingModel) == (dataset == "calculations")
    parrot = Parrot(f"{CALL}?? ok")
    monkeypatch.setattr("gpt.model.GPT.start", lambda self, prompts, use_cache=True: parrot.start(prompts))
    monkeypatch.setattr("gpt.model.GPT.step", lambda self, tokens, state: parrot.step(tokens, state))
    for dataset, said in (("", "??"), ("calculations", "84")):
        saved_gpt(path, TOKENIZER, 3, dataset=dataset, block_size=64)
        for words in ([], ["--beam", "2"]):
            assert sample.main([str(path), "--start", "12*7", *words]) == 0
            assert f"{CALL}{said} ok" in capsys.readouterr().out
