"""The options that the shelf adds to train.py, for every family, and to sample.py."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import extra.corpora.pairs
import extra.corpora.texts  # noqa: F401 (both, so that the options of all families name them)
from extra.plots.figure import check_file
from text.decoding.sample_options import SILENT, SampleOptions, of_run, of_text
from text.decoding.sampling import RANDOM, REPETITION, of_sampling
from tinygrad_lite import adapt
from tinygrad_lite.config import under
from tinygrad_lite.errors import OptionError
from tinygrad_lite.nn import Module
from tinygrad_lite.quantize import KINDS, quantize
from training.cli.options import PRESET_FOLDERS, PRESETS
from training.options import TrainOptions, of_evaluation, of_training

OWN_PRESETS = PRESETS / "extra"  # those that need the shelf
PRESET_FOLDERS[OWN_PRESETS] = PRESET_FOLDERS[PRESETS]

of_adapting, of_pictures, of_explorer = under("adapting", "pictures", "explorer")


@dataclass
class ShelfOptions:
    """The options of train.py for estimates, for several machines, and for learning only part of a model.

    They are combined with those of a family: `class Options(ShelfOptions, GPTOptions)`.
    """

    dry_run: bool = of_run(False, "print parameters, memory, operations, schedule and time, and stop")
    watts: float = of_run(0.0, "power for --dry_run to calculate energy with; 0: none", unit="W", low=0.0)
    flops_per_second: float = of_run(0.0, "rate for --dry_run, such as 9.5e12; 0: this machine's", low=0.0)
    profile: bool = of_run(False, "print the cost of each operation of a step, and stop")
    exchange: str = of_run(
        "same",
        "type that mpirun's processes send: same as dtype, or bfloat16: half as big",
        choices=("same", "bfloat16"),
    )
    freeze: list[str] = of_adapting(
        [], "weights of --init_from that stay as they are: patterns, such as blocks.0,*.bias; base: all but a new head"
    )
    lora_rank: int = of_adapting(
        0, "LoRA: freeze all weights of --init_from, and learn changes of this rank to its linear maps; 0: none", low=0
    )
    lora_alpha: float = of_adapting(16.0, "factor of these changes, divided by lora_rank", above=0.0, high=1e6)
    lora_targets: list[str] = of_adapting(
        [], "linear maps that are changed, such as query,value; empty: all of the blocks (Dettmers et al. 2023)"
    )
    lora_dropout: float = of_adapting(0.0, "probability of dropping an element of their input", low=0.0, below=1.0)
    quantize: str | None = of_adapting(
        None, "with lora_rank: store frozen weights in 8 bits (int8) or 4 (nf4): less memory, slower", choices=[*KINDS]
    )

    muon_lr_factor: float = of_training(10.0, "factor of the learning rate for muon's matrices", above=0.0)
    muon_momentum: float = of_training(0.95, "decay of the gradient's running mean in muon", low=0.0, below=1.0)
    lr_decay_iters: int | None = of_training(None, "end of cosine or trapezoid; none: max_iters", unit="steps", low=1)
    plateau: float = of_training(
        0.4, "share of lr_decay_iters after which the trapezoid (also called WSD) falls linearly", low=0.0, high=1.0
    )

    curve: bool = of_evaluation(False, "show the curve of the loss in eight lines instead of one")
    explain: str = of_explorer("", "page that shows the model from inside, written after the run", is_path=True)
    log_interval: int = of_evaluation(10, "steps between rows of metrics.csv", unit="steps", low=1)
    keep: int = of_evaluation(0, "checkpoints to keep besides last and best: those of the latest evaluations", low=0)
    stop_on_disk_error: bool = of_evaluation(False, "stop if a file cannot be written; else warn, and try again later")

    NOT_SAVED = TrainOptions.NOT_SAVED | {
        *"dry_run watts flops_per_second profile stop_on_disk_error curve explain".split()
    }
    FIXED = TrainOptions.FIXED | {*"freeze lora_rank lora_alpha lora_targets quantize".split()}
    COUNTED: ClassVar[tuple[int, str]] = (1, "token")  # the tokens for which flops_per_token counts, and their name

    @property
    def is_from_scratch(self) -> bool:
        """Whether the run starts with random weights, so that it learns its tokenizer."""
        return self.init_from == "scratch" and not self.resume

    @property
    def adapts(self) -> bool:
        """Whether only part of the model learns, the rest staying as in --init_from."""
        return bool(self.freeze or self.lora_rank)

    def built(self, model: type[Module], config: Any) -> Module:
        """A new model, with quantized linear maps and with adapters, as the options say."""
        made = super().built(model, config)
        self.add_adapters(made)
        return made

    def add_adapters(self, model: Module) -> None:
        """Quantize linear maps, and give them adapters, as the options say."""
        if self.quantize:
            quantize(model, self.quantize)
        if self.lora_rank:
            targets = ",".join(self.lora_targets).split(",") if self.lora_targets else []
            adapt.add_lora(model, self.lora_rank, self.lora_alpha, targets, self.lora_dropout)

    def adapt(self, model: Module, base: Collection[str] | None) -> None:
        """Freeze what the options say of these weights, the base's; add adapters, with which all of them are frozen.

        Args:
            base: their names; None: all that the model has.
        Raises: OptionError if the options do not fit the model.
        """
        if not self.adapts:
            return
        patterns = ",".join(self.freeze).split(",")
        asked = f"--lora_rank {self.lora_rank}" if self.lora_rank else f"--freeze {' '.join(self.freeze)}"
        try:
            adapt.freeze(model, ["*"] if self.lora_rank or patterns == ["base"] else patterns, base)
            self.add_adapters(model)
        except ValueError as error:
            raise OptionError(f"{asked}: {error}") from None
        if not adapt.learned(model):
            raise OptionError(f"{asked} leaves nothing to learn: freeze less, or --lora_rank 8")


@dataclass(frozen=True)
class ShelfSampleOptions(SampleOptions):
    """The options of sample.py."""

    interactive: bool = of_text(False, "write in turns with the model: each line typed is appended to the text")
    chat: bool = of_text(
        False, "talk with a model that has a chat template, such as smollm2; --start asks one question"
    )

    similar: str = of_text(
        "", "file whose lines an encoder compares with --start; the most similar are printed", is_path=True
    )

    answers: int = of_text(5, "answers of an encoder to show: words, labels, or similar lines", low=1)
    steps: int = of_text(64, "steps in which masked diffusion uncovers a window", unit="steps", low=1)
    order: str = of_text(
        "confidence", "which tokens it uncovers first: the most certain, or any", choices=("confidence", "random")
    )
    image: str = of_pictures("", "a picture to look at, or to complete: a file, or test:17")
    keep_rows: int = of_pictures(-1, "rows of the picture to keep; the others are drawn; -1: half", unit="rows", low=-1)
    out: str = of_pictures(
        "", "file for the completed pictures, .png, .svg or .npz; of masked diffusion, a film, .svg", is_path=True
    )

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

    draft: str = of_sampling(
        "", "guess tokens that the model checks together: lookup, a text to count in, or a smaller GPT", is_path=True
    )
    draft_tokens: int = of_sampling(4, "tokens that are guessed at a time", unit="tokens", low=1, high=64)

    adapter: str = of_run(
        "",
        "what was learned on top of the model: a run with --lora_rank or --freeze, or a folder in peft's layout",
        is_path=True,
    )
    quantize: str | None = of_run(
        None,
        "store the weights of the blocks in 8 bits (int8) or 4 (nf4): less memory, slower, a little more loss",
        choices=[*KINDS],
    )

    EXAMPLES: ClassVar[Mapping[str, str]] = {
        **SampleOptions.EXAMPLES,
        "python sample.py --interactive": "write in turns with the model",
        "python sample.py --explain page.html": "write a page that shows the model from inside",
        "python sample.py smollm2 --chat": "talk with a small model that is downloaded first",
    }
    READERS = SampleOptions.READERS | {"image": {True: ("keep_rows",)}, "draft": {True: ("draft_tokens",)}}
    READERS |= {"explain": {True: ("compare",)}}
    RUN = (*SampleOptions.RUN, "adapter", "quantize")
    MODELS = "a checkpoint, a run's folder, a folder in Hugging Face's layout, or smollm2"
    COMMON = (*SampleOptions.COMMON, "interactive")

    def clashes(self) -> list[tuple[str, Collection[str], str]]:
        """What cannot be combined: the option, the others, and why."""
        every = {field.name for field in fields(self)}
        return [
            *super().clashes(),
            ("explain", every - {*EXPLORER, *self.RUN}, SILENT),
            ("interactive", {"num_samples"}, ": it reads stdin and replies to each line once"),
            ("chat", {"interactive", "num_samples"}, ", since it replies to each message once"),
            ("attention", {"interactive", "chat"}, ", since it plots one text: omit one of them"),
            ("beam", {"interactive", "chat"}, ": search for the best text, or sample one"),
            ("draft", {*NEEDS_PASSES, *REPETITION}, ", since several tokens are chosen at once: omit one of them"),
        ]

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise OptionError if options contradict each other."""
        super().check(given)
        if self.explain and self.quantize:
            raise OptionError("--explain writes the weights themselves into its page: omit --quantize")
        if self.interactive and self.start == "-":
            raise OptionError("--interactive cannot be combined with --start -: it replies to each line of stdin")
        if self.attention:
            check_file(self.attention, "--attention")


NEEDS_PASSES = ("beam", "show_probs", "use_cache", "interactive", "chat")  # one for each token
# Where the sliders and the search of --explain begin.
EXPLORER = ("explain", "compare", "start", "image", *RANDOM, "greedy", "beam", "n_best", "length_penalty")
