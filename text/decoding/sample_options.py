"""The options of `sample.py`, and which of them cannot be combined.

The names are nanoGPT's wherever nanoGPT has one, and otherwise those of Hugging Face's transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from typing import Any

from extra.plots.figure import check_file
from text.decoding.sampling import RANDOM, REPETITION, Sampling, of_sampling, of_text
from tinygrad_lite.config import under
from tinygrad_lite.errors import OptionError
from tinygrad_lite.precision import PRECISIONS
from tinygrad_lite.quantize import KINDS
from training.corpora.cleaning import normalise

LENGTH_PENALTY = 0.6  # of a model that continues a text; a translation model's settings have their own


of_pictures, of_beam, of_explorer, of_run = under("pictures", "beam", "explorer", "run")


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
    interactive: bool = of_text(False, "write in turns with the model: each line typed is appended to the text")
    chat: bool = of_text(
        False, "talk with a model that has a chat template, such as smollm2; --start asks one question"
    )
    score: str = of_text("", "file whose loss to measure, in bits per character, instead of generating", is_path=True)

    similar: str = of_text(
        "", "file whose lines an encoder compares with --start; the most similar are printed", is_path=True
    )

    answers: int = of_text(5, "answers of an encoder to show: words, labels, or similar lines", low=1)
    image: str = of_pictures("", "a picture to look at, or to complete: a file, or test:17")
    keep_rows: int = of_pictures(-1, "rows of the picture to keep; the others are drawn; -1: half", unit="rows", low=-1)
    out: str = of_pictures("", "file for the completed pictures, .png, .svg or .npz", is_path=True)

    greedy: bool = of_sampling(False, "always take the most probable token")

    beam: int = of_beam(0, "width of a beam search instead of sampling; 0: none", unit="hypotheses", low=0, high=1000)
    length_penalty: float | None = of_beam(
        None,
        f"exponent that favours longer hypotheses; 0: no penalty; none: {LENGTH_PENALTY}, or a translation run's own",
        low=0.0,
        high=10.0,
    )
    n_best: int = of_beam(1, "hypotheses to show, at most --beam", unit="hypotheses", low=1)

    explain: str = of_explorer(
        "", "write a page, one HTML file, in which the model can be explored; nothing is generated", is_path=True
    )
    compare: str = of_explorer(
        "", "text, a name or a file, whose six-grams the page of --explain compares the model with"
    )

    attention: str = of_text(
        "",
        "plot what each token of the prompt and its first continuation attends to, or of a translation: .svg, .png or "
        ".pdf",
        is_path=True,
    )

    adapter: str = of_run(
        "",
        "what was learned on top of the model: a run with --lora_rank or --freeze, or a folder in peft's layout",
        is_path=True,
    )
    out_dir: str = of_run("", "folder of a run; empty: the newest under out/", is_path=True)
    device: str = of_run("cpu", "where to compute", choices=("cpu", "cuda", "auto"))
    dtype: str = of_run(
        "float32", "precision of a GPU's matrix products; the weights keep their type", choices=PRECISIONS
    )
    quantize: str | None = of_run(
        None,
        "store the weights of the blocks in 8 bits (int8) or 4 (nf4): less memory, slower, a little more loss",
        choices=[*KINDS],
    )
    use_cache: bool = of_run(True, "cache keys and values of earlier tokens; false: the same text, slower")

    def stop_strings(self, prepare: Callable[[str], str]) -> list[str]:
        r"""The stop strings, each prepared as the training text was; a written \n is a line break.

        >>> SampleOptions(stop=["Ende", r"\n"]).stop_strings(str)
        ['Ende', '\n']
        """
        return [prepare(text.replace(r"\n", "\n")) for text in self.stop]

    def sampling(self) -> Sampling:
        """How tokens are chosen: these options include the settings of `Sampling`."""
        return replace(self, temperature=0.0) if self.greedy else self


# Options of text that is generated token by token.
SAMPLING = (*RANDOM, *REPETITION, "greedy", "num_samples", "stop", "show_probs", "interactive", "chat")
# Options that each way of using the script has, and those of --explain: where its sliders and its search begin.
RUN = ("adapter", "out_dir", "device", "dtype")
EXPLORER = ("explain", "compare", "start", "image", *RANDOM, "greedy", "beam", "n_best", "length_penalty")
MAX_BEAM_MEMORY = 4  # GiB


# What cannot be combined: the option, the others, and why.
SILENT = ", because it generates no text: omit one of them"
EVERY = {field.name for field in fields(SampleOptions)}
CLASHES = (
    ("score", EVERY - {"score", "quantize", *RUN}, SILENT),
    ("explain", EVERY - {"quantize", *EXPLORER, *RUN}, SILENT),
    ("interactive", {"num_samples"}, ": it reads stdin and replies to each line once"),
    ("chat", {"interactive", "num_samples"}, ", since it replies to each message once"),
    ("beam", {*SAMPLING}, ": search for the best text, or sample one"),
    ("greedy", {*RANDOM}, ", an option of random sampling: omit one of them"),
)


def check_combination(options: SampleOptions, given: dict) -> None:
    """Raise OptionError if options contradict each other."""
    for way, others, why in CLASHES:
        if getattr(options, way) and (clashing := [name for name in given if name in others]):
            raise OptionError(f"--{way} cannot be combined with --{clashing[0]}{why}")
    if options.compare and not options.explain:
        raise OptionError("--compare is an option of the page: add --explain page.html")
    if options.explain and options.quantize:
        raise OptionError("--explain writes the weights themselves into its page: omit --quantize")
    if "" in options.stop_strings(normalise):
        raise OptionError("--stop '': an empty string occurs everywhere; give at least one character")
    if options.interactive and options.start == "-":
        raise OptionError(
            "--interactive cannot be combined with --start -: it reads stdin and replies to each line once"
        )
    if options.attention:
        check_file(options.attention, "--attention")
        if turns := [f"--{name}" for name in ("interactive", "chat") if name in given]:
            raise OptionError(f"--attention plots one text, so omit {turns[0]}")
    if not options.beam and (searching := [name for name in ("length_penalty", "n_best") if name in given]):
        raise OptionError(f"--{searching[0]} is an option of beam search: add --beam, for example --beam 4")
    if options.beam and options.n_best > options.beam:
        raise OptionError(
            f"--n_best {options.n_best}: a beam search with --beam {options.beam} finds at most {options.beam}"
        )


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
