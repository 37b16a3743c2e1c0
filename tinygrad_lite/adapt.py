"""Adapting a trained model: train a few of its parameters, or a few new ones added to it (LoRA), and freeze the rest.

**Freezing.** A frozen parameter keeps its values. No gradient is computed for it, the optimizer keeps no moments for
it, and the backward pass ends at the lowest layer that learns something: the layers below it are computed forward only.

**LoRA** (low-rank adaptation) freezes the matrix W (m, n) of a linear map and learns a change to it, the product of two
narrow matrices:

    y = x W^T + b + s (x A^T) B^T        A: (r, n)    B: (m, r)    s = alpha / r    x: (..., n)    y: (..., m)

With z = x A^T, of width r, the derivatives follow from the chapter on `linear`. W has none:

    dz = s dy B        dA = dz^T x        dB = s dy^T z        dx = dy W + dz A

**Why a low rank?** The result equals that of a single matrix W' = W + s B A, so the change is folded in after training
(`merge`), and the model is as fast as before. An arbitrary change to W takes m n numbers; B A has rank at most r, and
takes r (m + n) numbers. For m = n = 1024 and r = 8 that is 16,384 instead of 1,048,576, one 64th, and gradients and
moments shrink accordingly. This suffices if what must be learned lies in a few directions: W already has the features
that a new text needs, and B A strengthens r of them. Whether this is so must be measured.

**Why does B start at 0?** Then B A = 0, and the adapted model computes exactly what the base computes: training starts
where the base's training ended. A must not be 0 as well: with z = 0 and B = 0, dB = 0 and dA = 0, and neither would
ever move. With random A and B = 0, dA is 0 in the first step but dB is not, and as soon as B has moved, A learns too.

**What does alpha do?** s B A is the sum of r products of a column of B with a row of A, which all follow the same
gradient. Adam moves each number by about the learning rate, however large its gradient, so a step changes y r times as
much as with r = 1. Dividing by r compensates for this: a learning rate that suits one rank suits another, and alpha is
only a factor, which can be left alone.

**On quantized weights** (QLoRA). W never changes, and only the products x W^T and dy W are needed. So it can be stored
in 4 bits (`quantize.py`), while A and B, which learn, stay floats. Training starts from the quantized base, so it can
also make up for part of the rounding. Hence W + s B A with the original W, in floats, differs slightly from what was
trained: only the quantized W plus the change is exact.

References: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1 (arXiv:2106.09685);
Dettmers et al. 2023, "QLoRA: Efficient Finetuning of Quantized LLMs", section 3 (arXiv:2305.14314).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from tinygrad_lite.device import Array, get_device
from tinygrad_lite.nn import Dropout, Linear, Module, Parameter, misfits, shapes_only
from tinygrad_lite.nn.module import load_values, replace
from tinygrad_lite.quantize import QuantizedLinear
from tinygrad_lite.tensor import Tensor

__all__ = "LoRA add_lora attach counts freeze learned load_learned low_rank_change merge sizes".split()


class LoRA(Module):
    """A frozen linear map plus a low-rank change to it that is learned: y = base(x) + alpha / r (x A^T) B^T.

    A is drawn as in `Linear`, uniform in +-1/sqrt(in_features); B is 0. As in peft, dropout applies only to the input
    of the change.

    >>> from tinygrad_lite import Tensor
    >>> base = Linear(6, 4)
    >>> adapted, x = LoRA(base, rank=2, alpha=2.0), Tensor.ones(5, 6)
    >>> bool((adapted(x) == base(x)).all())
    True
    >>> adapted
    LoRA, 48 parameters
      base: Linear, 28 parameters: weight (4, 6), bias (4,)
      lora_A: Linear, 12 parameters: weight (2, 6)
      lora_B: Linear, 8 parameters: weight (4, 2)
      dropout: Dropout
    """

    def __init__(self, base: Module, rank: int, alpha: float, dropout: float = 0.0) -> None:
        """An adapter for a linear map.

        Args:
            base: a Linear or a QuantizedLinear.
        """
        self.base = base
        self.in_features, self.out_features = base.in_features, base.out_features
        self.lora_A = Linear(self.in_features, rank, bias=False)
        self.lora_B = Linear(rank, self.out_features, bias=False)
        self.lora_B.weight.reset(lambda shape: np.zeros(shape, np.float32))
        self.dropout = Dropout(dropout)
        self.scale = alpha / rank
        for parameter in base.parameters():
            parameter.requires_grad = False
        self.to(base.weight.device, base.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        return self.base(x) + self.lora_B(self.lora_A(self.dropout(x)) * self.scale)


def low_rank_change(a: Array, b: Array, scale: float) -> Array:
    """What an adapter adds to its matrix: s B A, from A (r, n) and B (m, r) to (m, n)."""
    return (b * b.dtype.type(scale)) @ a


# --- changing a model -----------------------------------------------------------------------------------------


def freeze(model: Module, patterns: Iterable[str], among: Collection[str] | None = None) -> list[str]:
    """Freeze the parameters whose names match one of the patterns; returns their names.

    A pattern covers the name itself and everything below it: `blocks.0` is the first block, `blocks.*.mlp` the
    feed-forward part of every block, `*.bias` every bias, `*` the whole model.

    Args:
        among: the parameters that may be frozen; None: all.
    Raises: ValueError if a pattern matches none of them.
    """
    named, frozen = dict(model.named_parameters()), []
    possible = [name for name in named if among is None or name in among]
    for pattern in patterns:
        found = [name for name in possible if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not found:
            raise ValueError(f"nothing to freeze is called {pattern}: there are {_examples(possible)}")
        frozen += found
    for name in frozen:
        named[name].requires_grad = False
    return frozen


def add_lora(
    model: Module, rank: int, alpha: float, targets: Sequence[str] = (), dropout: float = 0.0
) -> dict[str, LoRA]:
    """Replace linear maps by adapters, which are returned by name. Everything else is unchanged.

    Args:
        targets: patterns of names, whose beginning may be omitted: `query` means the one in every block. Empty: all
            linear maps of the blocks, that is, those with a number in their name.
    Raises: ValueError if a target matches nothing or cannot be adapted, or if the rank is above the smaller side of a
        matrix.
    """
    linears = {name: part for name, part in model.named_modules() if hasattr(part, "in_features")}
    if adapted := [name for name, part in linears.items() if isinstance(part, LoRA)]:
        raise ValueError(f"{adapted[0]} already has an adapter: merge it first")
    chosen = [] if targets else [name for name in linears if any(part.isdigit() for part in name.split("."))]
    for target in targets:
        found = [name for name in linears if fnmatchcase(name, target) or fnmatchcase(name, f"*.{target}")]
        if not found:
            there_are = _examples(name.rpartition(".")[2] for name in linears)
            raise ValueError(f"no linear map is called {target}: there are {there_are}")
        chosen += [name for name in found if name not in chosen]
    if not chosen:
        raise ValueError("the model has no blocks whose linear maps could be adapted: name some as targets")
    owners = Counter(id(value) for _, part in model.named_modules() for value in vars(part).values())
    for name in chosen:
        base = linears[name]
        smaller = min(base.in_features, base.out_features)
        if rank > smaller:
            raise ValueError(
                f"rank {rank} is above {smaller}, the smaller side of {name} ({base.out_features} x "
                f"{base.in_features}), where it can express any change: choose a smaller one"
            )
        if any(owners[id(value)] > 1 for value in vars(base).values() if isinstance(value, Parameter)):
            raise ValueError(f"{name} shares its matrix with another part, which adapting it would change too")
    return {name: replace(model, name, LoRA(linears[name], rank, alpha, dropout)) for name in chosen}


def attach(model: Module, changes: Mapping[str, tuple[Array, Array, float]]) -> None:
    """Attach changes learned earlier to linear maps: by name, A (r, n), B (m, r) and s, for W + s B A.

    Raises: ValueError if there is no linear map of that name and shape.
    """
    parts = dict(model.named_modules())
    for name, (a, b, scale) in changes.items():
        base = parts.get(name)
        if not isinstance(base, (Linear, QuantizedLinear)):
            raise ValueError(f"{name} is not a linear map, so no change can be attached to it")
        with shapes_only():
            part = LoRA(base, len(a), scale * len(a))
        halves = {"lora_A.weight": a, "lora_B.weight": b}
        if problems := misfits({half: dict(part.named_parameters())[half] for half in halves}, halves):
            raise ValueError(f"the change of {name} does not fit: {problems}")
        for parameter, array in ((part.lora_A.weight, a), (part.lora_B.weight, b)):
            parameter.data = get_device(parameter.device).from_host(np.require(array, parameter.dtype, "C"))
        replace(model, name, part)


def merge(model: Module) -> Module:
    """Fold every adapter into its matrix, W + s B A, so that the model has no adapters left.

    >>> from tinygrad_lite import Tensor
    >>> class Tiny(Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layers = [Linear(4, 3)]
    >>> model = Tiny()
    >>> add_lora(model, rank=1, alpha=1.0)["layers.0"].lora_B.weight.data[...] = 2
    >>> x = Tensor.ones(1, 4)
    >>> before = model.layers[0](x)
    >>> bool(((merge(model).layers[0](x) - before).abs() < 1e-5).all())
    True

    Raises: TypeError if a base has no matrix of floats to add the change to.
    """
    for name, part in list(model.named_modules()):
        if isinstance(part, LoRA):
            if not isinstance(part.base, Linear):
                raise TypeError(f"merge: {name} is a {type(part.base).__name__}: fold the adapter in before quantizing")
            weight = part.base.weight
            weight.data += low_rank_change(part.lora_A.weight.data, part.lora_B.weight.data, part.scale)
            weight.mark_written()
            replace(model, name, part.base)
    return model


def _examples(names: Iterable[str]) -> str:
    """Some of these names for a message, each once."""
    found = list(dict.fromkeys(names))
    return ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "") or "none"


# --- what a model has learned ---------------------------------------------------------------------------------


def learned(model: Module) -> dict[str, Parameter]:
    """The trainable parameters, by name: those that are not frozen."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def load_learned(model: Module, state: Mapping[str, np.ndarray]) -> None:
    """Load the values of the trainable parameters; names and shapes must match exactly.

    Raises: ValueError that lists missing, unexpected and mis-shaped names; nothing is changed then.
    """
    load_values(learned(model), state, f"what {type(model).__name__} learns")


def sizes(model: Module) -> dict[str, int]:
    """How many numbers each parameter has, by name, and each constant of a quantized map."""
    found = {name: parameter.numel() for name, parameter in model.named_parameters()}
    for name, part in model.named_modules():
        if isinstance(part, QuantizedLinear):
            found[f"{name}.weight"] = part.weight.numel()
            if part.bias is not None:
                found[f"{name}.bias"] = part.bias.numel()
    return found


def counts(model: Module) -> tuple[int, int]:
    """How many numbers a model learns, and how many it has, including quantized ones; tied ones count once."""
    return sum(parameter.numel() for parameter in learned(model).values()), sum(sizes(model).values())
