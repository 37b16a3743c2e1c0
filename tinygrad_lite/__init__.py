"""A small tensor class with reverse-mode autograd over NumPy or CuPy arrays, and what a Transformer needs on top.

>>> import tinygrad_lite as tg
>>> tg.nn.Linear(2, 3)(tg.Tensor.ones(5, 2)).shape
(5, 3)
"""

from contextlib import suppress

# isort: off
from tinygrad_lite.tensor import Tensor  # first, and then its methods: all the others use them
from tinygrad_lite import methods

# isort: on
from tinygrad_lite import adapt, functional, nn, optim, quantize
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.debug.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.random import manual_seed
from tinygrad_lite.recomputing import recompute
from tinygrad_lite.version import VERSION as __version__

__all__ = "NonFiniteError Tensor adapt detect_anomaly functional manual_seed nn no_grad optim recompute".split()

with suppress(ModuleNotFoundError):  # torch's names, which are on the shelf, enter themselves where it exists
    import extra.torch_names
