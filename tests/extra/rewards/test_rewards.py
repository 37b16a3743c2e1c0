"""Learning from rewards: the gradients are those of the derivations, answers are drawn anew, runs resume and refuse."""

import math
from pathlib import Path

import numpy as np
import pytest

import train
from extra.gpt.options import GPTOptions
from extra.gpt.trained import load_trained
from extra.pairs.answering import END
from extra.pairs.pairs import IGNORED
from extra.rewards.rewards import REWARDS, Drawn, RewardTask, weights
from tests.gpt.saved_models import saved_gpt
from tests.gpt.small_gpts import gradients, small_gpt
from tests.tiny_runs import losses, same, stop_after
from text.tokenizers.base import UNKNOWN
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.debug.gradcheck import gradcheck
from training.checkpoint import load_checkpoint
from training.folder import RunFolder

ASK = "<answer>"
TOKENIZER = ByteTokenizer((ASK, END))
DIGITS = CharTokenizer.train("0123456789+*<>/calc", specials=(UNKNOWN, ASK, END))
rng = np.random.default_rng(2)


def reward_task(**settings):
    """A task with the tokens of the small models, and one of these models to learn."""
    given = {"dataset": "sums", "separator": ASK, "block_size": 20, "rewards": ["length"], "group": 4, "batch_size": 16}
    task = RewardTask(GPTOptions.of(**given | {"train_pairs": 10} | settings), DIGITS)
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


def test_the_policy_loss_passes_gradcheck():
    targets = Tensor(np.eye(5)[rng.integers(0, 5, 7)] * rng.standard_normal((7, 1)))
    logits = Tensor(rng.standard_normal((7, 5)), requires_grad=True)
    assert gradcheck(lambda x: F.cross_entropy(x, targets), [logits]) < 1e-6


@pytest.mark.torch
def test_gradients_are_torchs():
    torch = pytest.importorskip("torch")
    logits, chosen = rng.standard_normal((7, 5)), rng.integers(0, 5, 7)
    weight = np.array([1.5, -0.5, 0.0, 2.0, -1.0, 0.0, 0.3])
    ours, theirs = Tensor(logits, requires_grad=True), torch.tensor(logits, requires_grad=True)
    F.cross_entropy(ours, Tensor(np.eye(5)[chosen] * weight[:, None])).backward()
    log_probs = torch.distributions.Categorical(logits=theirs).log_prob(torch.tensor(chosen))
    (-(torch.tensor(weight) * log_probs).mean()).backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-10, atol=1e-14)
    log_p, reference = torch.tensor([-1.0, -3.0], dtype=torch.float64, requires_grad=True), np.array([-2.0, -2.5])
    better, worse = log_p - torch.tensor(reference)
    (-torch.nn.functional.logsigmoid(0.3 * (better - worse))).backward()
    found = weights("dpo", np.array([[1.0, 0.0]]), (log_p.detach().numpy() - reference)[None], 0.3)
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
    second = Drawn(model, TOKENIZER, ["12+13"], group=3, seed=5, first=1)
    assert second.said == drawn.said[3:]
    ids, targets = drawn.batch(np.array([0, 1.0, 0, 0, -2.0, 0]), model.token_embedding.weight)
    assert ids.shape[0] == 2  # what teaches nothing is left out
    np.testing.assert_allclose(np.unique(targets.numpy().sum(-1)), [-2, 0, 1])
    ids, targets = drawn.batch(np.zeros(6), model.token_embedding.weight)
    assert not targets.numpy().any()


@pytest.mark.parametrize("method", ["reinforce", "grpo"])
def test_processes_and_micro_steps_share_the_questions_of_an_update(method):
    task = reward_task(method=method, gradient_accumulation_steps=2, rewards=["length", "right"])
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


@pytest.fixture
def base(workplace):
    """The name of a model that answers, in the folder in which the test runs."""
    saved_gpt(Path("base.safetensors"), DIGITS, block_size=20)
    return "base.safetensors"


def run(base, out, *words):
    """Learn from points for length, which a random model gets, too."""
    given = ["--log_interval=1", f"--init_from={base}", f"--out_dir={out}", "--rewards=length", *words]
    status = train.main([*RUN, *given])
    return status, RunFolder(out)


def test_a_model_learns_what_gets_points(base, monkeypatch):
    monkeypatch.setitem(REWARDS, "length", lambda said, right: said.count("1") / 10)
    val_losses = iter((1.0, 2.0, 3.0))
    monkeypatch.setattr(train, "evaluate", lambda *_: next(val_losses))
    status, folder = run(
        base, "run", "--max_iters=20", "--learning_rate=3e-3", "--optimizer=adamw", "--eval_interval=10"
    )
    assert status == 0
    points = losses(folder, "reward")
    assert points[20] > 2 * points[0]
    measured = {name: losses(folder, name)[20] for name in ("drawn_right", "group_right", "entropy", "exact")}
    assert all(map(math.isfinite, measured.values()))
    assert load_checkpoint(folder.best).step == 20  # the latest is the best, whatever its loss is


@pytest.mark.parametrize("words", [[], ["--dataset=calculations", "--method=dpo", "--reference=base.safetensors"]])
def test_a_stopped_run_goes_on_with_the_answers_it_would_have_drawn(base, monkeypatch, tmp_path, words):
    _, whole = run(base, "whole", "--max_iters=4", *words)
    stop_after(monkeypatch, 3)
    assert run(base, "stopped", "--max_iters=4", *words)[0] == 130
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert train.main(["--resume", "--out_dir=stopped"]) == 0
    same(whole, RunFolder("stopped"))


def test_two_processes_learn_the_same(base):
    one, two = (run(base, f"run{n}", "--max_iters=3", f"--workers={n}")[1] for n in (1, 2))
    for name in ("reward", "entropy", "val_loss"):
        np.testing.assert_allclose([*losses(one, name).values()], [*losses(two, name).values()], rtol=1e-4)


def test_the_reference_stays_as_it_was(base):
    reference = load_trained(Path(base)).weights
    task = reward_task(method="dpo", reference=base)
    task.model = task.reference.__class__(task.reference.config)
    gradients(task.model, *task.batches(1))
    for name, array in task.reference.state_dict().items():
        np.testing.assert_array_equal(array, reference[name])
    assert all(parameter.grad is None for parameter in task.reference.parameters())
