"""The options of a training run of the GPT."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import ClassVar

from gpt.config import GPTConfig
from tinygrad_lite.errors import OptionError
from workshop.cli.options import answers, under
from workshop.corpora.names import CHAT, PARALLEL_CORPORA, PICTURES
from workshop.corpora.texts import CORPORA, is_at_hand
from workshop.run.model_config import model_options
from workshop.run.options import BATCH_NAMES, DATA_NAMES, OTHER_NAMES, ROTARY_NAMES, TrainOptions
from workshop.tokenizers import LEARNED
from workshop.tokenizers.base import UNKNOWN

of_data, of_training, of_evaluation = under("data", "training", "evaluation")


@dataclass
class GPTOptions(model_options(GPTConfig), TrainOptions):
    """The options of `train.py` for training a GPT."""

    dataset: str = of_data(
        "goethe",
        f"text to learn from, by name: {', '.join(CORPORA)}; or pictures: {', '.join(PICTURES)}; or, with separator, "
        f"pairs: {', '.join(PARALLEL_CORPORA)}, or conversations: {CHAT}",
    )
    pairs: str = of_data(
        "", "or a file of texts and answers: source TAB target in each line; needs separator", is_path=True
    )
    separator: str = of_data("", "of pairs: the special token between source and target, such as <to-en>; none: a text")
    swap: bool = of_data(False, "of pairs: the opposite direction, target to source")
    held_out: int = of_data(1000, "of pairs: how many to hold out, at most a tenth", unit="pairs", low=1)
    text: list[str] = of_data([], "files to learn from, any UTF-8 text, instead of dataset", is_path=True)
    tokenizer: str = of_data(
        "char",
        "what a token is (bpe-w: with an end-of-word mark; pixels: shades of pictures; hf: only what pretrained "
        "weights bring along)",
        choices=(*LEARNED, "pixels", "hf"),
    )
    vocab_size: int = of_data(
        1024, "size of a learned vocabulary: bpe, bpe-w, word; of pixels: shades", unit="tokens", low=2, high=1_000_000
    )
    data_order: str = of_data(
        "random",
        "windows at random places of the text (random), or passes over the whole text in random order (epochs)",
        choices=("random", "epochs"),
    )

    replay: str | None = of_data(
        None,
        "text that a share of every batch is taken from, such as the one that the weights of --init_from come from",
        choices=[*CORPORA],
    )
    replay_share: float = of_data(0.1, "this share, with --replay", above=0.0, below=1.0)

    teachers: list[str] = of_data(
        [],
        "trained GPTs, of the same text and tokens: what they predict is a part of every target, and of the training "
        "loss",
        is_path=True,
    )
    teachers_share: float = of_data(0.7, "this part, with --teachers", above=0.0, high=1.0)

    batch_size: int = of_training(12, "sequences per micro-step", unit="sequences", low=1, high=1_000_000)
    eval_iters: int = of_evaluation(
        0, "windows of the held-out text to evaluate on, always the same; 0: all", unit="windows", low=0
    )
    sample_tokens: int = of_evaluation(160, "length of the sample at each evaluation; 0: none", unit="tokens", low=0)
    eval_pairs: int = of_evaluation(200, "of pairs: how many to translate at each evaluation", unit="pairs", low=0)

    DATASETS: ClassVar[tuple[str, ...]] = (*CORPORA, *PICTURES, *PARALLEL_CORPORA, CHAT)
    FILES: ClassVar[tuple[str, ...]] = ("text", "pairs")
    MODELS: ClassVar[tuple[str, ...]] = ("teachers",)
    HINTS: ClassVar[dict[str, str]] = OTHER_NAMES | answers(
        {
            "--batch_size": f"{BATCH_NAMES} batch_tokens",
            "--text": DATA_NAMES,
            "--data_order": "shuffle sampler",
            "--eval_iters": "eval_batches val_iters",
            "--teachers": "teacher teacher_model distill distill_from",
            "--teachers_share": "distill_alpha distillation_weight teacher_weight",
            "--positions rotary": ROTARY_NAMES,
            "--n_kv_head": "num_key_value_heads n_kv_heads kv_heads",
            "--tie_weights": "tie_word_embeddings tie_embeddings weight_tying",
        }
    )

    def check_pairs(self) -> None:
        """Refuse pairs without a separator, and the other way round.

        Raises: OptionError.
        """
        named = f"--pairs {self.pairs}" if self.pairs else f"--dataset {self.dataset}"
        has_pairs = bool(self.pairs) or (not self.text and self.dataset in (*PARALLEL_CORPORA, CHAT))
        if self.pairs and self.text:
            raise OptionError("--pairs and --text cannot be combined: a GPT learns from pairs, or from a text")
        if has_pairs and not self.separator:
            raise OptionError(
                f"{named} belongs to the translation model: use python train.py translate-de-en {named}; a GPT learns "
                f"from pairs too, with a token between their sides: python train.py gpt-translate {named}"
            )
        if self.separator and not has_pairs:
            raise OptionError(
                f"--separator {self.separator} stands between the sides of pairs: add --pairs FILE.tsv, or name pairs "
                f"with --dataset, such as libreoffice-help"
            )
        if self.separator and not re.fullmatch(r"<[\w-]{1,40}>", self.separator):
            raise OptionError(f"--separator {self.separator}: write a name between < and >, such as <to-en>")
        if self.separator in ("<end>", UNKNOWN):
            raise OptionError(f"--separator {self.separator} has a meaning already: choose another name")

    def check(self, learns_tokenizer: bool) -> None:
        """Refuse what cannot be computed, before any text is fetched.

        Raises: OptionError.
        """
        self.check_pairs()
        for name in ("teachers", "replay"):
            share = getattr(self, f"{name}_share")
            if share != getattr(type(self), f"{name}_share") and not getattr(self, name):
                raise OptionError(f"--{name}_share {share:g} is a share of what --{name} names: add it")
        if self.teachers and (self.separator or self.tokenizer == "pixels"):
            raise OptionError(
                "--teachers are GPTs of the same text, but this run learns from pairs or pictures: omit it"
            )
        self.take_path()
        if learns_tokenizer:
            self.model_config(2)
            if (self.tokenizer == "pixels") != (not self.text and self.dataset in PICTURES):
                raise OptionError("--tokenizer pixels and --dataset digits or other pictures belong together")
            if self.replay and self.tokenizer == "pixels":
                raise OptionError(f"--replay {self.replay} is a text, but --dataset {self.dataset} are pictures")
            if self.tokenizer == "hf":
                raise OptionError(
                    "--tokenizer hf: such a tokenizer comes with pretrained weights (--init_from FOLDER); to learn "
                    "one, take bpe"
                )

    def is_at_hand(self) -> bool:
        """Whether the text can be read, or be refused, without a network."""
        if self.separator:
            kept = resolve_name("workshop.corpora.pairs:from_cache")
            return bool(self.pairs or self.dataset == CHAT or kept(self.dataset, say=lambda line: None))
        if self.dataset in PICTURES and not self.text:
            return resolve_name("workshop.corpora.pictures:are_cached")(self.dataset)
        return (bool(self.text) or is_at_hand(self.dataset)) and (not self.replay or is_at_hand(self.replay))
