"""What several of Hugging Face's layouts have in common: checks of a config.json, and weights that have other names.

A config.json may hold settings that are unknown to this program, and a model computed without them would be a different
one. So each setting is either translated, or must have a certain value, or is known to change no result; any other is
refused.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from reprlib import repr as short
from typing import Any, ClassVar

import numpy as np

from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.nn import Module

# Settings that change no result in any model: for training, for other programs, or names.
WITHOUT_EFFECT = {
    *"architectures model_type _name_or_path transformers_version transformers.js_config torch_dtype dtype".split(),
    *"initializer_range use_cache gradient_checkpointing tie_word_embeddings bos_token_id eos_token_id".split(),
    *"pad_token_id sep_token_id id2label label2id _num_labels problem_type finetuning_task output_attentions".split(),
    *"output_hidden_states output_past return_dict torchscript chunk_size_feed_forward is_encoder_decoder".split(),
    *"is_decoder _attn_implementation _attn_implementation_autoset auto_map unsloth_fixed unsloth_version".split(),
    *"task_specific_params tokenizer_class use_bfloat16 tf_legacy_loss remove_invalid_values _commit_hash".split(),
    # For generation, which has its own options here.
    *"max_length min_length max_new_tokens do_sample early_stopping num_beams num_beam_groups temperature".split(),
    *"top_k top_p typical_p repetition_penalty length_penalty diversity_penalty no_repeat_ngram_size".split(),
    *"encoder_no_repeat_ngram_size num_return_sequences output_scores return_dict_in_generate".split(),
    "tie_encoder_decoder",
}
# Our names of activations, by theirs.
OUR_ACTIVATION = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
# Their names of settings, by ours, in most layouts; and in those of text, and of encoders.
USUAL = {
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_embd": "hidden_size",
    "n_inner": "intermediate_size",
}
OF_TEXT = {"vocab_size": "vocab_size", "block_size": "max_position_embeddings"}
OF_ENCODERS = {"norm_eps": "layer_norm_eps", "dropout": "hidden_dropout_prob"}
# The values that settings of a decoder must have, if they are given.
DECODER = {"add_cross_attention": False, "is_causal": True, "quantization_config": None}
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


class Layout:
    """How another program calls the settings and weights of its models, and how it stores them.

    Each layout is a subclass, which defines the attributes that have no default here.

    Attributes:
        titles: the names of its models, by the model_type in their config.json.
        model: our class.
        settings: their name of each setting, by ours.
        required: the values that these settings must have, if they are given, for the model to be ours.
        others: settings that change no result, or that `own_config` reads.
        blocks: what the name of a block begins with, before its number.
        parts: their name of each part of a block, by ours; where one is that of several parts, it holds all of them.
        outside: their name of every other part, or of a weight with its own name.
        prefix: what the names of all weights except those of heads begin with; some files omit it.
        transposed: what the names of exactly those weights contain that are stored as (in, out); empty: none are.
        tied: the output matrix and the embedding, which are the same, unless the setting `tie_weights` is False.
        buffers: a pattern for the names, without prefix, of tensors that are no weights.
        in_weights: settings that they lack, but that weights can express, each with the value that they imply.
        own_config: own_config(theirs) makes our settings of those in a config.json; CheckpointError if they describe a
            different kind of model.
        their_config: their_config(config) has our settings under their names, as far as they have such settings.
        read_tokenizer: read_tokenizer(folder, vocab_size) reads their file of a tokenizer; None if there is none.
    """

    prefix = transposed = buffers = ""
    tied = ("", "")
    in_weights: ClassVar[Mapping[str, Any]] = {}

    # --- settings -----------------------------------------------------------------------------------------------------

    def check_folder(self, folder: Path) -> None:
        """Raise CheckpointError if another file of a folder asks for something that is unsupported."""

    def own_settings(self, theirs: Mapping[str, Any], optional: Collection[str] = ()) -> dict[str, Any]:
        """The values of `settings` in a config.json under our names, after a check of all that it holds.

        Args:
            optional: their names of those that may be missing.
        Raises: CheckpointError that names a setting that is missing, unknown, or has another value than the required.
        """
        check_values(theirs, self.required)
        known = {*self.settings.values(), *self.required, *self.others, *WITHOUT_EFFECT}
        if unknown := [name for name, value in theirs.items() if name not in known and value not in (None, {}, [])]:
            setting = f"{unknown[0]} is {short(theirs[unknown[0]])}"
            raise CheckpointError(f"{setting}, a setting that this program does not know")
        if missing := [name for name in self.settings.values() if name not in optional and theirs.get(name) is None]:
            raise CheckpointError(f"{missing[0]} is missing, which a {theirs.get('model_type', 'model')} needs")
        values = {ours: theirs.get(name) for ours, name in self.settings.items()}
        if "activation" in values:
            if (named := values["activation"]) not in [*OUR_ACTIVATION]:
                setting = f"{self.settings['activation']} is {short(named)}"
                raise CheckpointError(f"{setting}, but this program supports only {', '.join(OUR_ACTIVATION)}")
            values["activation"] = OUR_ACTIVATION[named]
        return values

    def their_settings(self, kind: str, architecture: str, config: Any, **resolved: Any) -> dict[str, Any]:
        """The values of `settings` under their names, and what kind of model it is.

        Args:
            resolved: what to write in place of a setting's value, by our name.
        """
        # Where they lack an activation of ours, export refuses what is read back.
        activation = next((theirs for theirs, ours in OUR_ACTIVATION.items() if ours == config.activation), "gelu")
        values = {"n_inner": config.n_hidden, "activation": activation} | resolved
        named = {name: values.get(ours, getattr(config, ours)) for ours, name in self.settings.items()}
        return {"model_type": kind, "architectures": [architecture]} | named

    # --- weights ------------------------------------------------------------------------------------------------------

    def packed(self, ours: Iterable[str]) -> dict[str, list[str]]:
        """What each of their weights holds, by its name: one of ours, or several.

        >>> class Example(Layout):
        ...     blocks, outside = "h", {"head": "lm_head"}
        ...     parts = {"mixer.query": "attn", "mixer.key": "attn"}
        >>> Example().packed(["head.bias", "blocks.3.mixer.query.weight", "blocks.3.mixer.key.weight"])
        {'lm_head.bias': ['head.bias'], 'h.3.attn.weight': ['blocks.3.mixer.query.weight', 'blocks.3.mixer.key.weight']}
        """
        found: dict[str, list[str]] = {}
        for name in ours:
            part, _, kind = name.rpartition(".")
            if name in self.outside:
                theirs = self.outside[name]
            elif part in self.outside:
                theirs = f"{self.outside[part]}.{kind}"
            else:
                _, number, inside = part.split(".", 2)
                theirs = f"{self.blocks}.{number}.{self.parts[inside]}.{kind}"
            found.setdefault(theirs, []).append(name)
        return found

    def is_transposed(self, name: str) -> bool:
        """Whether one of their weights is stored as (in, out)."""
        return bool(self.transposed) and self.transposed in name

    def shapes(self, config: Any) -> dict[str, tuple[int, ...]]:
        """The shape of every weight of such a model, under their names."""
        ours = {name: weight.shape for name, weight in self.model.blueprint(config).named_parameters()}
        found = {}
        for theirs, names in self.packed(ours).items():
            rows, *columns = ours[names[0]]
            shape = (len(names) * rows, *columns)
            found[theirs] = shape[::-1] if self.is_transposed(theirs) else shape
        return found

    def complete(self, theirs: dict[str, np.ndarray], config: Any) -> None:
        """Bring weights that were read into the form that `shapes` describes, where files differ."""

    def to_own(self, theirs: Mapping[str, np.ndarray], config: Any) -> dict[str, np.ndarray]:
        """The weights under our names, in our shapes."""
        shapes = {name: weight.shape for name, weight in self.model.blueprint(config).named_parameters()}
        ours = {}
        for name, parts in self.packed(shapes).items():
            array = theirs[name].T if self.is_transposed(name) else theirs[name]
            for part, piece in zip(parts, np.split(array, len(parts)), strict=True):
                ours[part] = np.ascontiguousarray(piece).reshape(shapes[part])
        return ours

    def to_theirs(self, model: Module) -> dict[str, np.ndarray]:
        """The weights under their names, in their shapes: with biases of 0 and gains of 1 that we lack."""
        config = replace(model.config, **self.in_weights)
        own, shapes, found = model.state_dict(), self.shapes(config), {}
        dtype = next(iter(own.values())).dtype
        ours = {
            name: own[name] if name in own else np.full(weight.shape, name.endswith(".weight"), dtype)
            for name, weight in self.model.blueprint(config).named_parameters()
        }
        for name, parts in self.packed(ours).items():
            array = np.concatenate([ours[part] for part in parts]) if len(parts) > 1 else ours[parts[0]]
            array = np.ascontiguousarray(array.T if self.is_transposed(name) else array)
            found[name if name.startswith(HEADS) else self.prefix + name] = array.reshape(shapes[name])
        return found
