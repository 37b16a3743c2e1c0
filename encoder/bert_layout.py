"""The names of BERT in Hugging Face's layout, and ours: settings and weights, in both directions.

Our model with `norm_first=False` is theirs; the weights are ours under other names. Which heads there are says the
architecture in config.json:

    BertModel                        none: vectors of tokens, and the pooler
    BertForMaskedLM                  hidden words
    BertForPreTraining               hidden words, and whether the second segment follows
    BertForSequenceClassification    labels

Reference: Devlin et al. 2018 (arXiv:1810.04805).
Format: the classes of these names of https://huggingface.co/docs/transformers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from reprlib import repr as short
from typing import Any

import numpy as np

from encoder.bert import Bert
from encoder.config import LABEL_MARK, BertConfig
from tinygrad_lite.cli.errors import CheckpointError
from tinygrad_lite.tokenizers.wordpiece import WordPieceTokenizer

TITLES = {"bert": "BERT"}  # by model_type
TOKENIZER = WordPieceTokenizer
PREFIX = "bert."  # before the names of the encoder's weights, in a model that has a head
HEAD = "cls.predictions.decoder.weight"  # the same matrix as the embedding
EMBEDDING = "embeddings.word_embeddings.weight"
BUFFER = re.compile(r"embeddings\.position_ids|cls\.predictions\.decoder\.bias")  # in older files; the bias again
ARCHITECTURES = {
    "BertModel": {"objective": "features"},
    "BertForMaskedLM": {"objective": "words"},
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
OUR_ACTIVATION = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
# The values that these settings must have, if they are given, for the model to be ours.
REQUIRED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
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

    The ids of special tokens are not in it: `load_trained` takes them from the vocabulary.

    Raises: CheckpointError if they describe a different kind of model.
    """
    named = theirs.get("architectures") or ["BertModel"]
    if len(named) != 1 or named[0] not in ARCHITECTURES:
        raise CheckpointError(
            f"architectures is {short(named)}, but this program supports only {', '.join(ARCHITECTURES)}"
        )
    for name, value in REQUIRED.items():
        if theirs.get(name, value) != value:
            raise CheckpointError(f"{name} is {short(theirs[name])}, but this program supports only {value!r}")
    activation = theirs.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in OUR_ACTIVATION:
        raise CheckpointError(
            f"hidden_act is {short(activation)}, but this program supports only {', '.join(OUR_ACTIVATION)}"
        )
    for name in TRANSLATED.values():
        if name not in theirs:
            raise CheckpointError(f"{name} is missing, which a BERT needs")
    settings = {ours: theirs[name] for ours, name in TRANSLATED.items()} | ARCHITECTURES[named[0]]
    settings |= {"activation": OUR_ACTIVATION[activation], "norm_first": False}
    if settings["objective"] == "labels":
        names = theirs.get("id2label", {})
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise CheckpointError(f"id2label is {short(names)}, which does not name the labels")
        settings["labels"] = LABEL_MARK.join(names.values())
    return BertConfig.from_json(settings | {"pad": 0, "cls": 1, "sep": 2, "mask": 3})


def their_config(config: BertConfig) -> dict[str, Any]:
    """Our settings under their names, as far as they have such settings."""
    wanted = {"objective": config.objective}
    if config.objective == "words" and config.next_sentence:
        wanted["next_sentence"] = True
    architecture = next(name for name, settings in ARCHITECTURES.items() if settings == wanted)
    activations = (name for name, ours in OUR_ACTIVATION.items() if ours == config.activation)
    return {
        "architectures": [architecture],
        "model_type": "bert",
        **{name: {"n_inner": config.n_hidden}.get(ours, getattr(config, ours)) for ours, name in TRANSLATED.items()},
        "attention_probs_dropout_prob": config.dropout,
        "hidden_act": next(activations, "gelu"),  # an activation that BERT lacks is refused by export
        "pad_token_id": config.pad,
        **({"id2label": dict(enumerate(config.label_names))} if config.labels else {}),
    }


def shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of such a model, under their names."""
    weights = dict(Bert.blueprint(config).named_parameters())
    return {their_name: weights[ours].shape for ours, their_name in _names(weights).items()}


def to_own(theirs: Mapping[str, np.ndarray], config: BertConfig) -> dict[str, np.ndarray]:
    """The weights under our names."""
    ours = dict(Bert.blueprint(config).named_parameters())
    return {our_name: theirs[their_name] for our_name, their_name in _names(ours).items()}


def to_theirs(model: Bert) -> dict[str, np.ndarray]:
    """The weights under their names, with the prefix that a model with a head has."""
    ours, prefix = model.state_dict(), "" if model.config.objective == "features" else PREFIX
    heads = ("cls.", "classifier.")
    named = {their_name: ours[our_name] for our_name, their_name in _names(ours).items()}
    return {name if name.startswith(heads) else prefix + name: array for name, array in named.items()}


def _names(ours: Iterable[str]) -> dict[str, str]:
    """Their names of weights, by ours.

    >>> _names(["blocks.3.mixer.query.weight"])
    {'blocks.3.mixer.query.weight': 'encoder.layer.3.attention.self.query.weight'}
    """
    names = {}
    for name in ours:
        part, _, kind = name.rpartition(".")
        if part in OUTSIDE:
            names[name] = f"{OUTSIDE[part]}.{kind}"
        else:
            _, layer, inside = part.split(".", 2)
            names[name] = f"encoder.layer.{layer}.{PARTS[inside]}.{kind}"
    return names
