"""The family of encoders for text, for train.py and sample.py: hidden words, and labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from encoder import bert_layout
from encoder.bert import Bert, without_head
from encoder.config import BertConfig, BertOptions
from encoder.labels import LabelsTask
from encoder.words import WordsTask
from tinygrad_lite.cli.errors import CheckpointError
from tinygrad_lite.corpora.minilm import NAME as MINILM
from tinygrad_lite.corpora.minilm import minilm_folder
from tinygrad_lite.tokenizers.base import Tokenizer
from tinygrad_lite.training.model_spec import ModelSpec, Task, Trained, read_trained
from tinygrad_lite.training.pretrained import is_pretrained_folder, load_pretrained

LAYOUTS = dict.fromkeys(bert_layout.TITLES, bert_layout)  # by model_type


def make_task(options: BertOptions, tokenizer: Tokenizer | None = None) -> Task:
    """The task of the options' objective."""
    return (LabelsTask if options.objective == "labels" else WordsTask)(options, tokenizer)


def load_trained(path: Path) -> Trained:
    """Read a trained encoder from a checkpoint, a run's folder, or a folder in Hugging Face's layout of BERT.

    Raises: CheckpointError or TokenizerError with the reason if there is none or if it cannot be used.
    """
    if not is_pretrained_folder(path):
        return read_trained(path, "bert", BertConfig, Bert)
    title, config, weights, tokenizer = load_pretrained(path, LAYOUTS)
    if tokenizer is None:
        raise CheckpointError(f"{path} has no tokenizer: put the vocab.txt or tokenizer.json of its model beside it")
    names = {name: config.special_token(name) for name in config.special_fields()}
    if missing := [token for token in names.values() if token not in tokenizer.specials]:
        raise CheckpointError(f"the tokenizer in {path} has no token {missing[0]}, which a BERT needs")
    config = replace(config, **{name: tokenizer.specials[token] for name, token in names.items()})
    about = f"{path}: {title} with {Bert.blueprint(config).num_parameters():,} parameters"
    return Trained(path, about, Bert, config, tokenizer, weights)


SPEC = ModelSpec(
    name="bert",
    title="BERT",
    about="Train an encoder on text: to predict hidden words, or labels.",
    examples={
        "python train.py bert-goethe": "hidden words of Goethe, ten minutes on two cores",
        "python train.py bert-reviews": "hidden words of film reviews",
        "python train.py classify --init_from out/bert-reviews": "then: is a review positive?",
    },
    preset="bert-goethe",
    options=BertOptions,
    config=BertConfig,
    model=Bert,
    task=make_task,
    load=load_trained,
    adapt=without_head,
    layouts=LAYOUTS,
    fetched={MINILM: minilm_folder},
)
