"""The heavy operations on a GPU: for each a CUDA source file, and beside it the Python that calls it.

How a GPU computes, as far as these files need it. A function marked `__global__` (a *kernel*) is run by very many
threads at once, each with another number. 32 threads are a *warp*: they go through the program in step, and can show
each other their registers. Up to 1,024 threads are a *block*: they can wait for each other, and share some memory on
the chip. Blocks cannot wait for each other; that is what the end of a kernel is for.

What takes the time is memory. The chip multiplies 50 numbers (of bfloat16 several hundred) in the time in which it
fetches one. So everything but the large matrix products is as fast as its bytes: a kernel that reads each number once
and writes each once cannot be beaten, and two kernels that pass an array from one to the other take twice the time of
one that does both. This is why operations are *fused*. Neighbouring threads read neighbouring numbers, because memory
is fetched in pieces of 32 bytes and more.

Starting a kernel takes Python about 10 microseconds, and the GPU does not wait for Python nor Python for the GPU, as
long as nobody asks for a value. So nothing here looks at a value.

    find.py         finds CuPy and the GPU, or says what is missing
    launch.py       compiles a source file for the types of the arrays, and starts its kernels
    common.cuh      what all sources begin with: bfloat16, sums over a warp
    philox.cuh      random numbers, for the sources that include it
    gemm.py         matrix products, by cuBLAS
    precision.py    float32, TF32 or bfloat16 in the products
    tensor_cores.cuh    the instructions of the matrix units
    *.cu, *.py      one operation each; the derivations are in the files of the same names in functional/

The functions here are found by their names: `layer_norm_cuda` in layer_norm.py is the version of `layer_norm` for
device cuda (see functional/registry.py).
"""
