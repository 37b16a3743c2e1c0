"""A CPU in place of a GPU: all the code of `--device cuda`, on a machine without a GPU.

`emulated_cuda()` puts a module in CuPy's place whose arrays are the stand-ins of tests/standin.py, whose kernels are
compiled by g++ instead of NVRTC, and whose cuBLAS is NumPy working on the same pointers. Device "cuda" then works, in
the tests and in the two scripts: the same Python, the same CUDA C++, the same arguments; only slowly.

It is stricter than CuPy: an argument whose type differs from its parameter's, or in host memory, is an error. It cannot
reveal the speed, races between blocks, what two threads of a warp do at the same time, or rounding in the last digit
(`a * b + c` is one operation on a GPU).
"""
