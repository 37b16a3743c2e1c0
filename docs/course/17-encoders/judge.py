"""Which words did a prediction come from? Four answers, compared with what happens when a word is hidden.

    python docs/course/17-encoders/judge.py            out/bert-goethe, after python train.py bert-goethe

A BERT predicts the word at a [MASK]. How much did each other token contribute to the logit l of its answer?

    attention     the weights A of the last layer, mean of the heads
    rollout       through all layers: R = (A_L / 2 + I / 2) ... (A_1 / 2 + I / 2)
    gradient      |dl/dx|, the length of the gradient with respect to the token's embedding
    relevance     rollout of those weights only that the answer wants larger: with C the mean over the heads of the
                  positive parts of A dl/dA, R starts as I and becomes R + C R in each layer

The row of the [MASK] is the answer. Relevance is from Chefer, Gur, Wolf 2021 (arXiv:2103.15679), section 3. It needs
dl/dA, so attention is computed by the reference version, and a `Graph` keeps the gradients of what is computed on the
way. The judge hides each token in turn, and measures by how much l falls.
"""

import sys
from pathlib import Path

import numpy as np

from extra.encoders.bert import Bert
from extra.encoders.family import BERT
from extra.encoders.looking import rollout
from extra.encoders.words import with_marks
from extra.studies.program import NoOptions, program
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite.debug.graph import Graph
from tinygrad_lite.errors import OptionError
from tinygrad_lite.functional.registry import composed
from training.cli.console import run_command
from training.corpora.texts import load_corpus

TEXTS, LENGTH, SEED = 200, 20, 1337


def logits(model: Bert, ids: np.ndarray, place: int) -> Tensor:
    """The logits (B, V) of the word at a place in sequences (B, T)."""
    return model.words(model(Tensor(ids))[:, place])


def answers(model: Bert, ids: np.ndarray, place: int) -> dict[str, np.ndarray]:
    """What each method says of every token (T,)."""
    with composed(), Graph() as graph:
        found = logits(model, ids[None], place)
        found[0, int(found.numpy().argmax())].backward()
    shape = (1, model.config.n_head, len(ids), len(ids))
    made = [(x, inputs) for x, inputs in graph.parents.items() if inputs]
    weights = [inputs[0] for x, inputs in made if x.op == "matmul" and inputs[0].shape == shape]
    attention = np.stack([a.numpy()[0] for a in weights])
    whole = np.eye(len(ids))
    for a, gradient in zip(attention, (a.grad.numpy()[0] for a in weights), strict=True):
        whole = whole + np.clip(a * gradient, 0, None).mean(axis=0) @ whole
    first = next(x for x, inputs in made if x.shape == (1, len(ids), model.config.n_embd))
    return {
        "attention": attention[-1].mean(axis=0)[place],
        "rollout": rollout(attention)[place],
        "gradient": np.linalg.norm(first.grad.numpy()[0], axis=-1),
        "relevance": whole[place],
    }


def falls(model: Bert, ids: np.ndarray, place: int) -> np.ndarray:
    """By how much the logit of the answer falls if each token alone is hidden: (T,)."""
    texts = np.repeat(ids[None], 1 + len(ids), axis=0)
    texts[1 + np.arange(len(ids)), np.arange(len(ids))] = model.config.mask
    with no_grad():
        found = logits(model, texts, place).numpy()
    answer = found[0].argmax()
    return found[0, answer] - found[1:, answer]


@program("docs/course/17-encoders/judge.py", NoOptions, "CHECKPOINT")
def main(_: NoOptions, name: str = "out/bert-goethe") -> None:
    """Print how well each method agrees with the judge."""
    trained = BERT.read(Path(name))
    if trained.config.objective != "words" or trained.config.block_size < LENGTH + 2:
        raise OptionError(f"{trained.path} does not predict hidden words in {LENGTH + 2} tokens, as bert-goethe does")
    model, tokenizer = trained.make_model(), trained.tokenizer
    tokens = np.array(tokenizer.encode(load_corpus("goethe").split()[1]))
    rng, agreed, near = np.random.default_rng(SEED), {}, []
    for start in rng.integers(len(tokens) - LENGTH, size=TEXTS):
        ids, _ = with_marks(tokenizer, [tokens[start : start + LENGTH]])
        place = 1 + rng.integers(LENGTH)
        ids[place] = model.config.mask
        others = np.setdiff1d(np.arange(1, LENGTH + 1), [place])
        fall = falls(model, ids, place)[others]
        near.append(abs(others[fall.argmax()] - place) == 1)
        for name, answer in (answers(model, ids, place) | {"chance": rng.random(len(ids))}).items():
            ranks = [np.argsort(np.argsort(x)) for x in (answer[others], fall)]
            agreed.setdefault(name, []).append((np.corrcoef(*ranks)[0, 1], answer[others].argmax() == fall.argmax()))
    print(f"{'':<12}rank correlation   the same first")
    for name, rows in agreed.items():
        correlation, first = np.mean(rows, axis=0)
        print(f"{name:<12}{correlation:16.2f}{first:17.0%}")
    print(f"The judge's first token is next to the [MASK] in {np.mean(near):.0%} of the texts.")


if __name__ == "__main__":
    run_command(Path(sys.argv[0]).name, main)
