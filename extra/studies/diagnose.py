"""Is this loss normal? What the numbers of a run look like, next to runs of this project that went well.

    python -m extra.studies.diagnose out/goethe

A loss says little by itself, but for every text there are three losses that a model passes one after the other, and
each needs only counting (in nats per token, on the held-out part):

    stage 0   ln V        every token is equally probable: an untrained model
    stage 1   single      how frequent each token is: -Σ p(w) ln p(w), if both parts of the text have the same p
    stage 2   pairs       which token follows which: a 2-gram model with Kneser-Ney smoothing (baselines.py)
    stage 3   0           every token is known before it is read

Between two of them the stage is interpolated. So runs with other tokens, texts and sizes can be compared, at the same
share of their steps, with the runs of three presets, whose curves are in curves.csv (docs/record.py wrote it). All of
them are beyond stage 2 in the end, because a Transformer reads more than one token. A run that is not, or that is
behind them earlier, by more than chance, has a cause, and its options usually say which.

Losses vary by chance. That of one token varies about as much as it is large, so the mean over n tokens has a standard
error of about loss / √n, and what is less than two of these is no difference. A translation model's loss is also
measured with the sources of other sentences: if that is no worse, it ignores its source. docs/symptoms.md explains the
symptoms, and what helps.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from extra.families import GPT, SEQ2SEQ
from extra.plots.training import points, read_rows
from extra.studies.baselines import KneserNey, token_text
from extra.studies.program import NoOptions, options_of_run, program
from seq2seq.task import TranslationTask
from text.tokenizers.base import UNKNOWN
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import OptionError
from training.cli.console import run_command, show
from training.family import Trained, family_of_weights
from training.log import curve
from training.options import TrainOptions
from training.pair_task import PairTask

CURVES = Path(__file__).with_name("curves.csv")
RECORD = "is a script of its own: python docs/record.py RUN ..."
ABOUT = {"about_positional": "folders of runs", "hints": {"record": RECORD}}


class Run(NamedTuple):
    """A run, and what there is to know about its data.

    Attributes:
        options: those of train.py.
        training, validation, rates: (2, n), steps with the losses, or the learning rates, at these.
        levels: the losses of stages 0, 1 and 2.
        tokens: how many held-out ones are predicted.
        seen, unknown: the shares of the held-out passages that are in the training part too, and of <unk>.
        reads: how much larger the loss is with the source of another sentence, and the standard error.
    """

    options: TrainOptions
    training: np.ndarray
    validation: np.ndarray
    rates: np.ndarray
    levels: list[float]
    tokens: int
    seen: float
    unknown: float
    reads: tuple[float, float]

    def stage(self, loss: float) -> float:
        """How far a loss is."""
        return float(np.interp(loss, [0, *self.levels[::-1]], [3, 2, 1, 0]))

    def learned(self, step: float) -> float:
        """The mean training loss over a tenth of the run that ends at this step, or the next one that is known."""
        steps, losses = self.training
        near = losses[(steps > step - steps[-1] / 10) & (steps <= step)]
        return float(near.mean() if near.size else np.interp(step, steps, losses))


# --- reading ----------------------------------------------------------------------------------------------------


def read_run(name: str) -> Run:
    """What a run's folder, and its data, tell.

    Raises: OptionError if it has no evaluation yet, or if it learns no text; CheckpointError or CorpusError if its
        checkpoint, or its data, cannot be read.
    """
    table, last = Path(name) / "metrics.csv", Path(name) / "last.safetensors"
    columns = ("loss", "val_loss", "learning_rate")
    rows = read_rows(table, columns)
    training, validation, rates = (np.array(points(rows, column)).reshape(-1, 2).T for column in columns)
    if not (training.size and validation.size and rates.size):
        raise OptionError(f"{table} has no update yet: the run has only begun, or ended at once, as by NaN")
    family = family_of_weights(last, (GPT, SEQ2SEQ)) or GPT  # which says what is wrong with others
    trained, options = family.read(last), options_of_run(family, last)
    task = family.make_task(options, trained.tokenizer)
    if isinstance(task, PairTask):
        learned, held_out = (np.concatenate([y[1:] for _, y in part]) for part in (task.data.train, task.data.held_out))
        before, targets, seen = held_out[:-1], held_out[1:], 0.0
    else:
        batches = [[part.numpy().ravel() for part in batch] for batch, _ in task.validation_batches()]
        learned, (before, targets) = task.data.train, map(np.concatenate, zip(*batches, strict=True))
        text, rest = task.data.corpus.split()  # 50 characters are too many to be the same by chance
        seen = np.mean([rest[i : i + 50] in text for i in range(0, len(rest), 50)] or [0.0])
    reads = worse_with_others(task, trained) if isinstance(task, TranslationTask) else (np.inf, 0.0)
    levels, text = [np.log(trained.config.vocab_size)], token_text(learned[: 10**6])
    for order in (1, 2):
        ngrams = KneserNey(text, order, trained.config.vocab_size)
        p = [ngrams.probability(chr(b), chr(a)) for a, b in zip(before, targets, strict=True)]
        levels.append(min(levels[-1], -np.log(p).mean()))  # counts of little text may mislead
    unknown = np.mean(targets == trained.tokenizer.specials.get(UNKNOWN, -1))
    return Run(options, training, validation, rates, levels, len(targets), seen, unknown, reads)


def worse_with_others(task: TranslationTask, trained: Trained) -> tuple[float, float]:
    """How much larger the held-out loss is if each sentence has the source of another, and the standard error."""
    model, more = trained.make_model(), []
    with no_grad():
        for (source, target), _ in task.validation_batches():
            other = source[np.arange(len(source)) - 1]  # that of the row before
            more.append(model.loss((other, target)).item() - model.loss((source, target)).item())
    return float(np.mean(more)), float(np.std(more) / np.sqrt(len(more)))


def recorded() -> list[np.ndarray]:
    """The rows of curves.csv, run by run."""
    rows = np.genfromtxt(CURVES, delimiter=",", names=True, dtype=None, encoding="utf-8")
    return [rows[rows["name"] == name] for name in np.unique(rows["name"])]


# --- judging ----------------------------------------------------------------------------------------------------


def symptoms(run: Run, others: list[np.ndarray]) -> dict[str, str]:
    """What a run has that those which went well have not: its numbers, and what to try.

    Args:
        others: the recorded runs.
    """
    found, most = {}, run.options.max_iters
    (step, loss), (best_step, best) = run.validation[:, -1], run.validation[:, run.validation[1].argmin()]
    now, stage, chance = run.learned(step), run.stage(loss), 2 * loss / np.sqrt(run.tokens)
    if run.unknown > 0.2:  # no word is so frequent
        found["unknown tokens"] = f"{run.unknown:.0%} of the held-out tokens are <unk>; try --tokenizer bpe"
    if run.seen > 0.1:
        found["seen text"] = f"{run.seen:.0%} of the held-out text is in the training part too: remove it from one"
    if (end := run.training[0, -1]) < most and not run.options.patience:
        name = "NaN" if run.training[1].max() > 1.2 * run.levels[0] else "unfinished"
        found[name] = f"ends at step {end:.0f} of {most}, loss up to {run.training[1].max():.3g}: read its last message"
    steps, rates = run.rates
    lowest = np.minimum.accumulate(np.where(rates < np.maximum.accumulate(rates) / 2, rates, np.inf))
    if (rises := rates > 2 * lowest).any():
        jump = f"{lowest[rises.argmax()]:.1e} to {rates[rises].max():.1e} after step {steps[rises.argmax() - 1]:.0f}"
        found["schedule"] = f"the rate rises from {jump}: --resume with the old --lr_decay_iters keeps it low"
    worsens = loss - best > chance and now < run.learned(best_step)
    if worsens or (now < loss / 2 and stage < 2.5):  # what is nearly all known may be known twice as well
        found["overfits"] = f"{best:.2f} at step {best_step:.0f}, now {loss:.2f}, training {now:.2f}: try more dropout"
    if run.reads[0] < 2 * run.reads[1]:
        found["source"] = f"others add {run.reads[0]:.3f} ± {run.reads[1]:.3f} to the loss: do sources fit their lines?"
    least = min(np.interp(step, other["step"] / other["max_iters"] * most, other["stage"]) for other in others)
    # It must be beyond pairs by more than chance where all others are, and before that not behind by more than chance.
    if "overfits" not in found and run.stage(loss + chance if least > 2 else loss - chance) < min(least, 2):
        name = "ln V" if stage < 0.1 else "single tokens" if stage < 1.3 else "pairs"
        found[name] = f"stage {stage:.2f}; no recorded run was below {least:.2f} at this share; {cause(run, others)}"
    return found


def cause(run: Run, others: list[np.ndarray]) -> str:
    """What in the options of a run explains that it has learned too little, and what to try."""
    options, rate = run.options, run.rates[1].max()
    for other in others:
        times = float(rate) / float(other["rate"][0])  # without a warning if it is huge
        if other["optimizer"][0].rstrip("w") == options.optimizer.rstrip("w") and not 0.1 < times < 10:
            return f"its learning rate, {rate:.1e}, is far from the {other['rate'][0]:.1e} of {other['name'][0]}"
    if options.config.dropout >= 0.5:
        return f"--dropout {options.config.dropout:g} hides most of what the layers say: try 0.1"
    if options.max_iters < (passed := np.median([other["step"][other["stage"] > 2][0] for other in others])):
        return f"the recorded runs needed about {passed:.0f} updates to get beyond pairs"
    return "more steps help while it falls; else look at --freeze, --block_size, mask, positions, targets"


@program("extra.studies.diagnose", NoOptions, "RUN ...", "out/goethe", **ABOUT)
def main(_: NoOptions, *names: str) -> None:
    """Say what is unusual about the losses of runs of train.py, and what to try."""
    for name, run in zip(names, map(read_run, names), strict=True):
        step, loss = run.validation[:, -1]
        levels = "ln V {:.2f}, single tokens {:.2f}, pairs {:.2f}".format(*run.levels)
        show(f"{name}: validation loss {loss:.3f} at step {step:,.0f} ({levels}): stage {run.stage(loss):.2f}")
        losses = {int(at): loss for at, loss in run.training.T}
        show("\n".join(curve(losses, run.options.max_iters, rows=8)))
        for symptom, words in (symptoms(run, recorded()) or {"sound": "all as it should be"}).items():
            show(f"  {symptom}: {words}")


if __name__ == "__main__":
    run_command("extra.studies.diagnose", main)
