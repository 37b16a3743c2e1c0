"""Few-shot prompts: a model that was never trained to classify is shown examples in its prompt, and continues them.

    Review: a gorgeous, witty, seductive movie.
    Sentiment: positive

    Review: the plot is paper-thin and so are the characters.
    Sentiment:

The answer is the label that is the likelier continuation, by the sum of the log-probabilities of its tokens. No weight
changes. With no example the model has only the form of the prompt to go by (zero-shot).

    python -m studies.few_shot smollm2                                   0, 1 and 4 examples, on 100 sentences each
    python -m studies.few_shot smollm2 --examples 0,1,2,4,8 --questions 400
    python -m studies.few_shot out/goethe --table my.csv                 any GPT, your own texts and labels

The questions are sentences of the held-out test part, the same for every number of examples; the examples are drawn
from the training part, the same number for each label, up to one. Each accuracy is followed by Wilson's 95 % interval.
It says how far other *questions* could move it, not other *examples*, which matter too: compare several --seed.

The model reads the examples once: for each question it forgets the question before, and keeps the keys and values of
the rest (`RememberingModel`).

Reference: Brown et al. 2020, "Language Models are Few-Shot Learners" (arXiv:2005.14165).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpt.chat import RememberingModel
from gpt.family import FAMILY
from studies.program import program
from tinygrad_lite.device import keyed_rng
from tinygrad_lite.errors import OptionError, counted
from workshop.cli.console import run_command, say
from workshop.cli.options import option, whole_numbers
from workshop.corpora.reviews import Labelled
from workshop.corpora.tables import load_labelled
from workshop.decoding.scores import with_interval
from workshop.run.run_folder import tune_memory


@dataclass
class FewShotOptions:
    """The options of the measurement."""

    examples: str = option("0,1,4", "numbers of examples in the prompt, such as 0,1,4")
    questions: int = option(100, "texts to classify", unit="texts", low=1)
    table: str = option("reviews", "texts with labels: reviews, or a CSV file")
    ask: str = option("Review", "what the prompt calls a text")
    reply: str = option("Sentiment", "what the prompt calls a label")
    show: bool = option(False, "print the first prompt of each number")
    seed: int = option(1337, "random seed of the questions and of the examples", low=0)
    device: str = option("cpu", "where to compute", choices=("cpu", "cuda", "auto"))


@program("studies.few_shot", FewShotOptions, "MODEL", "smollm2")
def main(options: FewShotOptions, name: str) -> None:
    """Classify texts by prompts with examples."""
    tune_memory()
    counts = whole_numbers(options.examples, "--examples", "0,1,4")
    data = load_labelled(options.table)
    if data.are_pairs:
        raise OptionError(f"--table {options.table}: a prompt asks about one text, but this table has pairs")
    if max(counts) > len(data.train):
        raise OptionError(f"--examples {max(counts)}: {data.name} has only {len(data.train):,} texts for training")
    trained = FAMILY.read(Path(name))
    say(trained.about)
    model = RememberingModel(trained.make_model(options.device))
    encode, block_size = trained.tokenizer.encode, trained.config.block_size
    labels = [encode(f" {label}") for label in data.labels]
    order = keyed_rng(options.seed, "questions").permutation(len(data.test))[: options.questions]
    questions = [data.test[i] for i in order]
    [(often, times)] = Counter(label for _, label in questions).most_common(1)
    print(f"always {data.labels[often]}: {with_interval(times, len(questions))} of {len(questions):,} are right")
    for count in counts:
        shown = balanced(data.train, len(data.labels), count, options.seed)
        begin = "".join(f"{asked(options, text)} {data.labels[label]}\n\n" for text, label in shown)
        prompts = [trained.tokenizer.encode_whole(begin + asked(options, text)) for text, _ in questions]
        longest = max(map(len, prompts)) + max(map(len, labels))
        if longest > block_size:
            shots = counted(count, "example")
            raise OptionError(f"a prompt with {shots} has {longest:,} tokens; this model reads {block_size:,}")
        if options.show:
            say(begin + asked(options, questions[0][0]))
        guesses = [int(np.argmax(label_log_probs(model, prompt, labels))) for prompt in prompts]
        right = sum(guess == label for guess, (_, label) in zip(guesses, questions, strict=True))
        said = ", ".join(f"{name} {guesses.count(i) / len(guesses):.0%}" for i, name in enumerate(data.labels))
        print(f"{counted(count, 'example')}: {with_interval(right, len(questions))} right; said {said}", flush=True)


def asked(options: FewShotOptions, text: str) -> str:
    """The lines of a text, up to its label."""
    return f"{options.ask}: {text}\n{options.reply}:"


def balanced(texts: Sequence[Labelled], labels: int, count: int, seed: int) -> list[Labelled]:
    """Texts drawn with the key (seed, count), the same number for each label, up to one; in random order.

    Raises: OptionError if there are too few.
    """
    rng = keyed_rng(seed, "examples", count)
    wanted = np.resize(rng.permutation(labels), count)
    chosen: list[Labelled] = []
    for label in range(labels):
        own, needed = [entry for entry in texts if entry[1] == label], int((wanted == label).sum())
        if needed > len(own):
            raise OptionError(f"--examples {count}: the label {label} has only {counted(len(own), 'text')}")
        chosen += [own[i] for i in rng.permutation(len(own))[:needed]]
    return [chosen[i] for i in rng.permutation(count)]


def label_log_probs(model: RememberingModel, prompt: list[int], labels: Sequence[Sequence[int]]) -> list[float]:
    """ln p(label | prompt) of each label: the sum over its tokens, each given those before it."""
    first, _ = model.start(np.array([prompt]))
    totals = [float(first[0, label[0]]) for label in labels]
    for i, label in enumerate(labels):
        for n in range(1, len(label)):
            log_probs, _ = model.start(np.array([[*prompt, *label[:n]]]))
            totals[i] += float(log_probs[0, label[n]])
    return totals


if __name__ == "__main__":
    run_command("studies.few_shot", main)
