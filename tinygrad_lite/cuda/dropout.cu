// Dropout; formulas in functional/dropout.py. Each thread takes one pack. An element is kept if its random word is not
// below `threshold`, which is p times 2^16. The backward pass is this kernel applied to dy, with the same key.

#include "philox.cuh"

extern "C" __global__ void dropout(long long packs, const X* x, X* y, RoundKeys round_keys, long long threshold, A scale) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= packs) return;
#if PACK == 4
    Words bits = random_bits_of_four(round_keys, i);
#else
    Words bits = {{random_bits(round_keys, i)}};
#endif
    Pack<X> p = ((const Pack<X>*)x)[i];
    for (int k = 0; k < PACK; k++)  // times 0, not 0, so that a NaN stays visible
        p.at[k] = (X)((A)p.at[k] * (bits.at[k] < threshold ? (A)0 : scale));
    ((Pack<X>*)y)[i] = p;
}
