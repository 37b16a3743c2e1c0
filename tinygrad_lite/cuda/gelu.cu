// GELU, with or without a bias that is added first; formulas in functional/gelu.py. A thread takes one pack of several
// rows, as in bias.cu; `packs` is the number of packs in a row. TANH is 1 for GPT-2's form, and 0 for the exact one.

constexpr A ROOT_2_OVER_PI = 0.7978845608028654;

// 1 / (1 + e^-x), in float with the instructions for 2^x and 1 / x: their error is below 3e-7.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1, 1 + exp2f(-1.4426950408889634f * x)); }
__device__ __forceinline__ double sigmoid(double x) { return 1 / (1 + exp(-x)); }

// u in tanh(u), the approximation of erf
__device__ __forceinline__ A inner(A x) { return x * (1 + (A)0.044715 * x * x) * ROOT_2_OVER_PI; }

// P(x), the factor of x
__device__ __forceinline__ A probability(A x) {
#if TANH
    return sigmoid(2 * inner(x));  // (1 + tanh(u)) / 2
#else
    return (1 + erf(x * (A)0.7071067811865476)) / 2;
#endif
}

// dy/dx = P(x) + x P'(x)
__device__ __forceinline__ A slope(A x) {
#if TANH
    // The smaller of P and 1 - P is computed, and the other from it: for a P near 1, 1 - P has few correct digits.
    A u = inner(x), small = sigmoid(-2 * fabs(u)), twice_du = 2 * ROOT_2_OVER_PI * (1 + 3 * (A)0.044715 * x * x);
    return (u < 0 ? small : 1 - small) + x * (small * (1 - small) * twice_du);
#else
    return probability(x) + x * (exp(-x * x / 2) * (ROOT_2_OVER_PI / 2));  // 1 / sqrt(2 pi) is half of sqrt(2 / pi)
#endif
}

extern "C" __global__ void gelu_forward(long long rows, long long packs, const X* x, const A* bias, X* y) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= packs) return;
    Pack<A> b = {};
    if (bias) b = ((const Pack<A>*)bias)[i];
    for (long long row = blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += gridDim.y * blockDim.y) {
        Pack<X> p = ((const Pack<X>*)x)[row * packs + i];
        for (int k = 0; k < PACK; k++) {
            A z = (A)p.at[k] + b.at[k];
            p.at[k] = (X)(z * probability(z));
        }
        ((Pack<X>*)y)[row * packs + i] = p;
    }
}

extern "C" __global__ void gelu_backward(long long rows, long long packs, const X* dy, const X* x, const A* bias,
                                         X* dx) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= packs) return;
    Pack<A> b = {};
    if (bias) b = ((const Pack<A>*)bias)[i];
    for (long long row = blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += gridDim.y * blockDim.y) {
        Pack<X> d = ((const Pack<X>*)dy)[row * packs + i], p = ((const Pack<X>*)x)[row * packs + i];
        for (int k = 0; k < PACK; k++) d.at[k] = (X)((A)d.at[k] * slope((A)p.at[k] + b.at[k]));
        ((Pack<X>*)dx)[row * packs + i] = d;
    }
}
