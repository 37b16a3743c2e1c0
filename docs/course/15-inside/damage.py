"""Brain damage: the loss of a GPT from which a growing share of its weights, or of its attention heads, is removed.

    python docs/course/15-inside/damage.py out/goethe                                     a table: loss against share
    python docs/course/15-inside/damage.py out/goethe --plot damage.svg --csv damage.csv  also a plot, and every number
    python docs/course/15-inside/damage.py smollm2 --dataset imdb --characters 4000 --seeds 1,2 --shares 0.1,0.5

Removing a weight means setting it to 0; nothing is trained afterwards. What is removed (`WAYS`):

    random weights           of each linear map of the blocks, drawn for each seed
    smallest weights         of each of these matrices, by magnitude
    random heads             of all layers together
    least important heads    of all layers together, by the measure below

Of n things, the share s removes round(s n), those with the smallest keys: a random number, |w|, or the importance. So a
larger share removes everything that a smaller one does, and more. Embeddings, norms and the output matrix stay.

**Which heads matter.** Let a factor m_h, which is 1, multiply what head h adds to the stream. Removing the head is
m_h = 0, and to first order changes the loss L by -dL/dm_h. The importance of a head is the mean over windows x of text

    I_h = mean_x |dL(x) / dm_h|

In y = concat(o_1 .. o_H) W^T, where W_h are the columns of W for head h, y = sum_h m_h W_h o_h. With g = dL/dy at each
position t,

    dL/dm_h = sum_t g_t . (W_h o_ht) = sum_ij W_h,ij sum_t g_t,i o_ht,j = sum_ij W_h,ij (dL/dW_h)_ij

so the gradient of W yields it for all heads at once. It is taken from text of the training part, never from the text on
which the loss is then measured.

References: Le Cun, Denker, Solla 1990 ("Optimal Brain Damage"), who remove weights by their effect on the loss, to
second order, and call removing the smallest a reasonable start; Michel, Levy, Neubig 2019 ("Are Sixteen Heads Really
Better than One?", arXiv:1905.10650), section 4.1, whose importance this is, not normalised by layer.
"""

import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from without import without, without_heads

from extra.families import GPT as FAMILY
from extra.inside.gpt import check_attention
from extra.plots.figure import COLOURS, MARKERS, Picture, check_plot, plain_axes, write_each
from extra.studies.program import numbers, program
from gpt.model import GPT
from gpt.score import score
from tinygrad_lite.config import option
from tinygrad_lite.errors import CorpusError, OptionError
from tinygrad_lite.nn import Linear
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor
from training.cli.console import run_command, say, show

sys.path.insert(0, str(Path(__file__).parents[1]))
from held_out import MODELS, HeldOutOptions, named_text, whole_numbers

WAYS = ("random weights", "smallest weights", "random heads", "least important heads")
WINDOWS, WINDOW = 100, 128  # of the training part for the importance of heads: the maximum number, and tokens in each


@dataclass
class DamageOptions(HeldOutOptions):
    """The options of `python docs/course/15-inside/damage.py`."""

    characters: int = option(0, "use only the first N characters of each part; 0: all", unit="characters", low=0)
    text: list[str] = option([], "files to use instead, of which the last tenth is predicted", is_path=True)
    shares: str = option("0.0625,0.125,0.25,0.375,0.5,0.625,0.75,0.875,1", "what is removed, from 0 to 1")
    seeds: str = option("1,2,3,4,5", "a draw of random weights and heads for each")
    plot: str = option("", "plot to write: .svg, .png or .pdf", is_path=True)
    csv: str = option("", "file for the numbers of every draw: .csv", is_path=True)


@program("docs/course/15-inside/damage.py", DamageOptions, "CHECKPOINT", "out/goethe", about_positional=MODELS)
def main(options: DamageOptions, name: str) -> None:
    """The loss of a GPT without a share of its weights or heads."""
    what = "numbers above 0 and at most 1, such as 0.1,0.5,1"
    shares = numbers(options.shares, "--shares", what, lambda share: 0 < share <= 1)
    seeds = whole_numbers(options.seeds, "--seeds", "1,2,3")
    if options.plot:
        check_plot(options.plot, "--plot")
    if options.csv and Path(options.csv).suffix != ".csv":
        raise OptionError(f"--csv {options.csv}: must end with .csv")
    files = [file for file in (options.csv, options.plot) if file]
    for file in files:
        if not Path(file).parent.is_dir():
            raise OptionError(f"{file}: there is no folder {Path(file).parent}; make it first")
    trained = FAMILY.read(Path(name))
    say(trained.about)
    corpus = named_text(options, trained)
    learned, held_out = (part[: options.characters or None] for part in corpus.split())
    corpus = replace(corpus, text=held_out)
    model = trained.make_model()

    def loss() -> float:
        return score(model, trained.tokenizer, corpus).bits_per_character

    undamaged = loss()
    importance = head_importance(model, np.array(trained.tokenizer.encode(learned)))
    show(f"{'share':>7}" + "".join(f"{way:>23}" for way in WAYS) + "    bits per character")
    show(f"{0:>7.2%}" + f"{undamaged:>23.4f}" * len(WAYS))
    found = {(way, 0.0): [(0, undamaged)] for way in WAYS}
    for share in shares:
        show(f"{share:>7.2%}", end="")
        for way in WAYS:
            drawn = found[way, share] = []
            for seed in seeds if way.startswith("random") else [0]:
                with damaged(model, way, share, seed, importance):
                    drawn.append((seed, loss()))
            mean, deviation = mean_and_deviation(drawn)
            show(f"{mean:.4f}{f' ± {deviation:.4f}' if len(drawn) > 1 else ''}".rjust(23), end="")
        show()
    write_each(picture_of(found, f"{name} without a share of its weights or heads"), *files)


# --- removing -------------------------------------------------------------------------------------------------


def damaged(model: GPT, way: str, share: float, seed: int, importance: np.ndarray) -> AbstractContextManager[None]:
    """Within this context a share of the model's weights or heads is missing, in one of `WAYS`.

    Args:
        seed: of the random draws; with the same seed, a larger share removes everything that a smaller one does, and
        more. importance: (L, H), which orders the removal of heads, the least first.
    """
    if way in WAYS[:2]:
        parts = []
        for name, linear in linear_maps(model):
            w = linear.weight
            keys = np.abs(w.data).ravel() if way == WAYS[1] else keyed_rng(seed, f"damage {name}").random(w.data.size)
            parts.append((w, np.unravel_index(smallest(keys, share), w.shape)))
        return without(parts)
    shape = (len(model.blocks), model.config.n_head)
    keys = importance if way == WAYS[-1] else keyed_rng(seed, "damage heads").random(shape)
    return without_heads(model, [divmod(place, shape[1]) for place in smallest(keys.ravel(), share).tolist()])


def linear_maps(model: GPT) -> list[tuple[str, Linear]]:
    """The linear maps of all blocks, by their dotted names."""
    modules = model.named_modules()
    return [(name, part) for name, part in modules if isinstance(part, Linear) and name.startswith("blocks.")]


def smallest(keys: np.ndarray, share: float) -> np.ndarray:
    """The places of the round(share n) smallest of n numbers."""
    count = round(share * len(keys))
    return np.sort(np.argpartition(keys, count - 1)[:count]) if count else np.empty(0, np.intp)


def head_importance(model: GPT, tokens: np.ndarray, windows: int = WINDOWS) -> np.ndarray:
    """How much the loss depends on each head: (L, H), the mean of |dL/dm_h| over windows of text.

    Args:
        tokens: (N,), from which evenly spaced windows that do not overlap are read.
        windows: the maximum number.
    Raises: CorpusError if there are fewer than two tokens; UserError if the model has no attention.
    """
    check_attention(model)
    if len(tokens) < 2:
        raise CorpusError("the text has too few tokens to tell which heads matter: use a longer one")
    size = min(model.config.block_size, WINDOW, len(tokens) - 1)
    starts = np.linspace(0, len(tokens) - 1 - size, min(windows, (len(tokens) - 1) // size)).astype(int)
    matrices = [block.mixer.output.weight for block in model.blocks]
    total = np.zeros((len(matrices), model.config.n_head))
    model.eval()
    for start in starts:
        ids = Tensor(tokens[None, start : start + size + 1], dtype=np.int64, device=matrices[0].device)
        model.zero_grad()
        model.loss((ids[:, :-1], ids[:, 1:])).backward()
        for layer, w in enumerate(matrices):
            by_weight = (w.numpy() * w.grad.numpy()).reshape(w.shape[0], model.config.n_head, -1)
            total[layer] += np.abs(by_weight.sum((0, 2), dtype=np.float64))
    model.zero_grad()
    return total / len(starts)


# --- results --------------------------------------------------------------------------------------------------


def mean_and_deviation(drawn: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """The mean of the losses of several draws, and their standard deviation: 0 for a single one."""
    losses = [bits for _, bits in drawn]
    return statistics.mean(losses), statistics.stdev(losses) if len(losses) > 1 else 0.0


def picture_of(found: Mapping[tuple[str, float], Sequence[tuple[int, float]]], title: str) -> Picture:
    """Loss against share, weights on the left, heads on the right; and the numbers as a table.

    Args:
        found: for each way and share, the random draws (0: nothing is random) with their bits per character.
    """
    caption = (
        "Each point is the mean of all random draws, the bar its standard deviation. Nothing is trained after the "
        "removal. The smallest weights of each matrix go first; the least important heads are those to which the "
        "loss on text of the training part is least sensitive."
    )

    def draw(figure) -> None:
        parts = figure.subplots(1, 2)
        for number, way in enumerate(WAYS):
            axes, shares = parts[number // 2], [share for one, share in found if one == way]
            means, bars = zip(*(mean_and_deviation(found[way, share]) for share in shares), strict=True)
            style = {"color": COLOURS[number], "marker": MARKERS[number], "markersize": 4, "capsize": 2}
            axes.errorbar([100 * share for share in shares], means, bars, label=way, **style)
        for axes, what in zip(parts, ("weights", "heads"), strict=True):
            axes.set(xlabel=f"{what} removed, %", ylabel="bits per character")
            axes.legend(frameon=False)
            plain_axes(axes)

    rows = [("removed", "share", "seed", "bits_per_char")]
    for (way, share), drawn in found.items():
        rows += [(way, f"{share:g}", seed or "", f"{bits:.4f}") for seed, bits in drawn]
    return Picture(title, caption, (8, 3.6), draw, table=rows)


if __name__ == "__main__":
    run_command("damage", main)
