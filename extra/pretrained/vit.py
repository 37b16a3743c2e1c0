"""The names of the Vision Transformer in Hugging Face's layout, and ours: settings and weights, in both directions.

Our model with a class token and 1-D positions is theirs. Two weights have another shape: their patch embedding is a
convolution, (C, channels, P, P), whose numbers are in the order of ours, (C, channels P P); the class token and the
positions have an axis for the batch. They have no tokenizer: the names of the classes are in config.json.

Pixels are from -1, black, to 1, white, in both programs; a folder whose preprocessor_config.json scales them otherwise,
or cuts pictures, is refused. Where there is such a file, a whole picture is scaled to the model's size.

Reference: Dosovitskiy et al. 2020 (arXiv:2010.11929).
Format: the class ViTForImageClassification of https://huggingface.co/docs/transformers.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any, ClassVar

from extra.encoders.vit import ViT, ViTConfig
from extra.pretrained.layout import OF_ENCODERS, USUAL, Layout, architecture_of, check_values, label_names
from extra.pretrained.read import read_json
from extra.tokenizers.labels import LabelTokenizer
from tinygrad_lite.errors import CheckpointError
from training.model_config import read_model_config

ARCHITECTURE = "ViTForImageClassification"
PREPROCESSOR = "preprocessor_config.json"
BILINEAR = 2  # as Pillow numbers its filters
CLASS_TOKEN, POSITIONS = "embeddings.cls_token", "embeddings.position_embeddings"
PATCHES = "embeddings.patch_embeddings.projection"


class ViTLayout(Layout):
    """Settings, weights and class names of a Vision Transformer."""

    titles: ClassVar = {"vit": "ViT"}
    model = ViT
    settings: ClassVar = USUAL | OF_ENCODERS
    settings |= {"image_size": "image_size", "patch_size": "patch_size", "channels": "num_channels"}
    required: ClassVar = {"hidden_act": "gelu", "qkv_bias": True}
    # The last three are for other heads.
    others: ClassVar = {"attention_probs_dropout_prob", "encoder_stride", "pooler_act", "pooler_output_size"}
    blocks = "encoder.layer"
    parts: ClassVar = {
        "mixer_norm": "layernorm_before",
        **{f"mixer.{name}": f"attention.attention.{name}" for name in ("query", "key", "value")},
        "mixer.output": "attention.output.dense",
        "mlp_norm": "layernorm_after",
        "mlp.up": "intermediate.dense",
        "mlp.down": "output.dense",
    }
    outside: ClassVar = {
        "patch_embedding": PATCHES,
        "class_token": CLASS_TOKEN,
        "position_embedding.weight": POSITIONS,
        "final_norm": "layernorm",
        "head": "classifier",
    }
    prefix = "vit."

    def own_config(self, theirs: Mapping[str, Any]) -> ViTConfig:
        """Our settings: the classes are the tokens."""
        architecture_of(theirs, [ARCHITECTURE])
        settings = self.own_settings(theirs) | {"positions": "1d", "pooling": "cls"}
        return read_model_config(ViTConfig, settings | {"vocab_size": len(label_names(theirs))})

    def their_config(self, config: ViTConfig) -> dict[str, Any]:
        """Our settings under their names, without the names of the classes."""
        named = self.their_settings("vit", ARCHITECTURE, config)
        return named | self.required | {"attention_probs_dropout_prob": config.dropout}

    def check_folder(self, folder: Path) -> None:
        """Raise CheckpointError if a folder says that pictures are prepared in an unsupported way."""
        path = folder / PREPROCESSOR
        if path.is_file():
            theirs = {name: value for name, value in read_json(path).items() if value is not None}
            side = read_json(folder / "config.json")["image_size"]
            size = {"height": side, "width": side}
            try:
                check_values(theirs, {"do_normalize": True, "do_rescale": True, "rescale_factor": 1 / 255})
                check_values(theirs, {"do_resize": True, "do_center_crop": False, "do_pad": False})
                if theirs.get("size", 224) not in (side, size):
                    raise CheckpointError(f"size is {short(theirs.get('size', 224))}, but the model reads {size}")
                if theirs.get("resample", BILINEAR) not in range(6):
                    raise CheckpointError(f"resample is {short(theirs['resample'])}, but Pillow knows only 0 to 5")
                for name in ("image_mean", "image_std"):
                    found = theirs.get(name, 0.5)
                    if any(value != 0.5 for value in (found if isinstance(found, list) else [found])):
                        raise CheckpointError(f"{name} is {short(found)}, but this program supports only 0.5")
            except CheckpointError as error:
                raise CheckpointError(f"{path}: {error}") from None

    def read_tokenizer(self, folder: Path, vocab_size: int) -> LabelTokenizer:
        """The names of the classes; one that occurs again, like `crane` in ImageNet, gets its number."""
        names = label_names(read_json(folder / "config.json"))
        counts = Counter(names)
        return LabelTokenizer([f"{name} ({n})" if counts[name] > 1 else name for n, name in enumerate(names)])

    def shapes(self, config: ViTConfig) -> dict[str, tuple[int, ...]]:
        """The shapes of all weights: the patch embedding is a convolution, and others have an axis for the batch."""
        return super().shapes(config) | {
            CLASS_TOKEN: (1, 1, config.n_embd),
            POSITIONS: (1, config.block_size, config.n_embd),
            f"{PATCHES}.weight": (config.n_embd, config.channels, config.patch_size, config.patch_size),
        }


LAYOUT = ViTLayout()


def resampling(folder: Path) -> int | None:
    """The filter with which a folder says to scale a whole picture, by Pillow's number; None if it does not say so."""
    path = folder / PREPROCESSOR
    found = read_json(path).get("resample") if path.is_file() else None
    return BILINEAR if found is None and path.is_file() else found
