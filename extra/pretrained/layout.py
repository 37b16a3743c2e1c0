"""What several of Hugging Face's layouts have in common: checks of a config.json, and weights that have other names.

A config.json may hold settings that are unknown to this program, and a model computed without them would be a different
one. So each setting is either translated, or must have a certain value, or is known to change no result; any other is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any

import numpy as np

from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.nn import Module

# Settings that change no result in any model: for training, for other programs, or names.
WITHOUT_EFFECT = {
    *("architectures", "model_type", "_name_or_path", "transformers_version", "transformers.js_config"),
    *("torch_dtype", "dtype", "initializer_range", "use_cache", "gradient_checkpointing", "tie_word_embeddings"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "id2label", "label2id", "problem_type", "finetuning_task"),
    *("output_attentions", "output_hidden_states", "return_dict", "torchscript", "chunk_size_feed_forward"),
    *("is_encoder_decoder", "is_decoder", "_attn_implementation", "_attn_implementation_autoset"),
    *("auto_map", "output_past", "unsloth_fixed", "unsloth_version", "task_specific_params", "tokenizer_class"),
    *("_num_labels", "sep_token_id", "use_bfloat16", "tf_legacy_loss", "remove_invalid_values", "_commit_hash"),
    # For generation, which has its own options here.
    *("max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "temperature"),
    *("top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size"),
    *("encoder_no_repeat_ngram_size", "num_return_sequences", "diversity_penalty", "output_scores"),
    *("return_dict_in_generate", "tie_encoder_decoder", "max_new_tokens"),
}
# Our names of activations, by theirs.
OUR_ACTIVATION = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
HEADS = ("cls.", "classifier.")  # what the names of a head's weights begin with


def architecture_of(theirs: Mapping[str, Any], known: Sequence[str]) -> str:
    """The architecture that a config.json names; the first of those known if it names none.

    Raises: CheckpointError if it is none of them.
    """
    named = theirs.get("architectures") or [known[0]]
    if named not in [[name] for name in known]:
        raise CheckpointError(f"architectures is {short(named)}, but this program supports only {', '.join(known)}")
    return named[0]


def check_values(theirs: Mapping[str, Any], required: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a setting is given and has another value than the required one."""
    for name, value in required.items():
        if theirs.get(name, value) != value:
            raise CheckpointError(f"{name} is {short(theirs[name])}, but this program supports only {value!r}")


def check_settings(
    theirs: Mapping[str, Any], needed: Iterable[str], required: Mapping[str, Any], others: Collection[str] = ()
) -> None:
    """Check all settings of a config.json.

    Args:
        needed: the settings that must be there.
        required: the values that these settings must have, if they are given, for the model to be ours.
        others: settings that may be there, besides those in WITHOUT_EFFECT.
    Raises: CheckpointError that names a setting that is missing, unknown, or has another value.
    """
    check_values(theirs, required)
    needed = list(needed)
    known = {*needed, *required, *others, *WITHOUT_EFFECT}
    if unknown := [name for name, value in theirs.items() if name not in known and value not in (None, {}, [])]:
        raise CheckpointError(f"{unknown[0]} is {short(theirs[unknown[0]])}, a setting that this program does not know")
    if missing := [name for name in needed if theirs.get(name) is None]:
        raise CheckpointError(f"{missing[0]} is missing, which a {theirs.get('model_type', 'model')} needs")


def own_activation(theirs: Mapping[str, Any], name: str, default: str) -> str:
    """Our name for the activation that a setting names.

    Raises: CheckpointError if we lack it.
    """
    activation = theirs.get(name, default)
    if not isinstance(activation, str) or activation not in OUR_ACTIVATION:
        raise CheckpointError(
            f"{name} is {short(activation)}, but this program supports only {', '.join(OUR_ACTIVATION)}"
        )
    return OUR_ACTIVATION[activation]


def their_activation(ours: str) -> str:
    """Their name of an activation; gelu for one that they lack, which export then refuses."""
    return next((theirs for theirs, own in OUR_ACTIVATION.items() if own == ours), "gelu")


def label_names(theirs: Mapping[str, Any]) -> list[str]:
    """The names of a classifier's labels, in the order of their numbers; two if none are given, as in transformers.

    Raises: CheckpointError if id2label holds anything else, or if a text may have several right labels.
    """
    if theirs.get("problem_type") is not None:
        check_values(theirs, {"problem_type": "single_label_classification"})
    names = theirs.get("id2label") or {0: "LABEL_0", 1: "LABEL_1"}
    by_number = {str(number): name for number, name in names.items()} if isinstance(names, dict) else {}
    found = [by_number.get(str(number)) for number in range(len(by_number))]
    if not found or not all(isinstance(name, str) for name in found):
        raise CheckpointError(f"id2label is {short(names)}, which does not name the labels 0, 1, 2 ...")
    return found


def label_settings(names: Sequence[str]) -> dict[str, Any]:
    """The settings that name a classifier's labels."""
    return {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}


@dataclass(frozen=True)
class Renamed:
    """Weights that are ours under other names, with the same numbers in the same order.

    Attributes:
        model: our class.
        blocks: what the name of a block begins with, before its number.
        parts: their name of each part of a block, by ours.
        outside: their name of every other part, or of a weight with its own name.
        other_shapes: the shapes of the weights that they store in a different shape, by their names.
    """

    model: type[Module]
    blocks: str
    parts: Mapping[str, str]
    outside: Mapping[str, str]
    other_shapes: Callable[[Any], dict[str, tuple[int, ...]]] = lambda config: {}

    def names(self, ours: Iterable[str]) -> dict[str, str]:
        """Their names of weights, by ours.

        >>> layout = Renamed(Module, "h", {"mlp.up": "fc"}, {"head": "lm_head"})
        >>> layout.names(["blocks.3.mlp.up.weight", "head.bias"])
        {'blocks.3.mlp.up.weight': 'h.3.fc.weight', 'head.bias': 'lm_head.bias'}
        """
        names = {}
        for name in ours:
            part, _, kind = name.rpartition(".")
            if name in self.outside:
                names[name] = self.outside[name]
            elif part in self.outside:
                names[name] = f"{self.outside[part]}.{kind}"
            else:
                _, number, inside = part.split(".", 2)
                names[name] = f"{self.blocks}.{number}.{self.parts[inside]}.{kind}"
        return names

    def shapes(self, config: Any) -> dict[str, tuple[int, ...]]:
        """The shape of every weight of such a model, under their names."""
        ours = dict(self.model.blueprint(config).named_parameters())
        return {theirs: ours[name].shape for name, theirs in self.names(ours).items()} | self.other_shapes(config)

    def to_own(self, theirs: Mapping[str, np.ndarray], config: Any) -> dict[str, np.ndarray]:
        """The weights under our names, in our shapes."""
        ours = dict(self.model.blueprint(config).named_parameters())
        return {name: theirs[their_name].reshape(ours[name].shape) for name, their_name in self.names(ours).items()}

    def to_theirs(self, model: Module, prefix: str = "") -> dict[str, np.ndarray]:
        """The weights under their names, in their shapes.

        Args:
            prefix: what the names of all weights begin with, except those of heads.
        """
        ours, shapes = model.state_dict(), self.shapes(model.config)
        found = {theirs: ours[name].reshape(shapes[theirs]) for name, theirs in self.names(ours).items()}
        return {name if name.startswith(HEADS) else prefix + name: array for name, array in found.items()}
