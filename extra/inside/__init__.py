"""What a stack of blocks computes while it reads: attention, the stream, and what each part adds to it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from text.tokenizers.base import Tokenizer
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.nn import Call, Module, recorded
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import Block, FeedForward, MultiHeadAttention

NOT_FINITE = "the model computes NaN or infinity: its training diverged, or its file was changed"


@dataclass(frozen=True)
class Inside:
    """What `look_inside` found for T positions and L layers of H heads.

    Attributes:
        attention: (L, H, T, T), the weights, each row of which sums to 1.
        stream: (L + 1, T, C), what the first block reads, and what each block returns.
        added: (L, 2, T, C), what attention and the feed-forward part return in each layer.
    """

    attention: np.ndarray
    stream: np.ndarray
    added: np.ndarray


def numbers(x: Tensor | np.ndarray) -> np.ndarray:
    """What a model computed, as an array on the CPU; CheckpointError if some of it is NaN or infinite."""
    found = x.numpy() if isinstance(x, Tensor) else x
    if not np.isfinite(found).all():
        raise CheckpointError(NOT_FINITE)
    return found


def look_inside(model: Module, *inputs: Tensor) -> Inside:
    """Run a model on a batch of one, and keep what is computed on the way."""
    kinds = (Block, MultiHeadAttention, FeedForward)
    with no_grad(), model.evaluating(), recorded(model, *kinds) as calls:
        model(*inputs)
    blocks, mixers, mlps = ([call for call in calls if isinstance(call.module, kind)] for kind in kinds)
    return Inside(
        attention=numbers(np.stack([weights_of(call) for call in mixers])),
        stream=np.stack([numbers(x)[0] for x in (blocks[0].args[0], *(call.result for call in blocks))]),
        added=np.stack([[part.result.numpy()[0] for part in layer] for layer in zip(mixers, mlps, strict=True)]),
    )


def weights_of(call: Call) -> np.ndarray:
    """The weights of a recorded call of attention on a batch of one: (H, T, S)."""
    settings = {name: value for name, value in call.kwargs.items() if name in ("memory", "mask", "is_causal")}
    with no_grad(), call.module.evaluating():
        return call.module.weights(*call.args, **settings).numpy()[0]


@dataclass(frozen=True)
class Attention:
    """The weights of every layer and head.

    Attributes:
        queries: the T tokens that attend, as text.
        keys: the S tokens that are attended to, as text.
        weights: (L, H, T, S), which sum to 1 over S.
        is_causal: whether token t sees only the first t tokens.
    """

    queries: list[str]
    keys: list[str]
    weights: np.ndarray
    is_causal: bool = False

    @property
    def is_self(self) -> bool:
        """Whether tokens attend to the text that they are part of."""
        return self.queries is self.keys

    def visible(self) -> np.ndarray:
        """The weights with NaN where nothing can be seen."""
        is_hidden = np.triu(np.full(self.weights.shape[-2:], self.is_causal), 1)
        return np.where(is_hidden, np.nan, self.weights)


def pieces(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """The text of each token alone, with · for each space, control characters escaped, a number if there is no text.

    >>> from text.tokenizers.byte import ByteTokenizer
    >>> pieces(ByteTokenizer(), b"a ")
    ['a', '·']
    """
    return [tokenizer.render(token).replace(" ", "·") or f"<{token}>" for token in tokens]
