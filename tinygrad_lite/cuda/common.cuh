// What every source file begins with. launch.py puts it in front, and defines the types that a file is compiled for,
// such as X and Y. A is the type in which is added up: float, or double where the arrays are double.

#if __cplusplus < 201703L
#error "these kernels are C++17"
#endif

// bfloat16: the upper half of a float. The same range, but only 8 bits of precision instead of 24.
struct bf16 {
    unsigned short bits;

    bf16() = default;

    __device__ bf16(float x) {
        unsigned whole = __float_as_uint(x);
        if ((whole & 0x7fffffff) > 0x7f800000) bits = 0x7fff;                // NaN stays NaN
        else bits = (whole + 0x7fff + ((whole >> 16) & 1)) >> 16;            // to the nearest; of two, the even one
    }

    __device__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
};

// PACK neighbours, which a thread fetches in one go: 4 where the arrays allow it, else 1.
#ifdef PACK
template <class T>
struct alignas(sizeof(T) * PACK) Pack {
    T at[PACK];
};
#endif

// The sum over the 32 threads of a warp; all of them get it. Each adds its partner's: 1, 2, 4, 8, 16 places away.
template <class T>
__device__ __forceinline__ T sum_of_warp(T x) {
    for (int distance = 1; distance < 32; distance *= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

template <class T>
__device__ __forceinline__ T max_of_warp(T x) {
    for (int distance = 1; distance < 32; distance *= 2) {
        T other = __shfl_xor_sync(~0u, x, distance);
        x = other > x ? other : x;
    }
    return x;
}
