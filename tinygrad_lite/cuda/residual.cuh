// What norms do for the residual connections around them; see residual.py. P is the type of `part`.

// Write the row x + part to `sum`, and return `sum`. The threads of a row are numbered by threadIdx.x, and each later
// reads only packs that it has written itself.
__device__ __forceinline__ const X* add_row(const X* x, const P* part, X* sum, long long row, long long width) {
    long long first = row * width / PACK;
    for (int i = threadIdx.x; i < width / PACK; i += blockDim.x) {
        Pack<X> p = ((const Pack<X>*)x)[first + i];
        Pack<P> q = ((const Pack<P>*)part)[first + i];
        for (int k = 0; k < PACK; k++) p.at[k] = (X)((A)p.at[k] + (A)q.at[k]);
        ((Pack<X>*)sum)[first + i] = p;
    }
    return sum;
}

// Write a pack of the gradient, plus `so_far` (or null), and a copy in bfloat16 to `rounded` (or null).
__device__ __forceinline__ void store_gradient(Pack<X> p, long long i, const X* so_far, X* dx, bf16* rounded) {
    if (so_far) {
        Pack<X> other = ((const Pack<X>*)so_far)[i];
        for (int k = 0; k < PACK; k++) p.at[k] = (X)((A)p.at[k] + (A)other.at[k]);
    }
    ((Pack<X>*)dx)[i] = p;
    if (!rounded) return;
    Pack<bf16> copy;
    for (int k = 0; k < PACK; k++) copy.at[k] = (bf16)(float)p.at[k];
    ((Pack<bf16>*)rounded)[i] = copy;
}
