"""How many hidden words does BERT guess, and how many does a GPT guess that sees only what precedes them?

    python docs/extra/compare_encoders.py out/bert-goethe out/gpt    the same hidden tokens of the same held-out text
    python docs/extra/compare_encoders.py out/bert-goethe            compared only with counting

15 % of the tokens are hidden, whatever share was hidden in training. Both must have the same tokens: BPE learned from
the same text, with a vocabulary for the GPT that is smaller by BERT's five specials. The GPT reads the true tokens
before the hidden one, where BERT reads [MASK] or a wrong token for some of them. Counting always guesses the most
frequent token. The standard error of a difference is computed over pairs: for each hidden token there is one answer
from either model.
"""

import math
from pathlib import Path

import numpy as np

from extra.encoders.bert import Bert
from extra.encoders.family import BERT as FAMILY
from extra.encoders.options import BertOptions
from extra.encoders.words import MaskedSequence, WordsTask, are_guessed
from extra.gpt.trained import load_trained as load_gpt
from gpt.model import GPT
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import OptionError, counted
from tinygrad_lite.tensor import Tensor
from training.checkpoint import load_checkpoint
from training.cli.console import run_command, say

USAGE = "usage: python docs/extra/compare_encoders.py BERT [GPT]    (checkpoints or folders of runs)"


def main(argv: list[str]) -> int:
    """Print the table; returns the exit status."""
    if not 1 <= len(argv) <= 2 or any(word.startswith("-") for word in argv):
        raise OptionError(f"one or two arguments are needed; {USAGE}")
    trained = FAMILY.load(Path(argv[0]))
    if trained.config.objective != "words":
        raise OptionError(f"{argv[0]} does not predict words: its objective is {trained.config.objective}")
    say(trained.about)
    saved = load_checkpoint(trained.path).training
    options = BertOptions.of(**{name: saved[name] for name in ("dataset", "seed", "block_size")})
    task = WordsTask(options, trained.tokenizer)
    if task.corpus_sha256 != trained.corpus_sha256:
        raise OptionError(f"{argv[0]} did not learn from {options.dataset}")
    common = int(np.bincount(task.data.train.tokens).argmax())
    answers = {
        "BERT": bert_answers(trained.make_model(), task),
        "counting": np.concatenate([one.targets == common for one in task.held_out]),
    }
    if len(argv) == 2:
        gpt = load_gpt(Path(argv[1]))
        say(gpt.about)
        if getattr(gpt.tokenizer, "merges", None) != getattr(trained.tokenizer, "merges", ()):
            size = trained.tokenizer.vocab_size - len(trained.tokenizer.specials)
            raise OptionError(f"{argv[1]} has different tokens: train it with --tokenizer bpe --vocab_size {size}")
        answers["GPT"] = gpt_answers(gpt.make_model(), task.held_out)
    # The first token of a sequence has nothing before it, so no model is asked for it.
    asked = np.concatenate([one.places > 1 for one in task.held_out])
    print(f"{counted(asked.sum(), 'hidden token')} of the held-out part of {options.dataset}\n")
    print("| | guessed | BERT guesses more by |\n|---|---|---|")
    for name, right in answers.items():
        gap = (answers["BERT"].astype(float) - right)[asked]
        error = gap.std() / math.sqrt(len(gap))
        more = "" if name == "BERT" else f"{gap.mean():.1%} ± {error:.1%}"
        print(f"| {name} | {right[asked].mean():.1%} | {more} |")
    return 0


def bert_answers(model: Bert, task: WordsTask) -> np.ndarray:
    """Whether each hidden token is guessed: (N,) booleans."""
    right = []
    for first in range(0, len(task.held_out), task.options.batch_size):
        batch = task.data.batch(task.held_out[first : first + task.options.batch_size])
        with no_grad():
            right.append(are_guessed(model, model(batch.ids, batch.segments), batch))
    return np.concatenate(right)


def gpt_answers(model: GPT, sequences: list[MaskedSequence]) -> np.ndarray:
    """The same for a GPT, which reads what precedes each hidden token."""
    right = []
    for one in sequences:
        text = one.ids.copy()
        text[one.places] = one.targets
        with no_grad():  # the logits at t are those of the token at t + 1; [CLS] and [SEP] are not read
            logits = model(Tensor(text[None, 1:-1][:, -model.config.block_size :])).numpy()[0]
        right.append(logits[np.maximum(one.places - 2, 0)].argmax(-1) == one.targets)
    return np.concatenate(right)


if __name__ == "__main__":
    run_command("compare_encoders", main, __doc__)
