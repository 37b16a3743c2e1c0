"""Few-shot prompts: a model that was never trained to classify is shown examples in its prompt, and continues them.

    python docs/course/17-encoders/few_shot.py 300 1337     SmolLM2, 300 questions, and the seed that draws them

The prompt has 0, 1 or 4 sentences of `reviews` with their labels, from the training part, and then a sentence of the
test part without one. The answer is the label that is the likelier continuation. No weight changes.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from extra.chat.interactive import RememberingModel
from extra.corpora.tables import load_labelled
from extra.encoders.classes import with_interval
from extra.families import GPT
from tinygrad_lite.errors import OptionError
from tinygrad_lite.random import keyed_rng
from training.cli.console import run_command


def prompt_of(text: str, label: str = "") -> str:
    """An example with its label, or a question that ends where the label would follow."""
    return f"Review: {text}\nSentiment:" + (f" {label}\n\n" if label else "")


def balanced(texts: Sequence[tuple[str, int]], labels: int, count: int, seed: int) -> list[tuple[str, int]]:
    """Texts drawn with the key (seed, count), the same number for each label, up to one; in random order."""
    rng = keyed_rng(seed, "examples", count)
    wanted = np.resize(rng.permutation(labels), count)
    chosen = []
    for label in range(labels):
        own = [entry for entry in texts if entry[1] == label]
        chosen += [own[i] for i in rng.permutation(len(own))[: int((wanted == label).sum())]]
    return [chosen[i] for i in rng.permutation(count)]


def log_prob(model: RememberingModel, prompt: list[int], label: list[int]) -> float:
    """ln p(label | prompt): the sum over its tokens, each given those before it."""
    ahead = range(len(label))
    return sum(float(model.start(np.array([[*prompt, *label[:n]]]))[0][0, label[n]]) for n in ahead)


def main(argv: list[str]) -> int:
    """Print the share of right answers for 0, 1 and 4 examples."""
    if len(argv) not in (0, 2) or not all(map(str.isdecimal, argv)):
        raise OptionError("name two whole numbers, of questions and a seed, such as 100 1337")
    count, seed = map(int, argv or ("100", "1337"))
    data, trained = load_labelled("reviews"), GPT.read(Path("smollm2"))
    model, tokenizer = RememberingModel(trained.make_model()), trained.tokenizer  # it reads equal beginnings once
    labels = [tokenizer.encode(f" {label}") for label in data.labels]
    questions = [data.test[i] for i in keyed_rng(seed, "questions").permutation(len(data.test))[:count]]
    for shots in (0, 1, 4):
        shown = balanced(data.train, len(labels), shots, seed)
        begin = "".join(prompt_of(text, data.labels[label]) for text, label in shown)
        guesses = []
        for text, _ in questions:
            prompt = tokenizer.encode_whole(begin + prompt_of(text))
            guesses.append(int(np.argmax([log_prob(model, prompt, label) for label in labels])))
        right = sum(guess == label for guess, (_, label) in zip(guesses, questions, strict=True))
        said = ", ".join(f"{name} {guesses.count(i) / count:.0%}" for i, name in enumerate(data.labels))
        print(f"{shots} examples: {with_interval(right, count)} right; said {said}", flush=True)
    return 0


if __name__ == "__main__":
    run_command(Path(sys.argv[0]).name, main, __doc__)
