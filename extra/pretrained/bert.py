"""The names of BERT in Hugging Face's layout, and ours: settings and weights, in both directions.

Our model with `norm_first=False` is theirs; the weights are ours under other names. The architecture in config.json
says which heads there are:

    BertModel                        none: vectors of tokens, and the pooler
    BertForMaskedLM                  hidden words
    BertForPreTraining               hidden words, and whether the second segment follows
    BertForSequenceClassification    labels

Reference: Devlin et al. 2018 (arXiv:1810.04805).
Format: the classes with these names in https://huggingface.co/docs/transformers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from reprlib import repr as short
from typing import Any

import numpy as np

from extra.encoders.bert import Bert
from extra.encoders.config import LABEL_MARK, BertConfig
from extra.pretrained.layout import (
    Renamed,
    architecture_of,
    check_settings,
    label_names,
    label_settings,
    own_activation,
    their_activation,
)
from extra.tokenizers.wordpiece import WordPieceTokenizer
from tinygrad_lite.errors import CheckpointError
from training.model_config import read_model_config

TITLES = {"bert": "BERT"}  # by model_type
read_tokenizer = WordPieceTokenizer.from_folder
PREFIX = "bert."  # before the names of the encoder's weights, in a model that has a head
HEAD = "cls.predictions.decoder.weight"  # the same matrix as the embedding
EMBEDDING = "embeddings.word_embeddings.weight"
BUFFER = re.compile(r"embeddings\.position_ids")  # in older files
PREFERRED = {"cls.predictions.bias": "cls.predictions.decoder.bias"}  # the bias again; where they differ, this one
ARCHITECTURES = {
    "BertModel": {"objective": "features"},
    "BertForMaskedLM": {"objective": "words", "next_sentence": False},
    "BertForPreTraining": {"objective": "words", "next_sentence": True},
    "BertForSequenceClassification": {"objective": "labels"},
}
# Their settings, by ours.
TRANSLATED = {
    "vocab_size": "vocab_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_embd": "hidden_size",
    "n_inner": "intermediate_size",
    "block_size": "max_position_embeddings",
    "segments": "type_vocab_size",
    "norm_eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
}
# The values that these settings must have, if they are given, for the model to be ours.
REQUIRED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
# Settings that are read below, or change no result.
OTHERS = {
    *("hidden_act", "attention_probs_dropout_prob", "classifier_dropout", "directionality", "pooler_type"),
    *("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head"),
    "sentence_transformers",
}
# Their name of each part of a block, by ours.
PARTS = {
    "mixer.query": "attention.self.query",
    "mixer.key": "attention.self.key",
    "mixer.value": "attention.self.value",
    "mixer.output": "attention.output.dense",
    "mixer_norm": "attention.output.LayerNorm",
    "mlp.up": "intermediate.dense",
    "mlp.down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
OUTSIDE = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
    "transform": "cls.predictions.transform.dense",
    "transform_norm": "cls.predictions.transform.LayerNorm",
    "lm_head": "cls.predictions",  # its bias; the matrix is the embedding
    "next_head": "cls.seq_relationship",
    "label_head": "classifier",
}


def own_config(theirs: Mapping[str, Any]) -> BertConfig:
    """Our settings from those in a config.json of BERT.

    The ids of special tokens are not in it: `read_trained` takes them from the vocabulary.

    Raises: CheckpointError if they describe a different kind of model.
    """
    architecture = architecture_of(theirs, list(ARCHITECTURES))
    activation = own_activation(theirs, "hidden_act", "gelu")
    check_settings(theirs, TRANSLATED.values(), REQUIRED, OTHERS)
    settings = {ours: theirs[name] for ours, name in TRANSLATED.items()} | ARCHITECTURES[architecture]
    settings |= {"activation": activation, "norm_first": False}
    if settings["objective"] == "labels":
        names = label_names(theirs)
        if wrong := [name for name in names if LABEL_MARK in name]:
            raise CheckpointError(f"id2label has {short(wrong[0])}, but no name with {LABEL_MARK} is supported")
        settings["labels"] = LABEL_MARK.join(names)
    return read_model_config(BertConfig, settings | {"pad": 0, "cls": 1, "sep": 2, "mask": 3})


def their_config(config: BertConfig) -> dict[str, Any]:
    """Our settings under their names, as far as they have such settings."""
    heads = {"objective": config.objective, "next_sentence": config.next_sentence}
    architecture = next(name for name, settings in ARCHITECTURES.items() if settings.items() <= heads.items())
    return {
        "architectures": [architecture],
        "model_type": "bert",
        **{name: {"n_inner": config.n_hidden}.get(ours, getattr(config, ours)) for ours, name in TRANSLATED.items()},
        "attention_probs_dropout_prob": config.dropout,
        "hidden_act": their_activation(config.activation),
        "pad_token_id": config.pad,
        **(label_settings(config.label_names) if config.labels else {}),
    }


NAMES = Renamed(Bert, "encoder.layer", PARTS, OUTSIDE)
shapes, to_own = NAMES.shapes, NAMES.to_own


def complete(theirs: dict[str, np.ndarray], config: BertConfig) -> None:
    """Drop the heads that the architecture does not use, and make a pooler that features do not need, if it is missing.

    transformers does the same: the first BERT's files hold all heads of its pretraining, those for sentences often
    none.
    """
    needed = shapes(config)
    for name in [name for name in theirs if name not in needed and name.startswith(("pooler.", "cls."))]:
        del theirs[name]
    if config.objective == "features" and not any(name.startswith("pooler.") for name in theirs):
        draw = np.random.default_rng(0).normal
        theirs.update({name: draw(0, 0.02, needed[name]).astype("f4") for name in needed if name.startswith("pooler.")})


def to_theirs(model: Bert) -> dict[str, np.ndarray]:
    """The weights under their names, with the prefix that a model with a head has."""
    return NAMES.to_theirs(model, "" if model.config.objective == "features" else PREFIX)
