"""The options of a training run of the GPT with all that the shelf adds: pairs, images, teachers, rewards."""

import re
from dataclasses import dataclass
from pathlib import Path

from extra.corpora import pictures
from extra.gpt.config import GPTConfig
from extra.options import ShelfOptions
from extra.pairs.made import CALCULATIONS, MADE, SUMS
from extra.rewards.arithmetic import REWARDS
from gpt import options as core
from gpt.options import of_data, of_evaluation, of_training
from text.tokenizers import LEARNED
from text.tokenizers.base import UNKNOWN
from tinygrad_lite.errors import OptionError
from training.cli.console import with_value
from training.corpora import pairs as parallel
from training.corpora import texts
from training.model_config import settings_of

DOCUMENTS = {"line": r"\n", "blank": r"\n\s*\n"}  # what is between two of them
PAIRS = (*parallel.RECIPES, *MADE)


@dataclass
class GPTOptions(ShelfOptions, core.GPTOptions):
    """The options of `train.py` for training a GPT."""

    config: GPTConfig = settings_of(GPTConfig)

    dataset: str = of_data(
        "goethe",
        f"text to learn from, by name: {', '.join(texts.RECIPES)}; or pictures: {', '.join(pictures.RECIPES)}; or, "
        f"with separator, pairs: {', '.join(PAIRS)}",
    )
    pairs: str = of_data(
        "", "or a file of texts and answers: source TAB target in each line; needs separator", is_path=True
    )
    separator: str = of_data("", "of pairs: the special token between source and target, such as <to-en>; none: a text")
    swap: bool = of_data(False, "of pairs: the opposite direction, target to source")
    held_out: int = of_data(1000, "of pairs: how many to hold out, at most a tenth", unit="pairs", low=1)
    train_pairs: int = of_data(0, "of pairs: learn from this many, drawn by --seed; 0: all", unit="pairs", low=0)
    tokenizer: str = of_data(
        "char",
        "what a token is (pixels: shades of pictures; hf: only what pretrained weights bring along)",
        choices=(*LEARNED, "pixels", "hf"),
    )
    vocab_size: int = of_data(
        1024, "size of a learned vocabulary: bpe, word; of pixels: shades", unit="tokens", low=2, high=1_000_000
    )

    documents: str | None = of_data(
        None,
        "each line, or what stands between blank lines, is a document, whose end is predicted, but is no character",
        choices=DOCUMENTS,
    )

    replay: str | None = of_data(
        None,
        "text that a share of every batch is taken from, such as the one that the weights of --init_from come from",
        choices=texts.RECIPES,
    )
    replay_share: float = of_data(0.1, "this share, with --replay", above=0.0, below=1.0)

    teachers: list[str] = of_data(
        [],
        "trained GPTs, of the same text and tokens: what they predict is a part of every target, and of the training "
        "loss",
        is_path=True,
    )
    teachers_share: float = of_data(0.7, "this part, with --teachers", above=0.0, high=1.0)

    rewards: list[str] = of_training(
        [],
        "learn from points for the model's own answers: right, length, form (it calls the calculator), brevity (it "
        "does not)",
    )
    method: str = of_training("grpo", "how, with --rewards", choices=("reinforce", "grpo", "dpo"))
    group: int = of_training(8, "answers to each question, with --rewards", unit="answers", low=2)
    reference: str = of_training("", "the model that --method dpo compares with", is_path=True)
    beta: float = of_training(0.1, "b of --method dpo: how much a difference counts", above=0.0)

    eval_pairs: int = of_evaluation(200, "of pairs: how many to translate at each evaluation", unit="pairs", low=0)

    DATASETS = (*texts.RECIPES, *pictures.RECIPES, *PAIRS)
    FILES = ("text", "pairs")
    FIXED = ShelfOptions.FIXED | {"documents"}
    READERS = core.GPTOptions.READERS | {
        "pairs": {False: ("dataset",)},
        "separator": {True: ("swap", "held_out", "train_pairs", "eval_pairs"), False: ("data_order", "eval_iters")},
        "documents": {False: ("data_order", "eval_iters", "separator", "replay", "teachers")},
        "replay": {True: ("replay_share",), False: ("documents",)},
        "teachers": {True: ("teachers_share",), False: ("documents",)},
        "rewards": {True: ("method", "group", "reference", "beta"), False: ("documents",)},
        "method": {"dpo": ("reference", "beta")},
    }

    def check_rewards(self) -> None:
        """Refuse rewards that cannot be computed.

        Raises: OptionError.
        """
        if not self.rewards:
            return
        if unknown := [name for name in self.rewards if name not in REWARDS]:
            raise OptionError(f"--rewards {unknown[0]}: there are points for {', '.join(REWARDS)}")
        if self.pairs or self.dataset not in (SUMS, CALCULATIONS):
            named = f"--pairs {self.pairs}" if self.pairs else f"--dataset {self.dataset}"
            raise OptionError(f"--rewards needs questions of a program: --dataset sums or calculations, not {named}")
        if self.is_from_scratch:
            raise OptionError(
                "--rewards needs a model that is sometimes right: first python train.py sums, then --init_from out/sums"
            )
        if self.batch_size % self.group:
            raise OptionError(
                f"--batch_size {self.batch_size}, the number of answers here, is not a multiple of --group {self.group}"
            )
        if self.method == "dpo" and not self.reference:
            raise OptionError("--method dpo compares with a model: add --reference, such as that of --init_from")
        if self.replay:
            raise OptionError("--replay is for learning from pairs, not from --rewards: omit it")

    def check_pairs(self) -> None:
        """Refuse pairs without a separator, and a separator without pairs.

        Raises: OptionError.
        """
        named = with_value("pairs", Path(self.pairs)) if self.pairs else f"--dataset {self.dataset}"
        has_pairs = bool(self.pairs) or (not self.text and self.dataset in PAIRS)
        if self.pairs and self.text:
            raise OptionError("--pairs and --text cannot be combined: a GPT learns from pairs, or from a text")
        if has_pairs and not self.separator:
            raise OptionError(
                f"{named} belongs to the translation model: use python train.py translate-de-en {named}; a GPT learns "
                f"from pairs too, with a token between their sides: python train.py gpt-translate {named}"
            )
        if self.separator and not has_pairs:
            raise OptionError(
                f"--separator {self.separator} separates the sides of pairs: add --pairs FILE.tsv, or name pairs "
                f"with --dataset, such as libreoffice-help"
            )
        if self.separator and not re.fullmatch(r"<[\w-]{1,40}>", self.separator):
            raise OptionError(f"--separator {self.separator}: write a name between < and >, such as <to-en>")
        if self.separator in ("<end>", UNKNOWN):
            raise OptionError(f"--separator {self.separator} already has a meaning: choose another name")

    def check(self) -> None:
        """Refuse what cannot be computed, before any text is fetched.

        Raises: OptionError.
        """
        self.check_pairs()
        self.check_rewards()
        if self.teachers and (self.separator or self.tokenizer == "pixels"):
            raise OptionError(
                "--teachers are GPTs of the same text, but this run learns from pairs or pictures: omit it"
            )
        super().check()
        if self.is_from_scratch:
            if (self.tokenizer == "pixels") != (not self.text and self.dataset in pictures.RECIPES):
                raise OptionError("--tokenizer pixels and --dataset digits or other pictures belong together")
            if self.replay and self.tokenizer == "pixels":
                raise OptionError(f"--replay {self.replay} is a text, but --dataset {self.dataset} are pictures")
            if self.tokenizer == "hf":
                raise OptionError(
                    "--tokenizer hf: such a tokenizer comes with pretrained weights (--init_from FOLDER); to learn "
                    "one, take bpe"
                )
