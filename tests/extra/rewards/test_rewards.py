"""Learning from rewards, and the calculator: gradients are those of the derivations, runs resume, calls are right."""

from pathlib import Path

import numpy as np
import pytest

import sample
import train
from extra.chat.conversations import is_held_out
from extra.gpt.options import GPTOptions
from extra.gpt.trained import load_trained
from extra.pairs.answering import END, answer
from extra.pairs.pairs import IGNORED
from extra.rewards.arithmetic import arithmetic_corpus, question
from extra.rewards.calculator import CallingModel, calculate, computed, without_calls
from extra.rewards.rewards import REWARDS, Drawn, RewardTask, weights
from tests.gpt.saved_models import saved_gpt
from tests.gpt.small_gpts import gradients, small_gpt
from tests.text.decoding.test_beam import ToyModel
from tests.tiny_runs import assert_resumes, losses
from text.decoding.beam import beam_search
from text.decoding.sampling import generate
from text.tokenizers.base import UNKNOWN
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.random import keyed_rng
from training.checkpoint import load_checkpoint
from training.folder import RunFolder

ASK = "<answer>"
TOKENIZER = ByteTokenizer((ASK, END))
DIGITS = CharTokenizer.train("0123456789+*<>/calc", specials=(UNKNOWN, ASK, END))
rng = np.random.default_rng(2)


def reward_task(**settings):
    """A task with the tokens of the small models, and one of these models to learn."""
    given = {"dataset": "sums", "separator": ASK, "block_size": 20, "rewards": ["length"], "group": 4, "batch_size": 16}
    task = RewardTask(GPTOptions.of(**given | {"train_pairs": 10, "held_out": 8} | settings), DIGITS)
    task.model = small_gpt(vocab_size=DIGITS.vocab_size, block_size=20)
    return task


# --- the derivations ---------------------------------------------------------------------------------------------


def test_the_weights_of_each_method():
    rewards = rng.integers(0, 2, (6, 5)).astype(float)
    rewards[0], ratios = 1.0, rng.standard_normal((6, 5))
    assert weights("reinforce", rewards, ratios, 0.1) is rewards
    found = weights("grpo", rewards, ratios, 0.1)
    np.testing.assert_allclose(found.sum(1), 0, atol=1e-9)  # the baseline
    assert (found[0] == 0).all()  # all are as good
    np.testing.assert_allclose(found[1:].std(1), 1, rtol=1e-5)
    found = weights("dpo", rewards, ratios, 0.1)
    assert ((found != 0).sum(1) == [0, 2, 2, 2, 2, 2]).all()


def test_the_expected_gradient_of_drawn_answers_is_that_of_the_expected_reward():
    """dJ = E[r d log p], summed over all answers of two tokens: with the reward, or the reward less a constant."""
    model = small_gpt(vocab_size=5)
    answers = [[a, b] for a in range(5) for b in range(5)]
    ids = np.array([[3, answer[0]] for answer in answers])
    log_p = F.log_softmax(model(Tensor(ids))).gather(-1, Tensor(np.array(answers)[..., None])).sum((1, 2))
    rewards = rng.random(25)
    (log_p.exp() * Tensor(rewards)).sum().backward()
    expected = {name: parameter.grad.numpy().copy() for name, parameter in model.named_parameters()}
    p = np.exp(log_p.numpy())
    assert p.sum() == pytest.approx(1)
    drawn = Drawn.__new__(Drawn)
    drawn.ids, drawn.targets = ids, np.array(answers)
    for constant in (0.0, 0.7):
        batch = drawn.batch(p * (rewards - constant), model.token_embedding.weight)
        for name, found in gradients(model, (batch, batch[0].numel())).items():  # the loss is the mean over places
            np.testing.assert_allclose(-found, expected[name], rtol=1e-8, atol=1e-11, err_msg=name)


def dpo_loss(log_p, reference, beta):
    """-log s(m) of a pair, as a tensor: the better answer first."""
    margin = (log_p - Tensor(reference)) * Tensor(np.array([beta, -beta]))
    return -margin.sum().sigmoid().log()


def test_the_weights_of_dpo_give_the_gradient_of_its_loss():
    log_p, reference = Tensor(rng.standard_normal(2), requires_grad=True), rng.standard_normal(2)
    for beta in (0.1, 2.0):
        assert gradcheck(lambda x, beta=beta: dpo_loss(x, reference, beta), [log_p]) < 1e-6
        log_p.grad = None
        dpo_loss(log_p, reference, beta).backward()
        found = weights("dpo", np.array([[1.0, 0.0]]), (log_p.numpy() - reference)[None], beta)
        np.testing.assert_allclose(-found[0], log_p.grad.numpy(), rtol=1e-10)


# --- drawn answers -----------------------------------------------------------------------------------------------


def test_what_is_learned_is_what_was_drawn():
    model = small_gpt(vocab_size=TOKENIZER.vocab_size, block_size=64).eval()
    drawn = Drawn(model, TOKENIZER, ["1+1", "12+13"], group=3, seed=5)
    assert len(drawn.said) == 6
    assert len(set(drawn.said)) > 1
    end, log_probs = TOKENIZER.specials[END], drawn.log_probs(model)
    for row, (ids, targets) in enumerate(zip(drawn.ids, drawn.targets, strict=True)):
        own = targets[targets != IGNORED]
        assert TOKENIZER.decode([token for token in own if token != end]) == drawn.said[row]
        places = np.flatnonzero(targets != IGNORED)
        p = F.log_softmax(model(Tensor(ids[None]))).numpy()[0]
        assert log_probs[row] == pytest.approx(p[places, own].sum(), rel=1e-6)
    # A group is the same whatever is drawn beside it, and the same again.
    assert Drawn(model, TOKENIZER, ["12+13"], group=3, seed=5, first=1).said == drawn.said[3:]
    ids, targets = drawn.batch(np.array([0, 1.0, 0, 0, -2.0, 0]), model.token_embedding.weight)
    assert ids.shape[0] == 2  # what teaches nothing is left out
    np.testing.assert_allclose(np.unique(targets.numpy().sum(-1)), [-2, 0, 1])


def test_processes_and_micro_steps_share_the_questions_of_an_update():
    task = reward_task(method="grpo", gradient_accumulation_steps=2, rewards=["length", "right"])
    whole, again, other = (gradients(task.model, *task.batches(step)) for step in (3, 3, 4))
    halves = gradients(task.model, *task.batches(3, 0, 2), *task.batches(3, 1, 2))
    for name, found in whole.items():
        np.testing.assert_array_equal(again[name], found)
        np.testing.assert_allclose(halves[name], found, rtol=1e-7, atol=1e-12)
    assert any((other[name] != found).any() for name, found in whole.items())


POINTS = [
    *[("right", "84", "84", 1), ("right", "<calc>12*7</calc>84", "84", 1), ("right", "84 ", "84", 0)],
    *[("form", "<calc>", "84", 0), ("form", "<calc></calc>", "84", 1), ("length", "1111", "84", 1)],
    *[("length", "84", "84", 0), ("brevity", "84", "84", 0), ("brevity", "<calc>12*7</calc>84", "84", -0.2)],
]


@pytest.mark.parametrize(("name", "said", "right", "points"), POINTS)
def test_points(name, said, right, points):
    assert REWARDS[name](said, right) == points


# --- runs --------------------------------------------------------------------------------------------------------

RUN = "rewards --block_size 20 --train_pairs 10 --group 4 --batch_size 8 --eval_interval 2 --eval_pairs 4".split()
RUN += "--log_interval 1 --init_from base.safetensors --rewards length --held_out 8".split()


@pytest.fixture
def base(workplace):
    """The name of a model that answers, in the folder in which the test runs."""
    saved_gpt(Path("base.safetensors"), DIGITS, block_size=20)
    return "base.safetensors"


def run(out, *words):
    """Learn from points for length, which a random model gets, too."""
    assert train.main([*RUN, f"--out_dir={out}", *words]) == 0
    return RunFolder(out)


def test_a_model_learns_what_gets_points(base, monkeypatch):
    monkeypatch.setitem(REWARDS, "length", lambda said, right: said.count("1") / 10)
    val_losses = iter((1.0, 2.0, 3.0))
    monkeypatch.setattr(train, "evaluate", lambda *_: next(val_losses))
    words = "--max_iters=20 --learning_rate=3e-3 --optimizer=adamw --eval_interval=10".split()
    folder = run("run", *words)
    points = losses(folder, "reward")
    assert points[20] > 2 * points[0]
    assert load_checkpoint(folder.best).step == 20  # the latest is the best, whatever its loss is


@pytest.mark.parametrize("words", [[], ["--dataset=calculations", "--method=dpo", "--reference=base.safetensors"]])
def test_a_stopped_run_goes_on_with_the_answers_it_would_have_drawn(base, words):
    assert_resumes(*RUN, "--max_iters=4", *words)


def test_the_reference_stays_as_it_was(base):
    reference = load_trained(Path(base)).weights
    task = reward_task(method="dpo", reference=base)
    task.model = task.reference.__class__(task.reference.config)
    gradients(task.model, *task.batches(1))
    for name, array in task.reference.state_dict().items():
        np.testing.assert_array_equal(array, reference[name])
    assert all(parameter.grad is None for parameter in task.reference.parameters())


# --- the calculator: it computes arithmetic and nothing else, and a model that calls it writes the result -------------


CALL = "<calc>12*7</calc>"


EXPRESSIONS = [
    *[("12*7", "84"), ("2+3*4", "14"), ("(2+3)*4", "20"), ("8-3-2", "3"), ("8/4/2", "1"), ("--5", "5")],
    *[("-(1+2)/4", "-0.75"), (" 1 + 1 ", "2"), ("2/3", "0.6667"), ("1/3*3", "1"), ("0/5", "0"), ("007", "7")],
    *[("9" * 31 + "*" + "9" * 31, str((10**31 - 1) ** 2)), ("((((((((1))))))))", "1"), ("1/99999", "0")],
    *[("1234567890123456789/2", "617283945061728394.5"), ("-1/99999", "0"), ("1/32", "0.0312"), ("200/2", "100")],
    # What is no expression, is too long, too deep, or has no value.
    *[("", ""), (" ", ""), ("1/0", ""), ("1/(2-2)", ""), ("2**9", ""), ("9**9**9", ""), ("1 2", ""), ("1+", "")],
    *[("(1", ""), (")1(", ""), ("1e9", ""), ("0x10", ""), ("1.5", ""), ("1\n+1", ""), ("١+١", ""), ("²", "")],
    *[("__import__('os').system('id')", ""), ("(" * 31 + "1" + ")" * 31, ""), ("-" * 60 + "1", ""), ("9" * 65, "")],
]


@pytest.mark.parametrize(("expression", "value"), EXPRESSIONS)
def test_the_calculator_does_arithmetic_and_nothing_else(expression, value):
    assert calculate(expression) == value


class Parrot(ToyModel):
    """A model that writes a text after any prompt, whatever it has written before, and makes up what it is due."""

    def __init__(self, text):
        super().__init__(TOKENIZER.vocab_size)
        self.config = small_gpt(block_size=64).config
        self.ids = [*TOKENIZER.encode(text), TOKENIZER.specials[END]]

    def start(self, prompts, use_cache=True):
        return self.read([()] * len(prompts))

    def next(self, history):
        return np.where(np.arange(self.vocab_size) == self.ids[min(len(history), len(self.ids) - 1)], 0.0, -9.0)

    def read(self, rows):
        scores, state = super().read(rows)
        scores.flags.writeable = False
        return scores, state


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
    for text, right in (*corpus.train, *corpus.held_out):
        assert without_calls(right) == calculate(text)
    assert not {text for text, _ in corpus.train} & {text for text, _ in corpus.held_out}
    calls = [right for _, right in corpus.train if right.startswith("<calc>")]
    assert len(calls) == (1000 if dataset == "calculations" else 0)
    rng = keyed_rng(1, "questions")
    drawn = [question(rng, "sums")[0] for _ in range(200)]
    assert not any(is_held_out(*map(int, text.split("+"))) for text in drawn)


def test_sample_answers_the_calls_of_a_model_that_learned_to_call(workplace, monkeypatch, ran):
    path = Path("m.safetensors")
    parrot = Parrot(f"{CALL}?? ok")
    monkeypatch.setattr("gpt.model.GPT.start", lambda self, prompts, use_cache=True: parrot.start(prompts))
    monkeypatch.setattr("gpt.model.GPT.step", lambda self, tokens, state: parrot.step(tokens, state))
    for dataset, said in (("", "??"), ("sums", "??"), ("calculations", "84")):
        saved_gpt(path, TOKENIZER, 3, dataset=dataset, block_size=64)
        assert f"{CALL}{said} ok" in ran(sample.main, path, "--start", "12*7").out
