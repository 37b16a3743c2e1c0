"""Many launches as one: a CUDA graph.

A launch takes Python and the driver 5 to 10 microseconds, and the kernels of a generated token need less. While a
stream is *captured*, launches are only recorded, with their arguments. The recorded graph is then launched as a whole,
any number of times. So everything that changes from token to token must be in the GPU's memory, at a fixed address, and
nothing may be allocated or read by the host while it is recorded.

Reference: CUDA C++ Programming Guide, section on CUDA Graphs.
"""

from __future__ import annotations

from collections.abc import Callable


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """A function that repeats the launches of work() in one call; `work` itself if they cannot be captured.

    The kernels must have been launched before, because loading one allocates memory.
    """
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)  # the default stream cannot be captured
    try:
        with stream:
            stream.begin_capture()
            try:
                work()
            finally:
                graph = stream.end_capture()
    except RuntimeError:  # CUDARuntimeError and CUDADriverError are subclasses
        return work
    return graph.launch
