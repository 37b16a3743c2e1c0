"""Word vectors from a bag of words, without a Transformer: what are they worth to one?

    python train.py goethe --tie_weights false --max_iters 0 --out_dir out/untrained
    python docs/course/17-encoders/cbow.py out/untrained            a minute; writes out/cbow
    python train.py goethe --tie_weights false --init_from out/cbow

A token is predicted from the mean of the vectors of the four tokens before it and the four after it, whose order does
not matter: mean -> linear map -> logits. It is the model CBOW of word2vec (Mikolov et al. 2013, arXiv:1301.3781), with
the whole softmax. The script prints the nearest neighbours of some tokens, and writes the vectors into the table of an
untrained model, as long on average as those that were there.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from extra.plots.vectors import NeighbourOptions, draw_neighbours
from text.tokenizers import tokenizer_from_json
from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite import functional as F
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from tinygrad_lite.nn import Embedding, Linear, Module
from tinygrad_lite.optim import AdamW
from training.checkpoint import load_checkpoint, save_checkpoint
from training.cli.command_line import read_command
from training.cli.console import run_command
from training.corpora.texts import load_corpus
from training.folder import find_checkpoint

AROUND = np.array([-4, -3, -2, -1, 1, 2, 3, 4])
TABLE = "token_embedding.weight"


@dataclass
class CbowOptions:
    """The options of the experiment."""

    max_iters: int = option(2000, "updates", low=1)
    batch_size: int = option(512, "tokens to predict in an update", low=1)
    learning_rate: float = option(3e-3, "falls to 0", above=0)
    seed: int = option(1337, "random seed", low=0)
    tokens: list[str] = option(["wenn", "ist", "mein", "der", "ich"], "tokens whose neighbours to show")
    out: str = option("out/cbow/last.safetensors", "checkpoint to write", is_path=True)


class Bag(Module):
    """The mean of the neighbours' vectors, and a linear map to logits."""

    def __init__(self, vocab_size: int, width: int) -> None:
        self.vectors, self.output = Embedding(vocab_size, width), Linear(width, vocab_size, bias=False)

    def forward(self, around: Tensor) -> Tensor:
        """(B, 8) tokens -> (B, V)."""
        return self.output(self.vectors(around).mean(axis=1))


def train(model: Bag, tokens: np.ndarray, options: CbowOptions) -> float:
    """Learn from random places of a text; the mean loss of the last tenth, in bits per token."""
    optimizer = AdamW(model.parameters(), lr=options.learning_rate)
    rng, losses = np.random.default_rng(options.seed), []
    for step in range(options.max_iters):
        places = rng.integers(4, len(tokens) - 4, options.batch_size)
        optimizer.lr = options.learning_rate * (1 - step / options.max_iters)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(Tensor(tokens[places[:, None] + AROUND])), Tensor(tokens[places]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return float(np.mean(losses[-max(1, len(losses) // 10) :]) / np.log(2))


def main(argv: list[str]) -> int:
    """Learn vectors, print their neighbours, and write them into a checkpoint."""
    about = "Learn vectors from bags of words, and put them into an untrained model."
    command = "python docs/course/17-encoders/cbow.py"
    options, names = read_command(CbowOptions, argv, command, about, "CHECKPOINT")
    if Path(options.out).suffix != ".safetensors":
        raise OptionError(f"--out {options.out}: the checkpoint to write is a .safetensors")
    checkpoint = load_checkpoint(find_checkpoint(Path(names[0] if names else "out/untrained")))
    tokenizer = tokenizer_from_json(checkpoint.tokenizer)
    text, _ = load_corpus(checkpoint.training["dataset"]).split()
    manual_seed(options.seed)
    before = checkpoint.weights[TABLE]
    model = Bag(*before.shape)
    model.vectors.weight.data *= 0.02  # small beside what is learned
    bits = train(model, np.array(tokenizer.encode(text)), options)
    vectors = model.vectors.weight.numpy()
    print(f"{bits:.2f} bits per token from the bag of its eight neighbours\n")
    print(draw_neighbours(tokenizer, vectors, "bags of words", NeighbourOptions(tokens=options.tokens, top=5)).text)
    scale = np.sqrt((before**2).mean() / (vectors**2).mean())
    weights = checkpoint.weights | {TABLE: np.float32(scale * vectors)}
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(Path(options.out), replace(checkpoint, weights=weights))
    return 0


if __name__ == "__main__":
    run_command("cbow", main)
