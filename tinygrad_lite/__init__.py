"""A small tensor class with reverse-mode autograd over NumPy or CuPy arrays, and what a Transformer needs on top."""

from tinygrad_lite.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.device import manual_seed
from tinygrad_lite.tensor import Tensor, no_grad

__all__ = ["NonFiniteError", "Tensor", "detect_anomaly", "manual_seed", "no_grad"]
__version__ = "0.1.0"
