"""Checks of chapter 8."""

import itertools

import numpy as np
from compare import same
from gpt_numpy import gpt

from gpt.config import GPTConfig
from gpt.model import GPT
from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite import functional as F
from tinygrad_lite.nn import shapes_only


def parameters(exercise):
    """Two tables, 12 C² and two norms in each block, a final norm; an untied lm_head is one more V C."""
    for v, t, n, c, tied in ((7, 5, 1, 4, True), (7, 5, 3, 8, True), (11, 6, 2, 4, False)):
        with shapes_only():
            config = GPTConfig(vocab_size=v, block_size=t, n_layer=n, n_head=2, n_embd=c, tie_weights=tied)
            right = GPT(config).num_parameters()
        got = exercise.parameters(v, t, n, c, tied)
        size = "few" if right > got else "many"
        assert got == right, (
            f"{got} is too {size} for vocab_size {v}, block_size {t}, n_layer {n}, n_embd {c}, tied {tied}"
        )


def batch(exercise):
    """A window has block_size + 1 tokens; the ids are all but its last, the targets all but its first."""
    tokens = np.random.default_rng(0).permutation(20)  # all different
    following = dict(zip(tokens.tolist(), tokens.tolist()[1:], strict=False))
    starts = np.array([3, 15, 0, 3])
    for size in (4, 1):
        ids, targets = map(np.asarray, exercise.batch(tokens, starts, size))
        assert ids.shape == targets.shape == (4, size), f"the shapes are {ids.shape} and {targets.shape}"
        assert (ids[:, 0] == tokens[starts]).all(), "the windows do not begin at the starts"
        for row in ids.tolist():
            steps = [following.get(token) == after for token, after in itertools.pairwise(row)]
            assert all(steps), "a row of ids is not a piece of the text"
        is_next = [following.get(i) == t for i, t in zip(ids.ravel().tolist(), targets.ravel().tolist(), strict=True)]
        assert all(is_next), "a target is not the token after its id"


def tied_gradient(exercise):
    """Input: add row t of d_embedded to row ids[t], even where a token repeats. Output: like a linear map's weight."""
    rng = np.random.default_rng(0)
    ids = np.array([2, 0, 2, 5, 2])
    d_embedded, x, d_logits = rng.standard_normal((5, 3)), rng.standard_normal((5, 3)), rng.standard_normal((5, 7))

    def compare(d_embedded, d_logits, part):
        table = Tensor(np.zeros((7, 3)), requires_grad=True)
        at_input = (F.embedding(Tensor(ids), table) * Tensor(d_embedded)).sum()
        at_output = (F.linear(Tensor(x), table) * Tensor(d_logits)).sum()
        (at_input + at_output).backward()
        got = exercise.tied_gradient(ids.copy(), d_embedded.copy(), x.copy(), d_logits.copy(), 7)
        same(got, table.grad.numpy(), part, rtol=0, atol=1e-9)

    compare(d_embedded, 0 * d_logits, "the part of the input")
    compare(0 * d_embedded, d_logits, "the part of the output")
    compare(d_embedded, d_logits, "both parts are right, but not together")


def continue_text(exercise):
    """The logits have the shape (1, T, V); those about the next token are the last: [0, -1]. Copy the ids."""
    manual_seed(0)
    model = GPT(GPTConfig(vocab_size=11, block_size=6, n_layer=1, n_head=2, n_embd=8))
    for _, parameter in model.named_parameters():
        parameter.data *= 20  # so that the most probable token depends on the context
    for prompt, count in (([3, 1, 4], 3), ([3, 1, 4, 1, 5, 9, 2, 6], 4), ([2], 9)):
        given = list(prompt)
        got = exercise.continue_text(model, given, count)
        assert given == prompt, "the given list has been changed: make a copy"
        assert len(got) == len(prompt) + count, f"yours has {len(got)} tokens, it must have {len(prompt)} + {count}"
        assert list(got[: len(prompt)]) == prompt, "the result does not begin with the given tokens"
        right = list(prompt)
        for _ in range(count):
            right.append(int(gpt(model.state_dict(), right[-6:], 1, 2)[-1].argmax()))
        wrong = [place for place, pair in enumerate(zip(got, right, strict=True)) if pair[0] != pair[1]]
        assert not wrong, f"after {prompt}, with a block_size of 6, token {wrong[0]} is not the most probable one"
