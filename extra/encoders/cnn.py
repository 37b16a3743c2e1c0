"""A convolutional network, to be compared with the Vision Transformer.

    pictures (B, H, W, channels) -> n_stage times: n_conv convolutions of 3 x 3 with ReLU, then a pooling of 2 x 2
    -> one vector (B, F) -> logits (B, V)

A convolution looks at a neighbourhood and applies the same weights everywhere: a stroke is recognised wherever it is
("translational equivariance"). A Vision Transformer must learn both from examples. That is why convolutions should win
where examples are few.

References: LeCun et al. 1998, "Gradient-based learning applied to document recognition"; Simonyan, Zisserman 2014
(arXiv:1409.1556) on stacks of 3 x 3.
"""

from dataclasses import dataclass

import numpy as np

from extra.encoders.vit import Classifier, PictureConfig
from tinygrad_lite.config import of_model
from tinygrad_lite.nn import Conv2d, Dropout, Linear
from tinygrad_lite.random import next_rng
from tinygrad_lite.tensor import Tensor


@dataclass(frozen=True)
class CNNConfig(PictureConfig):
    """The settings of a convolutional network."""

    n_stage: int = of_model(2, "stages, each of which halves height and width", low=1, high=10)
    n_conv: int = of_model(2, "convolutions in a stage", low=1, high=100)
    n_embd: int = of_model(24, "channels of the first stage; each further one has twice as many", low=1, high=100_000)

    n_head, n_layer, block_size = 1, 0, 1  # which an estimate needs from every model

    @property
    def widths(self) -> list[int]:
        """The channels of each stage."""
        return [self.n_embd << stage for stage in range(self.n_stage)]

    @property
    def sides(self) -> list[int]:
        """Height and width of the pictures in each stage, and after the last."""
        return [self.image_size >> stage for stage in range(self.n_stage + 1)]

    def misfit(self, mark: str = "") -> str:
        """Which settings contradict each other, in words; empty if none do."""
        if not self.sides[-1]:
            return f"{mark}n_stage {self.n_stage} is too many for pictures of {mark}image_size {self.image_size}"
        return super().misfit(mark)

    def activations(self, batch_size: int) -> int:
        """About how many numbers a training micro-step keeps: the input and output of every convolution."""
        stages = zip(self.widths, self.sides, strict=False)
        return batch_size * sum(2 * self.n_conv * width * side**2 for width, side in stages)


class CNN(Classifier):
    """Stages of convolutions with a linear classifier."""

    def __init__(self, config: CNNConfig) -> None:
        self.config = config
        self.convolutions, channels = [], config.channels
        for width in config.widths:
            for _ in range(config.n_conv):
                layer = Conv2d(channels, width, 3, padding=1)
                # He et al. 2015 (arXiv:1502.01852): ReLU halves the variance, for which twice as much variance in the
                # weights makes up.
                deviation = (2 / (9 * channels)) ** 0.5
                layer.weight.reset(lambda shape, d=deviation: d * next_rng("init").standard_normal(shape, np.float32))
                self.convolutions.append(layer)
                channels = width
        self.dropout = Dropout(config.dropout)
        self.head = Linear(config.widths[-1] * config.sides[-1] ** 2, config.vocab_size)

    def forward(self, pictures: Tensor) -> Tensor:
        """The logits of the classes: (B, H, W, channels) -> (B, V)."""
        x = pictures.permute(0, 3, 1, 2)  # (B, channels, H, W), as convolutions expect it
        for number, convolution in enumerate(self.convolutions, start=1):
            x = convolution(x).relu()
            if number % self.config.n_conv == 0:
                x = x.max_pool2d(2)
        return self.head(self.dropout(x.reshape(x.shape[0], -1)))

    def flops_per_token(self) -> int:
        """Floating-point operations of the products that training on one picture takes."""
        count = self.head.weight.numel()
        for number, convolution in enumerate(self.convolutions):
            count += convolution.weight.numel() * self.config.sides[number // self.config.n_conv] ** 2
        return 3 * 2 * count
