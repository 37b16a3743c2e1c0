"""A model's settings, where one dataclass field is all that a new setting needs.

    @dataclass(frozen=True)
    class TinyConfig(ModelConfig):
        vocab_size: int = option(MISSING, "tokens of the vocabulary", low=1, high=MAX_VOCAB_SIZE)
        n_layer: int = option(4, "blocks", low=1, high=1000, group="model")
        dropout: float = option(0.0, "probability of dropping an element", low=0.0, below=1.0, group="training")

From the fields follow

- the options of train.py, their checks and their --help: one of every field with a default;
- what a tokenizer decides: the fields without a default, `vocab_size` and the ids of special tokens;
- the JSON in checkpoints, checked by the same ranges and choices;
- the shape, which a run that starts from weights cannot change: the fields of the group "model".

The parts of a Transformer's block are settings, too. Those that several models offer are in one table, PARTS; a model
has the field `norm: str = part("norm")` to let its user choose. `transformer.block_of` makes a block of them:

    norm             layer norm, or RMS norm, which only divides          functional/layer_norm.py, rms_norm.py
    qk_norm          queries and keys are normalised before they meet     transformer.py, MultiHeadAttention
    attention_scale  the factor of the scores                             functional/attention.py
    positions        rotary: queries and keys are rotated by position  functional/rotary.py
    activation       the non-linearity of the feed-forward part           transformer.py, ACTIVATIONS
    zero_init        residual projections begin at 0                      transformer.py, init_gpt2

docs/recipe.md says what each of them gains, and where it comes from.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING
from typing import Any, ClassVar

from tinygrad_lite.transformer import ACTIVATIONS, MIXERS, POSITIONS, rotary_frequencies


def option(
    default: Any,
    help: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Collection[str] | None = None,
    is_path: bool = False,
    group: str = "",
) -> Any:
    """A dataclass field with everything that the command line, --help and the checks need to know.

    The field's type can be int, float, bool, str, list[str], or one of them `| None`, written as none.

    Args:
        default: the default value.
        help: its meaning, in a few words.
        unit: the unit, or the things that are counted.
        low, high: smallest and largest value allowed.
        above, below: exclusive bounds.
        choices: the allowed strings.
        is_path: whether the value is a file or folder, or a list of them.
        group: the heading under which --help shows it.
    """
    bounds = {"at least": low, "above": above, "at most": high, "below": below}
    facts = {"help": help, "unit": unit, "bounds": bounds, "choices": choices, "is_path": is_path, "group": group}
    value = {"default_factory": default.copy} if isinstance(default, list) else {"default": default}
    return dataclasses.field(**value, metadata=facts)


def under(*headings: str) -> Iterator[Callable[..., Any]]:
    """`option` for each of several headings: of_data, of_training = under("data", "training")."""
    return (functools.partial(option, group=heading) for heading in headings)


of_model, of_training = under("model", "training")

MAX_VOCAB_SIZE = 10_000_000


# By name: the group of the option, the default, what it is, and what it may be.
PARTS: dict[str, tuple[str, Any, str, dict[str, Any]]] = {
    "norm": ("model", "layernorm", "what every norm is", {"choices": ("layernorm", "rmsnorm")}),
    "norm_weight": ("model", True, "whether norms have a learned gain; false needs rmsnorm", {}),
    "norm_eps": ("model", 1e-5, "keeps a norm from dividing by 0", {"above": 0.0, "below": 1.0}),
    "norm_first": ("model", True, "norm before each part of a block; false: after it, as in 2017", {}),
    "qk_norm": ("model", False, "RMS norm of each head's queries and keys", {}),
    "attention_scale": (
        "model",
        None,
        "factor of attention's scores; none: 1 / sqrt(width of a head)",
        {"above": 0.0, "high": 1e6},
    ),
    "activation": ("model", "gelu", "non-linearity of the feed-forward part", {"choices": (*ACTIVATIONS,)}),
    "zero_init": ("training", False, "begin with residual projections of 0", {}),
}


def part(name: str, default: Any = None) -> Any:
    """The field of the part of this name; its default is the one in the table unless one is given."""
    group, usual, about, limits = PARTS[name]
    return option(usual if default is None else default, about, group=group, **limits)


def recompute_option() -> Any:
    """The setting `recompute`, for every model with a stack of blocks."""
    about = "keep only each block's input for the backward pass, which computes the rest again: less memory, more time"
    return of_training(False, about)


class ModelConfig:
    """The base of the dataclasses of models' settings.

    Attributes:
        ALWAYS: the settings in every checkpoint since version 0.1.0. Any other one may be missing, and then has its
            default: so the default of a new setting must match what models did before it existed.
        CACHES: key-value caches of a layer.
        READERS: settings that some models do not read: by the choice that decides it, which of its values read them.
    """

    ALWAYS: ClassVar[frozenset[str]] = frozenset()
    CACHES: ClassVar[int] = 1
    READERS: ClassVar = {}
    # Unless a model has these settings:
    n_kv_head = head_dim = attention_scale = n_state = window = None
    mixer = "attention"
    norm, positions = "layernorm", "learned"
    norm_weight = bias = norm_first = residual = tie_weights = True
    qk_norm = recompute = False
    norm_eps, n_inner, rope_theta, rope_scaling = 1e-5, 0, 10000.0, None

    @classmethod
    def chosen(cls) -> dict[str, dataclasses.Field]:
        """The settings that a user chooses, by name: those with a default."""
        return {field.name: field for field in dataclasses.fields(cls) if field.default is not MISSING}

    @classmethod
    def shape(cls) -> frozenset[str]:
        """The names of the settings that weights depend on."""
        return frozenset(name for name, field in cls.chosen().items() if field.metadata["group"] == "model")

    @classmethod
    def special_fields(cls) -> list[str]:
        """The settings that are ids of special tokens: `pad` is that of the token `special_token("pad")`."""
        return [field.name for field in dataclasses.fields(cls) if field.name not in {"vocab_size", *cls.chosen()}]

    @classmethod
    def special_token(cls, name: str) -> str:
        """The name of the special token whose id is the setting `name`."""
        return f"<{name}>"

    @property
    def specials(self) -> dict[str, int]:
        """The special tokens that the model knows by their ids."""
        return {self.special_token(name): getattr(self, name) for name in self.special_fields()}

    @property
    def n_hidden(self) -> int:
        """F, the width inside a feed-forward part, with the meaning of 0 resolved."""
        return self.n_inner or 4 * self.n_embd

    @property
    def kept_hidden(self) -> int:
        """Numbers per position that a feed-forward part keeps for its backward pass: its hidden layer, with slopes."""
        return {"gelu": 2, "gelu_tanh": 2, "swiglu": 3}.get(self.activation, 1) * self.n_hidden

    @property
    def kept_attention(self) -> int:
        """Numbers per position that a block's mixer keeps for its backward pass; of attention, without its weights."""
        return MIXERS[self.mixer].kept(self)

    def of_all_blocks(self, count: int, kept: int) -> int:
        """Numbers per position that a stack of blocks keeps, if one keeps `kept`: with `recompute`, only one does."""
        return count * self.n_embd + kept if self.recompute else count * kept

    @property
    def head_width(self) -> int:
        """D, the width of a head, with the meaning of None resolved."""
        return self.head_dim or self.n_embd // self.n_head

    @property
    def is_recurrent(self) -> bool:
        """Whether a recurrent layer takes the place of attention."""
        return "n_state" in MIXERS[self.mixer].reads

    @property
    def state_width(self) -> int:
        """H, the width of a recurrent layer's state, with the meaning of None resolved."""
        return self.n_state or self.n_embd

    @property
    def frequencies(self) -> tuple[float, ...]:
        """The angles by which rotary positions turn the D/2 pairs of a head."""
        return rotary_frequencies(self.head_width)

    @property
    def cached_width(self) -> int:
        """How many numbers the keys of one position and layer have; the values have as many."""
        return (self.n_kv_head or self.n_head) * self.head_width

    @property
    def cached_numbers(self) -> int:
        """What a layer keeps of a text of block_size tokens: keys and values, or a recurrent state (h and c)."""
        return MIXERS[self.mixer].cached(self)

    def misfit(self, mark: str = "") -> str:
        """Which settings contradict each other, in words; empty if none do.

        Args:
            mark: precedes the names, such as -- for options.
        """
        own = MIXERS[self.mixer]
        usual = {name: getattr(ModelConfig, name, getattr(self, name)) for name in MIXERS["attention"].reads}
        if not own.attends and (self.positions == "rotary" or POSITIONS.get(self.positions)):
            usual["positions"] = "none"
        wrong = {name: value for name, value in usual.items() if name not in own.reads and getattr(self, name) != value}
        if wrong:
            changes = " ".join(f"{mark}{name} {str(value).lower()}" for name, value in wrong.items())
            return f"{mark}mixer {self.mixer} has no use for settings of attention: choose {changes}"
        if self.n_embd % self.n_head and self.head_dim is None and "n_head" in own.reads:
            widths = f"{mark}n_embd {self.n_embd} is not a multiple of {mark}n_head {self.n_head}"
            return f"{widths}: every head needs the same width"
        if not self.norm_weight and self.norm != "rmsnorm":
            return f"a norm without a gain is {mark}norm rmsnorm, not {self.norm}"
        if self.positions == "rotary" and self.head_width % 2:
            return f"{mark}positions rotary turns pairs of numbers, but a head has {self.head_width}, an odd number"
        ids = self.specials.values()
        if len(set(ids)) < len(ids) or max(ids, default=0) >= self.vocab_size:
            return f"{self.specials} are not {len(ids)} different tokens among {self.vocab_size:,}"
        return ""

    def to_json(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return dataclasses.asdict(self)
