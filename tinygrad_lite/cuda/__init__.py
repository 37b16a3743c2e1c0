"""The heavy operations on a GPU: for each one a CUDA source file, and beside it the Python that calls it.

How a GPU computes, as far as these files need it. A function marked `__global__` (a *kernel*) is run by a great many
threads at once, each with a different index. 32 threads form a *warp*, and are its *lanes*: they execute the program in
lockstep and can read each other's registers. Up to 1,024 threads form a *block*: they can wait for each other, and
share some memory on the chip. Blocks cannot wait for each other; for that, a kernel has to end and another to begin.

Most of the time goes into memory. The chip multiplies 50 numbers (several hundred of bfloat16) in the time in which it
fetches one. So the time of everything but the large matrix products is proportional to the bytes moved: a kernel that
reads each number once and writes each result once cannot be beaten, and two kernels that pass an array from one to the
other take twice the time of one that does both. This is why operations are *fused*. Neighbouring threads read
neighbouring numbers (a *coalesced* load), because memory is fetched in pieces of at least 32 bytes.

Launching a kernel takes Python about 10 microseconds. Python only queues kernels and runs ahead of the GPU, until it
reads a value: that blocks until all queued work is done. So nothing here reads a value.

    find.py         finds CuPy and the GPU, or says what is missing
    launch.py       compiles a source file for the types of the arrays, and launches its kernels
    common.cuh      what all sources begin with: bfloat16, sums over a warp
    philox.cuh      random numbers, for the sources that include it
    gemm.py         matrix products, by cuBLAS
    guard.py        clips gradients and stops at NaN without reading a value
    columns.py      what is the same for all rows: sums of columns, which are the gradients of biases and gains
    residual.py     the sum of a residual connection, which the norm behind it computes
    tensor_cores.cuh    the instructions of the matrix units
    decode.py       the kernels of a single position, for generating text (gpt/fast/step_cuda.py)
    graph.py        many launches as one
    *_naive.cu      the simplest kernel for layer norm, softmax and attention, to read first; only tests launch it
    *.cu, *.py      one operation each; the derivations are in the files of the same names in functional/

The functions here are found by their names: `layer_norm_cuda` in layer_norm.py is the version of `layer_norm` for
device cuda (see functional/registry.py).
"""
