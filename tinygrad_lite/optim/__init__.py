"""Optimizers: how the gradients change the parameters, and how the learning rate changes over time.

They are used as in torch: `AdamW(model.parameters(), lr=1e-3)`, then `zero_grad()`, `backward()` and `step()` in turn.
What they share is in `optimizer.py`, and how their memory is laid out, in `memory.py`.
"""

from tinygrad_lite.optim.adamw import Adam, AdamW, adamw
from tinygrad_lite.optim.muon import Muon, muon, muon_groups
from tinygrad_lite.optim.optimizer import Optimizer, decay_groups
from tinygrad_lite.optim.schedules import SCHEDULES, constant, cosine, inverse_square_root, trapezoid
from tinygrad_lite.optim.sgd import SGD

__all__ = """
    SGD Adam AdamW Muon Optimizer adamw constant cosine decay_groups inverse_square_root muon muon_groups trapezoid
""".split()
