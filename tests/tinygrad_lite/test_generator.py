"""The state of generation, with a model that counts, so that each step can be predicted."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.places import here
from text.decoding.sampling import generate
from tinygrad_lite.generator import GenerationState, Generator
from tinygrad_lite.nn import Embedding
from tinygrad_lite.tensor import Tensor

VOCABULARY = 10


class Successor(Generator):
    """Predicts the token after the last one: 3 follows 2. It records its inputs."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(n_layer=1, block_size=4)
        self.token_embedding = Embedding(VOCABULARY, 2)
        self.given = []
        self.to(here())

    def predict(self, ids: Tensor, state: GenerationState) -> Tensor:
        self.given.append(ids.tolist())
        one_hot = 99.0 * (np.arange(VOCABULARY) == (ids.numpy()[..., None] + 1) % VOCABULARY)
        return Tensor(one_hot.astype(np.float32), device=ids.device)


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_step_reads_only_the_new_token_or_without_a_cache_the_window(use_cache):
    model = Successor()
    log_probs, state = model.start([[1, 2]], use_cache)
    written = generate(model.step, log_probs, state, max_new_tokens=5, temperature=0.0)
    assert [int(row[0]) for row in written] == [3, 4, 5, 6, 7]
    new = [[[1, 2]], [[3]], [[4]], [[4, 5]], [[6]]]  # the context of 4 is full before 5: its last half is read again
    whole = [[[1, 2]], [[1, 2, 3]], [[1, 2, 3, 4]], [[4, 5]], [[4, 5, 6]]]
    assert model.given == (new if use_cache else whole)


def test_shorter_texts_are_padded_on_the_left_and_returned_without_padding():
    _, state = Successor().start([[1], [2, 3, 4], [5, 6, 7, 8, 9]])
    assert state.window.tolist() == [[0, 0, 0, 1], [0, 2, 3, 4], [6, 7, 8, 9]]
    assert state.padding.tolist() == [3, 1, 0]
    chosen = state.select(np.array([1, 1, 0]))
    assert [text.tolist() for text in chosen.texts()] == [[2, 3, 4], [2, 3, 4], [1]]
    with pytest.raises(ValueError, match="Successor: a prompt is empty"):
        Successor().start([[1], []])
