"""Layers, the modules that models are built from. The names are torch.nn's; `module.py` defines what a module is."""

from tinygrad_lite.nn.layers import (
    Conv2d,
    Dropout,
    Embedding,
    Identity,
    LayerNorm,
    Linear,
    ModuleDict,
    ModuleList,
    ParameterList,
    RMSNorm,
    Sequential,
    is_plain,
    linear_maps,
    uniform,
)
from tinygrad_lite.nn.module import Call, Module, Parameter, misfits, recorded, shapes_only

__all__ = """
    shapes_only Parameter Module misfits Linear linear_maps Conv2d Embedding LayerNorm RMSNorm Dropout Identity
    Sequential ModuleList ParameterList ModuleDict Call recorded
""".split()
