"""Two trained models are the same."""

from training.family import Trained


def assert_equal(found: Trained, trained: Trained) -> None:
    """The same settings, tokenizer and weights."""
    assert (found.config, found.tokenizer.to_json()) == (trained.config, trained.tokenizer.to_json())
    assert found.weights.keys() == trained.weights.keys()
    assert all((found.weights[name] == array).all() for name, array in trained.weights.items())
