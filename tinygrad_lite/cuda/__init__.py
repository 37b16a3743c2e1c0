"""The heavy operations on a GPU: each has a CUDA source file, and next to it the Python that calls it.

How a GPU computes, as far as it matters here. A function marked `__global__` (a *kernel*) is run by a great many
threads at once, each with a different index. 32 threads form a *warp*, and are its *lanes*: they execute the program in
lockstep and can read each other's registers. Up to 1,024 threads form a *block*: they can wait for each other, and
share some memory on the chip. Blocks cannot wait for each other; for that, one kernel must end and another begin.

Most of the time is spent on memory access. In the time it takes to fetch one number, the chip multiplies 50 (several
hundred in bfloat16). So the time of everything except the large matrix products is proportional to the bytes moved: a
kernel that reads each number once and writes each result once cannot be beaten, and two kernels that pass an array from
one to the other take twice as long as one that does both. This is why operations are *fused*. Neighbouring threads read
neighbouring numbers (a *coalesced* load), because memory is fetched in chunks of at least 32 bytes.

Launching a kernel takes Python 10 to 100 microseconds, so the passes of a training step are recorded, and replayed as
one launch. Python only queues work and runs ahead of the GPU, until it reads a value: that blocks until all queued work
is done. So nothing here reads a value.

    find.py         finds CuPy and the GPU, or says what is missing
    launch.py       compiles a source file for the types of the arrays, and launches its kernels
    common.cuh      the beginning of all sources: bfloat16, sums over a warp
    philox.cuh      random numbers, for the sources that include it
    gemm.py         matrix products, by cuBLAS
    guard.py        clips gradients and stops at NaN without reading a value
    columns.py      what all rows share: sums of columns, which are the gradients of biases and gains
    residual.py     the sum of a residual connection, which the norm after it computes
    tensor_cores.cuh    the instructions of the matrix units
    decode.py       the kernels for a single position, for generating text (gpt/fast/step_cuda.py)
    graph.py        many launches as one: a training step, a generated token
    *_naive.cu      the simplest kernel for layer norm, softmax and attention, to read first; only tests launch it
    *.cu, *.py      one operation each; the derivations are in the files of the same names in functional/

The functions here are found by their names: `layer_norm_cuda` in layer_norm.py is the version of `layer_norm` for
device cuda (see functional/registry.py).
"""
