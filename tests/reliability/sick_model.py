"""A model whose loss becomes NaN in one worker at one step; its own module, so that worker processes can import it."""

import os

from gpt.model import GPT
from tinygrad_lite import Tensor
from tinygrad_lite.random import draw_position


class SickGPT(GPT):
    """Its loss is NaN at the step SICK_STEP, for the rows of the worker SICK_WORKER."""

    def loss(self, batch):
        loss = super().loss(batch)
        _, *place = draw_position()[0]  # (step, micro-step, worker) in training
        if place and (place[0], place[2]) == (int(os.environ["SICK_STEP"]), int(os.environ["SICK_WORKER"])):
            return loss * Tensor(-1.0).log()
        return loss
