r"""Learn from rewards: the model answers, each answer gets points, and answers with many points become more probable.

There is no answer to learn from. The aim is a larger expected reward for a question x, with r(y) points for answer y,

    J = sum_y p(y | x) r(y)

The points have no derivative, since nobody differentiates "right"; but p has one. As dp = p d log p,

    dJ = sum_y p(y | x) r(y) d log p(y | x) = E[r(y) d log p(y | x)]

which is an expectation, so answers drawn from the model estimate it without bias. An answer is drawn token by token, so
log p(y | x) is the sum of its tokens' log-probabilities, and the loss of n drawn answers with weights w_i is

    L = -1/n sum_i w_i sum_t log p(y_it | x, y_i1 ... y_i,t-1)

This is cross-entropy, with w_i times the one-hot vector of the token as target: for w_i = 1 the model memorises its own
answers. The methods differ only in the weights.

**REINFORCE**: w_i = r_i. **GRPO**: several answers i to the same question, and

    w_i = (r_i - mean_j r_j) / std_j r_j

A constant b subtracted from the reward changes no expectation, for E[b d log p] = b d sum_y p(y | x) = b d1 = 0, but it
changes the variance: without it, every right answer is pushed up, all equally hard; with the mean of its group, wrong
ones are pushed down too, and a question that all answers got right or wrong teaches nothing. No second model is needed
to estimate b. Each update draws new answers, so there is no ratio of probabilities to clip.

**DPO** needs no points, only which of two answers is better, y+ or y-. Of all models near the reference q, the one with
the largest reward minus b KL(p, q) has the reward r(y) = b log(p(y | x) / q(y | x)) + a constant of x. If y+ is
preferred with the probability s(r(y+) - r(y-)), s the logistic function, the loss of a pair and its derivative are

    l = -log s(m),   m = b (log p(y+)/q(y+) - log p(y-)/q(y-))
    dl = -s(-m) dm = -b s(-m) (d log p(y+) - d log p(y-))

so the weights are b s(-m) for the better answer and -b s(-m) for the worse one. The answers are drawn from q.

Results of a calculator (calculator.py) are not the model's own, and have no weight.

References: Williams 1992, "Simple statistical gradient-following algorithms" (REINFORCE); Shao et al. 2024,
"DeepSeekMath" (arXiv:2402.03300), section 4.1 (GRPO), here without its division by an answer's length, as in Liu et al.
2025 (arXiv:2503.20783); Rafailov et al. 2023 (arXiv:2305.18290), equations 4 to 7 (DPO).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from extra.gpt.options import GPTOptions
from extra.gpt.trained import load_trained
from extra.pairs.answering import END, longest_answer, separator_of, turns_ids
from extra.pairs.made import CALCULATIONS
from extra.pairs.pairs import IGNORED, AnswerTask, Batch
from extra.rewards.arithmetic import REWARDS, question
from extra.rewards.calculator import OPEN, computed, with_calculator
from gpt.model import GPT
from text.decoding.sampling import generate
from text.tokenizers.base import Tokenizer
from tinygrad_lite import functional as F
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import CheckpointError, counted
from tinygrad_lite.generator import pad_rows
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor
from training.cli.console import say
from training.task import Report


def weights(method: str, rewards: np.ndarray, log_ratios: np.ndarray, beta: float) -> np.ndarray:
    """The weight of each answer's log-probability in the loss.

    Args:
        rewards: (N, G), of G answers to each of N questions.
        log_ratios: (N, G), log p(y | x) / q(y | x); only DPO needs them.
        beta: b of DPO: how much a difference from the reference counts.

    >>> weights("grpo", np.array([[1.0, 0.0], [1.0, 1.0]]), np.zeros((2, 2)), 0.1).round(3).tolist()
    [[1.0, -1.0], [0.0, 0.0]]
    """
    if method == "reinforce":
        return rewards
    if method == "grpo":
        centred = rewards - rewards.mean(1, keepdims=True)
        return centred / (rewards.std(1, keepdims=True) + 1e-6)
    found, rows = np.zeros(rewards.shape), np.arange(len(rewards))
    better, worse = (rows, rewards.argmax(1)), (rows, rewards.argmin(1))
    margin = beta * (log_ratios[better] - log_ratios[worse])
    step = beta / (1 + np.exp(margin)) * (rewards[better] > rewards[worse])
    found[better] += step
    found[worse] -= step
    return found


class Drawn:
    """Answers that a model drew, `group` to each question.

    Attributes:
        said: the answers as text, in the order of the questions; empty if one has a token without text.
        ids, targets: (B, T), as a GPT learns them; what it did not write itself is IGNORED.
    """

    def __init__(
        self, model: GPT, tokenizer: Tokenizer, questions: Sequence[str], group: int, seed: int, first: int = 0
    ) -> None:
        separator, end = (tokenizer.specials[name] for name in (separator_of(tokenizer), END))
        prompts = [[*turns_ids(tokenizer, [text]), separator] for text in questions]
        longest = longest_answer(max(map(len, prompts)), model.config.block_size)
        log_probs, state = model.start(prompts)
        copies = np.repeat(np.arange(len(prompts)), group)  # a question is read once for the whole group
        prompts = [prompts[number] for number in copies]
        settings = {"max_new_tokens": longest, "seed": seed, "first_row": first * group, "stop_token": end}
        steps = generate(model.step, log_probs[copies], state.select(copies), **settings)
        rows = [row.tolist() for row in np.stack(list(steps), axis=1)]
        answers = [row[: row.index(end) + 1] if end in row else row for row in rows]
        # No token is forbidden: the answers must be drawn from the probabilities that are trained. But a token without
        # text in the middle of an answer makes it worth nothing.
        odd = set(tokenizer.textless) - {end}
        self.said = ["" if odd & {*answer} else tokenizer.decode(answer) for answer in answers]
        pairs = list(zip(prompts, answers, strict=True))
        self.ids = pad_rows([[*prompt, *answer[:-1]] for prompt, answer in pairs], 0)
        own = [(prompt, np.where(computed(tokenizer, answer), IGNORED, answer)) for prompt, answer in pairs]
        self.targets = pad_rows([[*[IGNORED] * (len(prompt) - 1), *answer] for prompt, answer in own], IGNORED)

    def log_probs(self, model: GPT) -> np.ndarray:
        """log p(y | x) of each answer (B,), in nats."""
        device = model.token_embedding.weight.device
        with no_grad():
            logits = model(Tensor(self.ids, device=device)).flatten(0, 1)
            losses = F.cross_entropy(logits, Tensor(self.targets.reshape(-1), device=device), reduction="none")
        return -losses.numpy().reshape(self.ids.shape).sum(1)

    def batch(self, weights: np.ndarray, like: Tensor) -> Batch:
        """ids (B, T) and targets (B, T, V): the token of each position, times the weight (B,) of its answer.

        Answers whose weight is 0 teach nothing and are left out.
        """
        rows = np.flatnonzero(weights) if weights.any() else np.array([0])
        ids, chosen, weights = self.ids[rows], self.targets[rows], weights[rows]
        places = np.nonzero(chosen != IGNORED)
        targets = np.zeros((*ids.shape, like.shape[0]), like.dtype)
        targets[*places, chosen[places]] = weights[places[0]]
        return Tensor(ids, device=like.device), Tensor(targets, device=like.device)


class RewardTask(AnswerTask):
    """Questions made by a program, answered by the model being trained, and points for its answers.

    Attributes:
        model: the model being trained, set by the training loop.
    """

    model: GPT
    measures = (*"exact drawn_right group_right reward entropy calls needless_calls".split(),)

    def __init__(self, options: GPTOptions, tokenizer: Tokenizer | None = None) -> None:
        super().__init__(options, tokenizer)
        self.reference = self._reference() if options.method == "dpo" else None

    def _reference(self) -> GPT:
        options, trained = self.options, load_trained(Path(self.options.reference))
        if trained.tokenizer.to_json() != self.tokenizer.to_json():
            raise CheckpointError(f"--reference {options.reference} has different tokens from the model being trained")
        say(f"reference {trained.about}")
        model = GPT.from_weights(trained.config, trained.weights, options.device, take=True)
        return model.to(options.device, options.weight_dtype).eval()

    def describe(self) -> str:
        """One line about the questions and the points."""
        options = self.options
        return (
            f"{options.dataset}: {counted(self.questions, 'question')} in each step, {options.group} answers to each; "
            f"points for {' and '.join(options.rewards)}; {options.method}; {len(self.sentences):,} questions held out"
        )

    @property
    def questions(self) -> int:
        """How many questions a micro-step has."""
        return self.options.batch_size // self.options.group

    def target_tokens(self, step: int) -> int:
        """The number of answers of an update."""
        return self.questions * self.options.group * self.options.gradient_accumulation_steps

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[Batch, float]]:
        """A process's questions of one update, with the answers of the model as it is now.

        Questions and answers are drawn with the keys (seed, step, micro-step), so a resumed run draws the same ones.
        """
        options, total = self.options, self.target_tokens(step)
        for micro_step in range(options.gradient_accumulation_steps):
            rng = keyed_rng(options.seed, "questions", step, micro_step)
            pairs = [question(rng, options.dataset) for _ in range(self.questions)]
            seed, first = int(rng.integers(2**31)), len(pairs) * rank // size
            pairs = pairs[first : len(pairs) * (rank + 1) // size]
            if not pairs:
                continue
            with self.model.evaluating():
                drawn = self.draw(self.reference or self.model, [text for text, _ in pairs], seed, first)
                log_ratios = np.zeros(len(drawn.said))
                if self.reference:
                    log_ratios = drawn.log_probs(self.model) - drawn.log_probs(self.reference)
            points = self.points(drawn, [right for _, right in pairs])
            found = weights(options.method, points, log_ratios.reshape(-1, options.group), options.beta)
            batch = drawn.batch(found.reshape(-1), self.model.token_embedding.weight)
            # The loss of a batch is the mean over all its positions; what is wanted is the mean over answers.
            yield batch, batch[0].numel() / total

    def draw(self, model: GPT, questions: Sequence[str], seed: int, first: int = 0) -> Drawn:
        """A group of answers to each question."""
        writer = with_calculator(model, self.tokenizer, self.options.dataset)
        return Drawn(writer, self.tokenizer, questions, self.options.group, seed, first)

    def points(self, drawn: Drawn, right: Sequence[str], names: Sequence[str] | None = None) -> np.ndarray:
        """The points (N, G) of answers to N questions, summed over all rewards."""
        wanted = [text for text in right for _ in range(self.options.group)]
        rewards = [REWARDS[name] for name in names or self.options.rewards]
        points = [sum(r(said, text) for r in rewards) for said, text in zip(drawn.said, wanted, strict=True)]
        return np.array(points, np.float64).reshape(len(right), -1)

    def improves(self, val_loss: float, best: float) -> bool:
        """Whether this is the best so far: the latest is, since lowering the validation loss is not the aim."""
        return True

    def report(self, model: GPT, val_loss: float) -> Report:
        """Shares of right answers to held-out questions: of drawn ones, groups with one, greedy ones; and their points.

        `entropy` is that of an answer, E[-log p(y | x)], in nats. `calls` is the share of the answers that call the
        calculator where there is something to calculate, `needless_calls` where a number is only to be repeated.
        """
        if not self.options.eval_pairs:
            return Report({}, "no questions were asked", "")
        questions, right = zip(*self.sentences[: self.options.eval_pairs], strict=True)
        drawn, greedy = self.draw(model, questions, seed=0), self.translate(model, list(questions))
        entropy = -float(drawn.log_probs(model).mean())
        is_right, exact = self.points(drawn, right, ["right"]) > 0, np.mean(np.array(greedy) == right)
        measures = {
            "exact": float(exact),
            "drawn_right": float(is_right.mean()),
            "group_right": float(is_right.any(1).mean()),
            "reward": float(self.points(drawn, right).mean()),
            "entropy": entropy,
        }
        words = (
            f"right: {measures['drawn_right']:.1%} of the drawn answers, {measures['group_right']:.1%} of the groups, "
            f"{exact:.1%} of the greedy ones; {measures['reward']:.2f} points, entropy {entropy:.2f} nats"
        )
        if self.options.dataset == CALCULATIONS:
            calls = np.array([OPEN in said for said in drawn.said]).reshape(is_right.shape)
            repeats = np.array([question.isdigit() for question in questions])
            for name, asked in (("calls", ~repeats), ("needless_calls", repeats)):
                measures[name] = float(calls[asked].sum() / max(1, calls[asked].size))
            words += f"; calls: {measures['calls']:.1%}, needless ones {measures['needless_calls']:.1%}"
        shown = list(zip(questions, greedy, right, strict=True))[: self.shown]
        return Report(measures, words, "\n".join(f"{q}\n  -> {said}\n  == {text}" for q, said, text in shown))
