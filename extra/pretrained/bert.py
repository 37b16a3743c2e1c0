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

from collections.abc import Mapping
from reprlib import repr as short
from typing import Any, ClassVar

import numpy as np

from extra.encoders.bert import Bert
from extra.encoders.config import LABEL_MARK, BertConfig
from extra.pretrained.layout import OF_ENCODERS, OF_TEXT, USUAL, Layout, architecture_of, label_names, label_settings
from extra.tokenizers.wordpiece import WordPieceTokenizer
from tinygrad_lite.errors import CheckpointError
from training.model_config import read_model_config

ARCHITECTURES = {
    "BertModel": {"objective": "features"},
    "BertForMaskedLM": {"objective": "words", "next_sentence": False},
    "BertForPreTraining": {"objective": "words", "next_sentence": True},
    "BertForSequenceClassification": {"objective": "labels"},
}


class BertLayout(Layout):
    """Settings and weights of BERT."""

    titles: ClassVar = {"bert": "BERT"}
    model = Bert
    read_tokenizer = WordPieceTokenizer.from_folder
    settings: ClassVar = USUAL | OF_TEXT | OF_ENCODERS | {"segments": "type_vocab_size", "activation": "hidden_act"}
    required: ClassVar = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
    others: ClassVar = {
        *"attention_probs_dropout_prob classifier_dropout directionality sentence_transformers pooler_type".split(),
        *"pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head".split(),
    }
    blocks = "encoder.layer"
    parts: ClassVar = {
        **{f"mixer.{name}": f"attention.self.{name}" for name in ("query", "key", "value")},
        "mixer.output": "attention.output.dense",
        "mixer_norm": "attention.output.LayerNorm",
        "mlp.up": "intermediate.dense",
        "mlp.down": "output.dense",
        "mlp_norm": "output.LayerNorm",
    }
    outside: ClassVar = {
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
    prefix = "bert."  # in a model that has a head
    tied = ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight")
    buffers = r"embeddings\.position_ids"  # in older files

    def own_config(self, theirs: Mapping[str, Any]) -> BertConfig:
        """Our settings, without the ids of special tokens: `read_folder` takes them from the vocabulary."""
        architecture = architecture_of(theirs, list(ARCHITECTURES))
        settings = self.own_settings({"hidden_act": "gelu"} | theirs) | ARCHITECTURES[architecture]
        if settings["objective"] == "labels":
            names = label_names(theirs)
            if wrong := [name for name in names if LABEL_MARK in name]:
                raise CheckpointError(f"id2label has {short(wrong[0])}, but no name with {LABEL_MARK} is supported")
            settings["labels"] = LABEL_MARK.join(names)
        return read_model_config(BertConfig, settings | {"norm_first": False, "pad": 0, "cls": 1, "sep": 2, "mask": 3})

    def their_config(self, config: BertConfig) -> dict[str, Any]:
        """Our settings under their names."""
        heads = {"objective": config.objective, "next_sentence": config.next_sentence}
        architecture = next(name for name, settings in ARCHITECTURES.items() if settings.items() <= heads.items())
        return {
            **self.their_settings("bert", architecture, config),
            "attention_probs_dropout_prob": config.dropout,
            "pad_token_id": config.pad,
            **(label_settings(config.label_names) if config.labels else {}),
        }

    def complete(self, theirs: dict[str, np.ndarray], config: BertConfig) -> None:
        """Drop the heads that the architecture does not use, and make a missing pooler, which features do not need.

        transformers does the same: the first BERT's files hold all heads of its pretraining, those for sentences often
        none. Of the two biases of the head for words it prefers the decoder's, too.
        """
        needed, bias = self.shapes(config), "cls.predictions.decoder.bias"
        if bias in theirs:
            theirs["cls.predictions.bias"] = theirs.pop(bias)
        for name in [name for name in theirs if name not in needed and name.startswith(("pooler.", "cls."))]:
            del theirs[name]
        if config.objective == "features" and not any(name.startswith("pooler.") for name in theirs):
            draw = np.random.default_rng(0).normal
            pooler = [name for name in needed if name.startswith("pooler.")]
            theirs.update({name: draw(0, 0.02, needed[name]).astype("f4") for name in pooler})

    def to_theirs(self, model: Bert) -> dict[str, np.ndarray]:
        """The weights under their names, with the prefix that a model with a head has."""
        found = super().to_theirs(model)
        is_headless = model.config.objective == "features"
        return {name.removeprefix(self.prefix if is_headless else ""): array for name, array in found.items()}


LAYOUT = BertLayout()
