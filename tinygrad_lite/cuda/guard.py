"""A guard that stands on the GPU: it clips gradients, and lets no broken step change the weights.

To clip gradients one needs their norm, and to stop at a NaN one needs the loss. If Python asked for them in every step,
it would wait until the GPU is through, and then the GPU would wait for Python: each has nothing to do half of the time.
So both decisions are made where the numbers are. The guard's four numbers

    0   what the gradients are to be multiplied by, so that their norm is at most the largest that is allowed
    1   the first step whose loss or norm was NaN or infinite; -1 as long as there is none
    2   the loss of the last step, or of the broken one
    3   the norm of its gradients, before they are clipped

stay on the GPU, and the update of the weights reads them there: it multiplies by the first, and does nothing if the
second is 0 or above. Python looks at them when it writes a line to the log anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad_lite.cuda.launch import kernel, launch, pack
from tinygrad_lite.device import Array, device_of
from tinygrad_lite.tensor import Tensor

BLOCKS = 1024  # that share the gradients


class Guard:
    """The guard of one training run.

    Args:
        like: an array on the GPU.
    """

    def __init__(self, like: Array) -> None:
        self.device = device_of(like)
        self.numbers = Tensor.wrap(self.device.xp.array([1.0, -1.0, 0.0, 0.0], "float64"))

    def judge(self, losses: Sequence[Tensor], gradients: Array, max_norm: float, step: int) -> None:
        """Work out the numbers for a step, from the parts of its loss and all gradients (N,); waits for nothing.

        max_norm 0 clips nothing.
        """
        loss = losses[0].data
        for part in losses[1:]:
            loss = loss + part.data
        packed = pack(gradients.size, gradients)
        packs = gradients.size // packed
        blocks = min(BLOCKS, -(-packs // 256))
        sums = self.device.xp.empty(blocks, "float64")
        types = {"X": gradients.dtype, "PACK": packed}
        launch(kernel("guard", "sums_of_squares", **types), (blocks,), (256,), packs, gradients, sums)
        numbers = self.numbers.data
        launch(kernel("guard", "judge", **types), (1,), (32,), sums, blocks, loss, float(max_norm), step, numbers)

    def look(self) -> tuple[float, float, int | None]:
        """Loss, norm, and the broken step if there is one; waits until the GPU has done all that it was asked for."""
        _, broken, loss, norm = self.device.to_host(self.numbers.data).tolist()
        return loss, norm, int(broken) if broken >= 0 else None
