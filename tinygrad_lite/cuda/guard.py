"""A guard on the GPU: it clips gradients, and keeps a broken step from changing the weights.

Clipping gradients requires their norm, and stopping at NaN requires the loss. If Python read them in every step, it
would block until the GPU is done, and then the GPU would wait for Python: each would be idle half the time. So both
decisions are made on the GPU. The guard's four numbers

    0   the factor for the gradients that brings their norm down to the largest allowed
    1   the first step whose loss or norm was NaN or infinite; -1 if there has been none
    2   the loss of the last step, or of the broken one
    3   the norm of its gradients before clipping

stay there, and the kernel that updates the weights reads them (adamw.py): it multiplies by the first, and does nothing
if the second is not negative. Python reads them only when it writes a line to the log.
"""

from collections.abc import Sequence

from tinygrad_lite.cuda.launch import kernel, launch, pack
from tinygrad_lite.device import Array, device_of
from tinygrad_lite.tensor import Tensor

BLOCKS = 1024  # blocks that share the gradients


class Guard:
    """The guard of one training run.

    Args:
        like: an array on the GPU.
    """

    def __init__(self, like: Array) -> None:
        self.device = device_of(like)
        self.numbers = Tensor.wrap(self.device.xp.array([1.0, -1.0, 0.0, 0.0], "float64"))

    def judge(self, losses: Sequence[Tensor], gradients: Array, max_norm: float, step: int) -> None:
        """Compute the four numbers of a step, without waiting for them.

        Args:
            losses: the parts whose sum is the loss.
            gradients: all of them, (N,).
            max_norm: the largest norm allowed; 0 means no clipping.
            step: the number of the step.
        """
        loss = sum((part.data for part in losses[1:]), start=losses[0].data)
        packed = pack(gradients.size, gradients)
        packs = gradients.size // packed
        blocks = min(BLOCKS, -(-packs // 256))
        sums = self.device.xp.empty(blocks, "float64")
        types = {"X": gradients.dtype, "PACK": packed}
        launch(kernel("guard", "sums_of_squares", **types), (blocks,), (256,), packs, gradients, sums)
        launch(kernel("guard", "judge", **types), (1,), (32,), sums, blocks, loss, max_norm, step, self.numbers.data)

    def read(self) -> tuple[float, float, int | None]:
        """Loss, norm, and the broken step or None; blocks until all queued work is done."""
        _, broken, loss, norm = self.device.to_host(self.numbers.data).tolist()
        return loss, norm, int(broken) if broken >= 0 else None
