"""Learn from other GPTs: a part of each target is what they predict ("distillation").

The text says which token came next, but nothing about the others that could have come. A trained model, the teacher,
says how probable each of them was. So the target of a position is not the token t alone but a distribution,

    w_v = (1 - a) [v = t] + a mean_k q_k(v)        q_k: what teacher k predicts, from the same tokens before

and since cross-entropy is linear in its target, the loss is (1 - a) times that of the text plus a times that of the
teachers' mean. What they have learned from the text beyond its regularities differs from teacher to teacher, and most
of it disappears in the mean: a model that learns from it can become better than each of them.

Reference: Hinton, Vinyals, Dean 2015, "Distilling the Knowledge in a Neural Network" (arXiv:1503.02531), at temperature
1; Buciluǎ, Caruana, Niculescu-Mizil 2006, "Model Compression".
"""

from collections.abc import Iterator
from pathlib import Path

from extra.gpt.data import MixedTask
from extra.gpt.options import GPTOptions
from extra.gpt.trained import load_trained
from gpt.data import Batch
from gpt.model import GPT
from text.tokenizers.base import Tokenizer
from tinygrad_lite import functional as F
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.tensor import Tensor
from training.cli.console import say


class TaughtTask(MixedTask):
    """A training text, and the GPTs of `--teachers`, which supply a share of every target. Each process has them all.

    Raises: CheckpointError if one learned from another text, which may include what is held out here, or has other
        tokens; OptionError if its context is too short.
    """

    def __init__(self, options: GPTOptions, tokenizer: Tokenizer | None = None) -> None:
        super().__init__(options, tokenizer)
        self.teachers = [self._teacher(name) for name in options.teachers]

    def _teacher(self, name: str) -> GPT:
        """The teacher in a checkpoint or a run's folder, ready to predict."""
        options, trained = self.options, load_trained(Path(name))
        if trained.corpus_sha256 != self.corpus_sha256:
            raise CheckpointError(f"--teachers {name}: it learned from a different text from {self.data.corpus.name}")
        if trained.tokenizer.to_json() != self.tokenizer.to_json():
            raise CheckpointError(f"--teachers {name}: it has different tokens: give both runs the same tokenizer")
        if (size := trained.config.block_size) < options.config.block_size:
            raise OptionError(f"--teachers {name}: it reads {size} tokens at once: use --block_size {size}, or less")
        say(f"teacher {trained.about}")
        # Not `make_model`: whether operations are composed is decided by this run, not by a teacher.
        model = GPT.from_weights(trained.config, trained.weights, options.device, take=True)
        return model.to(options.device, options.weight_dtype).eval()

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[Batch, float]]:
        """As for a text alone, with distributions (B, T, V) in place of the targets."""
        for (ids, targets), share in super().batches(step, rank, size):
            yield (ids, self.distributions(ids, targets)), share

    def distributions(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The distributions (B, T, V) to learn, for ids and the tokens after them, both (B, T)."""
        share = self.options.teachers_share
        with no_grad():
            w = sum(F.softmax(model(ids)) for model in self.teachers) * (share / len(self.teachers))
        rows = w.data.reshape(-1, w.shape[-1])
        rows[w.xp.arange(len(rows)), targets.data.reshape(-1)] += 1 - share
        return w
