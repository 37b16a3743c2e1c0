"""The Vision Transformer: a picture is cut into patches, and BERT's blocks read them like words.

    pictures (B, H, W, channels) -> patches (B, N, P P channels) -> linear map -> + position -> n_layer blocks
    -> norm -> x of the class token, or the mean of all -> logits (B, V)

Nothing in it knows that pixels have neighbours: each patch is a vector, and its position is learned, like that of a
word. A convolutional network (`cnn.py`) has that knowledge built in, and needs less data to learn from; given enough,
the Transformer learns it too.

Reference: Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words" (arXiv:2010.11929), section 3.1 and table 1.
"""

from dataclasses import MISSING, dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from tinygrad_lite import functional as F
from tinygrad_lite.config import MAX_VOCAB_SIZE, ModelConfig, of_model, of_training, option, recompute_option
from tinygrad_lite.flops import attention_flops, training_flops
from tinygrad_lite.nn import Dropout, Embedding, Linear, Module, Parameter
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import block_of, init_gpt2, norm_of, normal


class PictureBatch(NamedTuple):
    """Pictures (B, H, W, channels) from -1, black, to 1, white, and the numbers of their classes (B,)."""

    pictures: Tensor
    labels: Tensor


@dataclass(frozen=True)
class PictureConfig(ModelConfig):
    """What every model of pictures knows about them."""

    vocab_size: int = option(MISSING, "V, classes", low=1, high=MAX_VOCAB_SIZE)
    image_size: int = of_model(28, "height and width of a picture", unit="pixels", low=1, high=10_000)
    channels: int = of_model(1, "numbers of a pixel: 1 for grey, 3 for colour", low=1, high=100)
    dropout: float = of_training(0.0, "probability of dropping an element in training", low=0.0, below=1.0)

    ALWAYS: ClassVar[frozenset[str]] = frozenset(("vocab_size", "image_size", "channels"))


@dataclass(frozen=True)
class ViTConfig(PictureConfig):
    """The settings of a Vision Transformer. A new setting is a field here: see `tinygrad_lite/config.py`."""

    patch_size: int = of_model(4, "P, height and width of a patch", unit="pixels", low=1, high=10_000)
    n_layer: int = of_model(4, "blocks", low=1, high=1000)
    n_head: int = of_model(4, "attention heads per block", low=1)
    n_embd: int = of_model(96, "width of the model; a multiple of n_head", low=1, high=1_000_000)
    n_inner: int = of_model(0, "width inside the feed-forward part; 0: 4 n_embd", low=0, high=10_000_000)
    norm_eps: float = of_model(1e-6, "keeps a norm from dividing by 0", above=0.0, below=1.0)
    positions: str = of_model(
        "1d", "a vector for each patch, or one for its row and one for its column", choices=("1d", "2d")
    )
    pooling: str = of_model(
        "cls", "what the class is read from: a token of its own, or the mean", choices=("cls", "mean")
    )
    recompute: bool = recompute_option()

    activation = "gelu"  # of the feed-forward parts

    @property
    def rows(self) -> int:
        """The number of patches in a row, and of rows of patches."""
        return self.image_size // self.patch_size

    @property
    def block_size(self) -> int:
        """The number of positions: patches, and the class token."""
        return self.rows**2 + (self.pooling == "cls")

    def misfit(self, mark: str = "") -> str:
        """Which settings contradict each other, in words; empty if none do."""
        if self.image_size % self.patch_size:
            sizes = f"{mark}image_size {self.image_size} is not a multiple of {mark}patch_size {self.patch_size}"
            return f"{sizes}: patches cover the picture without overlap"
        return super().misfit(mark)

    def activations(self, batch_size: int) -> int:
        """About how many numbers a training micro-step keeps for its backward pass, counted as for the GPT."""
        c, t = self.n_embd, self.block_size
        blocks = self.of_all_blocks(self.n_layer, 8 * c + self.n_head * t + self.kept_hidden)
        return batch_size * t * (blocks + 2 * c)


class Classifier(Module):
    """A model of pictures that ends with `head`, a linear map to the logits of the classes."""

    position_tables = frozenset()

    @property
    def device(self) -> str:
        """Where the model computes."""
        return self.head.weight.device

    def label_logits(self, pictures: Tensor) -> Tensor:
        """The logits of each class, as for texts: (B, H, W, channels) -> (B, V)."""
        return self(pictures)

    def loss(self, batch: PictureBatch) -> Tensor:
        """Mean nats per picture."""
        return F.cross_entropy(self(batch.pictures), batch.labels)


class ViT(Classifier):
    """An encoder of patches with a linear classifier."""

    def __init__(self, config: ViTConfig) -> None:
        c = self.config = config
        self.patch_embedding = Linear(c.channels * c.patch_size**2, c.n_embd)
        if c.pooling == "cls":
            self.class_token = Parameter.create((c.n_embd,), partial(normal, 0.02))
        if c.positions == "1d":
            self.position_embedding = Embedding(c.block_size, c.n_embd)
        else:
            self.row_embedding = Embedding(c.rows, c.n_embd)
            self.column_embedding = Embedding(c.rows, c.n_embd)
        self.dropout = Dropout(c.dropout)
        self.blocks = [block_of(c) for _ in range(c.n_layer)]
        self.final_norm = norm_of(c)(c.n_embd)
        self.head = Linear(c.n_embd, c.vocab_size)
        init_gpt2(self, c.n_layer)

    def forward(self, pictures: Tensor) -> Tensor:
        """The logits of the classes: (B, H, W, channels) -> (B, V)."""
        c = self.config
        x = self.patch_embedding(patches(pictures, c.patch_size))  # (B, N, C)
        if c.positions == "2d":
            row, column = self.row_embedding.weight, self.column_embedding.weight
            x = x + (row.unsqueeze(1) + column.unsqueeze(0)).reshape(c.rows**2, c.n_embd)
        if c.pooling == "cls":
            x = Tensor.cat(self.class_token.expand(x.shape[0], 1, c.n_embd), x, axis=1)
        if c.positions == "1d":
            x = x + self.position_embedding.weight
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.final_norm(x[:, 0]) if c.pooling == "cls" else self.final_norm(x).mean(axis=1))

    def flops_per_token(self) -> int:
        """Floating-point operations of the matrix products that training on one picture takes.

        Counted for all its positions together.
        """
        return self.config.block_size * training_flops(self, attention_flops(self.config))


def patches(pictures: Tensor, size: int) -> Tensor:
    """Cut pictures into squares, each a vector: (B, H, W, channels) -> (B, N, channels P P).

    The patches are in order row by row, like words. The numbers of a patch are in the order of the weights of a
    convolution: channels, rows, columns. A linear map of each patch is a convolution whose stride is the size of its
    kernel: it applies the same weights at every place, and the places do not overlap.
    """
    batch, height, width, channels = pictures.shape
    rows, columns = height // size, width // size
    cut = pictures.reshape(batch, rows, size, columns, size, channels)
    return cut.permute(0, 1, 3, 5, 2, 4).reshape(batch, rows * columns, channels * size * size)
