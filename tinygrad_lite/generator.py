"""What models need to generate: tokens so far, their keys and values, and the step that appends one more.

The decoding algorithms (`sampling.py`, `beam.py`) know a model only as `step(tokens, state) -> (log_probs, state)`, and
of a state only that `state.select(rows)` returns the state of some rows. A model provides `predict(ids, state)`, its
logits; everything around that is here:

    cache      keys and values of earlier positions are kept, so a step computes one position (`KVCache`)
    padding    texts of different lengths share a batch, and each is continued as it would be alone
    window     a text longer than the context is continued from its last half
    fast step  a version of the model for single tokens, without tensors and graph, if there is one
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tinygrad_lite.autograd import no_grad
from tinygrad_lite.device import Array, on_host
from tinygrad_lite.functional.registry import is_composed
from tinygrad_lite.nn import Module
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import POSITION_CODES, KVCache


@dataclass
class GenerationState:
    """What generation has read so far.

    Attributes:
        window: the tokens (B, n) within the context.
        caches: their keys and values, one per layer; None to compute them again in each step.
        padding: if texts differ in length, how many positions (B,) at the start of each row are not text.
        memory: the encoder's output, if there is an encoder; `select` returns that of some rows.
        fast: the model's version for single tokens, from the first such token on.
        on_host: whether log-probabilities are copied from a GPU; otherwise they stay there, until the next ones.
    """

    window: np.ndarray
    caches: list[KVCache] | None
    padding: np.ndarray | None = None
    memory: Any = None
    fast: Any = None
    on_host: bool = True

    def texts(self) -> list[np.ndarray]:
        """The tokens of each row, without padding."""
        if self.padding is None:
            return list(self.window)
        return [row[start:] for row, start in zip(self.window, self.padding, strict=True)]

    def select(self, rows: np.ndarray) -> Self:
        """The state of these rows, in this order; a row may be taken several times (beam search)."""
        padding = None if self.padding is None else self.padding[rows]
        memory = None if self.memory is None else self.memory.select(rows)
        caches = select_caches(self.caches, rows)
        return replace(self, window=self.window[rows], caches=caches, padding=padding, memory=memory)


class Generator(Module):
    """A model that generates.

    A subclass has `config` (with n_layer and block_size), `token_embedding`, and `predict`.

    Attributes:
        is_endless: whether a text may be longer than block_size, since what the model keeps of it does not grow.
        fast_versions: by device, a class such as `FastStep`, whose `fits(model)` says whether it can replace a model.
    """

    fast_versions: ClassVar[Mapping[str, Any]] = {}
    is_endless = False
    _fast: Any = None  # made when text is generated, and again after each update
    _codes: Tensor | None = None  # (positions, C), see `position_codes`

    def predict(self, ids: Tensor, state: GenerationState) -> Tensor:
        """The logits (B, n, V) after each of ids (B, n), the tokens of the state that its caches do not hold yet."""
        raise NotImplementedError(f"{type(self).__name__} has no predict()")

    def start(
        self, prompts: np.ndarray | Sequence[Sequence[int]], use_cache: bool = True, on_host: bool = True
    ) -> tuple[np.ndarray, GenerationState]:
        """Read a prompt per row: log-probabilities (B, V) of the next token, and the state to continue from.

        Args:
            prompts: (B, T) token ids, or a list of B prompts of any lengths of at least 1. Each row is predicted as
                it would be alone, up to rounding.
            on_host: False leaves the log-probabilities, these and those of later steps, where the model is.
        Raises: ValueError if a prompt is empty.
        """
        if not all(len(prompt) for prompt in prompts):
            name = type(self).__name__
            raise ValueError(f"{name}: a prompt is empty, but a prediction needs at least one token to start from")
        context = None if self.is_endless else -self.config.block_size
        return self._read([np.asarray(prompt)[context:] for prompt in prompts], use_cache, on_host=on_host)

    def step(self, tokens: np.ndarray, state: GenerationState) -> tuple[np.ndarray, GenerationState]:
        """Append one token per row (B,): log-probabilities (B, V) of the next token, and the new state.

        When the context of a row is full, its last half is read again: positions start again at 0, so everything
        about those tokens must be computed again, but then block_size / 2 tokens follow without such a break. (A
        translation cannot forget its beginning: there, a full context is an error.)
        """
        block_size = self.config.block_size
        window = np.concatenate([state.window, tokens[:, None]], axis=1)
        state = replace(state, window=window)
        if window.shape[1] > block_size and state.memory is None and not self.is_endless:
            half = max(1, block_size // 2)
            texts = [text[-half:] if len(text) > block_size else text for text in state.texts()]
            return self._read(texts, state.caches is not None, on_host=state.on_host)
        return self.log_probs(window if state.caches is None else tokens[:, None], state), state

    def new_caches(self, capacity: int | None = None) -> list[KVCache]:
        """An empty key-value cache for each layer, with room for a whole context unless told otherwise."""
        return [KVCache(capacity or self.config.block_size) for _ in range(self.config.n_layer)]

    def position_codes(self, positions: np.ndarray, like: Tensor) -> Tensor:
        """The codes that are added at positions, of the type of a tensor and on its device: (...) -> (..., C).

        They are kept there, since computing them takes milliseconds, for which a GPU would wait in every step.
        """
        length, codes = 1 << int(positions.max(initial=0)).bit_length(), self._codes
        if codes is None or len(codes) < length or (codes.dtype, codes.device) != (like.dtype, like.device):
            table = POSITION_CODES[self.config.positions](length, self.config.n_embd)
            codes = self._codes = Tensor(table, dtype=like.dtype, device=like.device)
        return rows_of(codes, positions)

    def train(self, mode: bool = True) -> Module:
        """As for every module; and the fast version is dropped, since training changes the weights."""
        if mode:
            self._fast = None
        return super().train(mode)

    def _read(
        self, texts: Sequence[np.ndarray], use_cache: bool, memory: Any = None, on_host: bool = True
    ) -> tuple[np.ndarray, GenerationState]:
        """Read a text per row from its beginning. Shorter ones are padded on the left, so that all end together."""
        window = pad_rows(texts, 0, left=True)
        padding = np.array([window.shape[1] - len(text) for text in texts])
        caches = self.new_caches() if use_cache else None
        state = GenerationState(window, caches, padding if padding.any() else None, memory, on_host=on_host)
        return self.log_probs(window, state), state

    def log_probs(self, ids: np.ndarray, state: GenerationState) -> Array:
        """For what follows ids (B, n), the tokens of the state that are not in its caches yet: (B, V)."""
        if ids.shape[1] == 1 and state.caches is not None:
            if state.fast is None and state.padding is None and state.memory is None:
                state.fast = self._fast_step()
            if state.fast is not None:
                log_probs = state.fast(ids[:, 0], state.caches)
                return on_host(log_probs) if state.on_host else log_probs
        weight = self.token_embedding.weight
        with no_grad():
            logits = self.predict(Tensor(ids, device=weight.device), state)[:, -1]
            # Where the products are bfloat16, the logits are too; but log-probabilities must be exact.
            log_probs = logits.cast(weight.dtype).log_softmax()
            return log_probs.numpy() if state.on_host else log_probs.data

    def _fast_step(self) -> Callable[[np.ndarray, list[KVCache]], np.ndarray] | None:
        """The fast version of the model with its current weights; None if there is none."""
        version = self.fast_versions.get(self.token_embedding.weight.device)
        if version is None or self.training or is_composed() or not version.fits(self):
            return None
        if self._fast is None or not self._fast.is_up_to_date(self):
            self._fast = version(self)
        return self._fast


def rows_of(table: Tensor, positions: np.ndarray) -> Tensor:
    """The vectors of positions: a slice of the table, which is faster, if they are the same for all texts."""
    is_shared = positions.ndim == 1 and len(positions)
    return table[positions[0] : positions[-1] + 1] if is_shared else table[positions]


def select_caches(caches: list[KVCache] | None, rows: np.ndarray) -> list[KVCache] | None:
    """The caches of these rows of a batch."""
    return None if caches is None else [cache.select(rows) for cache in caches]


def pad_rows(rows: Sequence[Sequence[int]], pad: int, left: bool = False) -> np.ndarray:
    """Rows of different lengths as one array (B, longest), with padding at their ends, or at their beginnings.

    >>> pad_rows([[5, 6], [7]], pad=0)
    array([[5, 6],
           [7, 0]])
    """
    padded = np.full((len(rows), max(map(len, rows))), pad, np.int64)
    for row, ids in zip(padded, rows, strict=True):
        row[slice(len(row) - len(ids), None) if left else slice(len(ids))] = ids
    return padded
