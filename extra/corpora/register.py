"""The corpora of the shelf in the core's tables, where options and programs look for their names."""

from extra.corpora import pairs as more_pairs
from extra.corpora import texts as more_texts
from training.corpora import pairs, texts


def register() -> None:
    """Add the texts and the parallel corpora of the shelf, after those of the core; more than once changes nothing."""
    texts.RECIPES.update(more_texts.RECIPES | texts.RECIPES)
    pairs.RECIPES.update(more_pairs.RECIPES | pairs.RECIPES)
