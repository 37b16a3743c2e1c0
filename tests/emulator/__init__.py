"""A GPU made of a CPU: the code of `--device cuda`, whole, on a machine without a GPU.

`emulated_cuda()` puts a module in CuPy's place whose arrays are the stand-ins of tests/standin.py, whose kernels are
compiled by g++ instead of NVRTC, and whose cuBLAS is NumPy working on the same pointers. Device "cuda" then works, in
the tests and in the two scripts: the same Python, the same CUDA C++, the same arguments; only slow.

It is stricter than CuPy: a kernel gets an argument of another type than its parameter's, or host memory, and it says
so. What it cannot show: the speed, races between blocks, what two threads of a warp do at the same time, and rounding
in the last digit (`a * b + c` is one operation on a GPU).
"""
