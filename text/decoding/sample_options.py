"""The options of `sample.py`, and which of them cannot be combined.

The names are nanoGPT's wherever nanoGPT has one, and otherwise those of Hugging Face's transformers.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from text.decoding.sampling import RANDOM, REPETITION, Sampling, of_sampling, of_text
from tinygrad_lite.config import under
from tinygrad_lite.errors import OptionError
from tinygrad_lite.precision import PRECISIONS
from training.cli.unread import refuse_unread
from training.corpora.cleaning import normalise

LENGTH_PENALTY = 0.6  # of a model that continues a text; a translation model's settings have their own


of_beam, of_run = under("beam", "run")


@dataclass(frozen=True)
class SampleOptions(Sampling):
    """The options of `sample.py`."""

    start: str = of_text("\n", "the prompt; FILE:path reads it from a file, - from stdin; ||| divides a pair")
    max_new_tokens: int = of_text(500, "length of the continuation", unit="tokens", low=0, high=10_000_000)
    num_samples: int = of_text(1, "number of continuations", low=1, high=1_000_000)
    stop: list[str] = of_text([], "strings at the first of which the text ends, before it; \\n is a line break")
    show_probs: bool = of_text(
        False, "colour tokens by probability and list the entropy of each position, on a terminal"
    )
    score: str = of_text("", "file whose loss to measure, in bits per character, instead of generating", is_path=True)

    greedy: bool = of_sampling(False, "always take the most probable token")

    beam: int = of_beam(0, "width of a beam search instead of sampling; 0: none", unit="hypotheses", low=0, high=1000)
    length_penalty: float | None = of_beam(
        None,
        f"exponent that favours longer hypotheses; 0: no penalty; none: {LENGTH_PENALTY}, or a translation run's own",
        low=0.0,
        high=10.0,
    )
    n_best: int = of_beam(1, "hypotheses to show, at most --beam", unit="hypotheses", low=1)

    out_dir: str = of_run("", "folder of a run; empty: the newest under out/", is_path=True)
    device: str = of_run("cpu", "where to compute", choices=("cpu", "cuda", "auto"))
    dtype: str = of_run(
        "float32", "precision of a GPU's matrix products; the weights keep their type", choices=PRECISIONS
    )
    use_cache: bool = of_run(True, "cache keys and values of earlier tokens; false: the same text, slower")

    EXAMPLES: ClassVar[Mapping[str, str]] = {
        'python sample.py --start "Habe nun"': "continue a prompt, with the newest run",
        "python sample.py out/goethe": "generate text with the model of this run",
    }
    # Which options are read only with some values of others: training/cli/unread.py.
    READERS: ClassVar = {
        "greedy": {False: ("seed",)},
        "beam": {False: ("seed",)},
        "temperature": {True: ("top_k", "top_p", "min_p", "seed")},
    }
    RUN: ClassVar[tuple[str, ...]] = ("out_dir", "device", "dtype")  # what each way of using the script has
    MODELS: ClassVar[str] = "a checkpoint, or a run's folder"
    COMMON = tuple("start max_new_tokens num_samples temperature top_k seed stop show_probs".split())

    def stop_strings(self, prepare: Callable[[str], str]) -> list[str]:
        r"""The stop strings, each prepared as the training text was; a written \n is a line break.

        >>> SampleOptions(stop=["Ende", r"\n"]).stop_strings(str)
        ['Ende', '\n']
        """
        return [prepare(text.replace(r"\n", "\n")) for text in self.stop]

    def sampling(self) -> Sampling:
        """How tokens are chosen: these options include the settings of `Sampling`."""
        return replace(self, temperature=0.0) if self.greedy else self

    def clashes(self) -> list[tuple[str, Collection[str], str]]:
        """What cannot be combined: the option, the others, and why."""
        every = {field.name for field in fields(self)}
        return [
            ("score", every - {"score", *self.RUN}, SILENT),
            ("beam", {*SAMPLING}, ": search for the best text, or sample one"),
            ("greedy", {*RANDOM}, ", an option of random sampling: omit one of them"),
        ]

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise OptionError if options contradict each other; `given` are those typed."""
        for way, others, why in self.clashes():
            if getattr(self, way) and (clashing := [name for name in given if name in others]):
                raise OptionError(f"--{way} cannot be combined with --{clashing[0]}{why}")
        if "" in self.stop_strings(normalise):
            raise OptionError("--stop '': an empty string occurs everywhere; give at least one character")
        if not self.beam and (searching := [name for name in ("length_penalty", "n_best") if name in given]):
            raise OptionError(f"--{searching[0]} is an option of beam search: add --beam, for example --beam 4")
        if self.beam and self.n_best > self.beam:
            raise OptionError(
                f"--n_best {self.n_best}: a beam search with --beam {self.beam} finds at most {self.beam}"
            )
        refuse_unread(self, given, self.READERS)


# Options of text that is generated token by token.
SAMPLING = (*RANDOM, *REPETITION, "greedy", "num_samples", "stop", "show_probs")
SILENT = ", because it generates no text: omit one of them"
MAX_BEAM_MEMORY = 4  # GiB


def refuse_others(given: Collection[str], known: Collection[str], why: str) -> None:
    """Raise OptionError if an option is given that a family's models do not accept."""
    if unused := [name for name in given if name not in known]:
        raise OptionError(f"--{unused[0]} {why} {', '.join(f'--{name}' for name in sorted(known))}")


def check_beam(options: SampleOptions, config: Any) -> None:
    """Raise OptionError if a beam would fill the memory: each hypothesis has all that layers keep of a context.

    Args:
        config: the model's settings.
    """
    numbers = 2 * options.beam * config.n_layer * config.cached_numbers  # 2: all are copied after each token
    needed = 4 * numbers / 2**30  # float32
    if needed > MAX_BEAM_MEMORY:
        raise OptionError(
            f"--beam {options.beam}: the hypotheses' keys and values would take {needed:.1f} GiB of memory, "
            f"more than the {MAX_BEAM_MEMORY} GiB allowed: use a smaller beam"
        )
