"""Convolution and pooling where users look for them: `nn.Conv2d`, `functional.conv2d`, `x.max_pool2d(2)`.

The operations are chapters of `functional/`. Only models for pictures need them, and nothing else in the engine uses
them.
"""

from __future__ import annotations

import math

from tinygrad_lite import functional, nn
from tinygrad_lite.functional.conv import Pair, conv2d, pair
from tinygrad_lite.functional.pool import avg_pool2d, max_pool2d
from tinygrad_lite.nn import Module, Parameter, uniform
from tinygrad_lite.tensor import Tensor, respelled


class Conv2d(Module):
    """Filters of k x l pixels, applied at every position in a picture. Initialised as in torch, like Linear.

    Each result is a sum over in_channels / groups * k * l inputs. `stride` to `groups` are those of
    `functional.conv2d`, in torch's order.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
        bias: bool = True,
        **names,
    ) -> None:
        respelled(Conv2d.__init__, (), names)
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"Conv2d: groups={groups} must divide {in_channels} input and {out_channels} output channels"
            )
        shape = (out_channels, in_channels // groups, *pair("Conv2d", "kernel_size", kernel_size, 1))
        values = uniform(math.prod(shape[1:]))
        self.weight = Parameter.create(shape, values)
        self.bias = Parameter.create(shape[:1], values) if bias else None
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    def forward(self, x: Tensor) -> Tensor:
        """x (B, C, H, W) -> (B, C_out, H', W')."""
        settings = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}
        return conv2d(x, self.weight, self.bias, **settings)


nn.Conv2d = Conv2d
nn.__all__.append("Conv2d")
for _operation in (avg_pool2d, conv2d, max_pool2d):
    setattr(functional, _operation.name, _operation)
    functional.__all__.append(_operation.name)
