// The beginning of every source file. launch.py prepends it, and defines the types for which a file is compiled, such
// as X and Y. A is the accumulation type: float, or double if the arrays are double.

#if __cplusplus < 201703L
#error "these kernels are C++17"
#endif

// bfloat16: the upper half of a float. The same range, but only 8 bits of precision instead of 24.
struct bf16 {
    unsigned short bits;

    bf16() = default;

    // To nearest, ties to even; NaN stays NaN. Since compute capability 8.0 this is one instruction instead of eight.
    __device__ bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
        unsigned whole = __float_as_uint(x);
        if ((whole & 0x7fffffff) > 0x7f800000) bits = 0x7fff;
        else bits = (whole + 0x7fff + ((whole >> 16) & 1)) >> 16;
#endif
    }

    __device__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
};

// PACK neighbouring numbers, which a thread fetches at once: 4 if the arrays allow it, else 1.
#ifdef PACK
template <class T>
struct alignas(sizeof(T) * PACK) Pack {
    T at[PACK];
};
#endif

// The sum over the 32 threads of a warp, returned to all. Each adds the sums of the threads 1, 2, 4, 8, 16 places away.
template <class T>
__device__ __forceinline__ T sum_of_warp(T x) {
    for (int distance = 1; distance < 32; distance *= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

// The sum over the 256 threads of a block, returned to thread 0. `found` is shared memory for 8 numbers.
__device__ __forceinline__ double sum_of_block(double x, double* found) {
    x = sum_of_warp(x);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = x;
    __syncthreads();
    for (int warp = 1; threadIdx.x == 0 && warp < 8; warp++) x += found[warp];
    return x;
}

// The maximum over the 32 threads of a warp, in the same way.
template <class T>
__device__ __forceinline__ T max_of_warp(T x) {
    for (int distance = 1; distance < 32; distance *= 2) {
        T other = __shfl_xor_sync(~0u, x, distance);
        x = other > x ? other : x;
    }
    return x;
}
