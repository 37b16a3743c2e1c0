// RMS normalisation; formulas and derivation in functional/rms_norm.py. LANES threads of a warp take one row of C
// numbers; each has every LANES-th pack of it. A row of 64 numbers, such as a head, has 16 packs of 4: half of a whole
// warp would be idle.
//
// Rows of x need not be contiguous: in (N, H, C) they begin at n * outer + h * inner. All other arrays are contiguous.
#include "residual.cuh"

// The sum over the threads that share a row, returned to all of them.
__device__ __forceinline__ A sum_of_row(A x) {
    for (int distance = 1; distance < LANES; distance *= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

// A pack of the gain; 1 if there is none.
__device__ __forceinline__ Pack<A> gain(const A* weight, int i) {
    if (weight) return ((const Pack<A>*)weight)[i];
    Pack<A> ones;
    for (int k = 0; k < PACK; k++) ones.at[k] = 1;
    return ones;
}

// With a `part`, x + part is normalised, and written to `sum` as well; in that case all rows are contiguous.
extern "C" __global__ void rms_norm_forward(long long rows, long long heads, long long width, long long outer,
                                            long long inner, const X* x, const P* part, X* sum, const A* weight,
                                            A eps, Y* y, A* scales) {
    long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    bool is_row = row < rows;  // all threads of a warp take part in its sums: those without a row read the last one
    if (!is_row) row = rows - 1;
    if (part && is_row) x = add_row(x, part, sum, row, width);
    const Pack<X>* xs = (const Pack<X>*)(x + row / heads * outer + row % heads * inner);
    Pack<Y>* ys = (Pack<Y>*)(y + row * width);
    int packs = width / PACK;

    A squares = 0;
    for (int i = threadIdx.x; i < packs; i += LANES) {
        Pack<X> p = xs[i];
        for (int k = 0; k < PACK; k++) squares += (A)p.at[k] * (A)p.at[k];
    }
    A r = 1 / sqrt(sum_of_row(squares) / (A)width + eps);
    if (!is_row) return;

    for (int i = threadIdx.x; i < packs; i += LANES) {
        Pack<X> p = xs[i];
        Pack<A> w = gain(weight, i);
        Pack<Y> out;
        for (int k = 0; k < PACK; k++) out.at[k] = (Y)((A)p.at[k] * r * w.at[k]);
        ys[i] = out;
    }
    if (threadIdx.x == 0) scales[row] = r;
}

// dx = r (dh - h mean(dh h)) with dh = dy w and h = x r, plus `so_far` (or null), the gradient that bypassed the
// norm. `rounded` (or null) gets a copy in bfloat16.
extern "C" __global__ void rms_norm_backward(long long rows, long long heads, long long width, long long outer,
                                             long long inner, const Y* dy, const X* x, const A* weight,
                                             const A* scales, const X* so_far, X* dx, bf16* rounded) {
    long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    bool is_row = row < rows;
    if (!is_row) row = rows - 1;
    const Pack<Y>* dys = (const Pack<Y>*)(dy + row * width);
    const Pack<X>* xs = (const Pack<X>*)(x + row / heads * outer + row % heads * inner);
    int packs = width / PACK;
    A r = scales[row];

    A sum_dh_h = 0;
    for (int i = threadIdx.x; i < packs; i += LANES) {
        Pack<Y> d = dys[i];
        Pack<X> p = xs[i];
        Pack<A> w = gain(weight, i);
        for (int k = 0; k < PACK; k++) sum_dh_h += (A)d.at[k] * w.at[k] * (A)p.at[k] * r;
    }
    A mean_dh_h = sum_of_row(sum_dh_h) / (A)width;
    if (!is_row) return;

    for (int i = threadIdx.x; i < packs; i += LANES) {
        Pack<Y> d = dys[i];
        Pack<X> p = xs[i], out;
        Pack<A> w = gain(weight, i);
        for (int k = 0; k < PACK; k++)
            out.at[k] = (X)(r * ((A)d.at[k] * w.at[k] - (A)p.at[k] * r * mean_dh_h));
        store_gradient(out, row * packs + i, so_far, dx, rounded);
    }
}

// dw = sum over rows of dy h: the first of two steps, as in columns.cu. Each block writes a row of C sums. Its 8 warps
// share the N groups of `heads` rows.
extern "C" __global__ void rms_norm_backward_weight(long long groups, long long heads, long long width,
                                                    long long outer, long long inner, const Y* dy, const X* x,
                                                    const A* scales, A* sums) {
    __shared__ A found[8][32];
    long long column = blockIdx.x * 32ll + threadIdx.x;
    A dw = 0;
    if (column < width)
        for (long long group = blockIdx.y * 8ll + threadIdx.y; group < groups; group += gridDim.y * 8ll)
            for (long long head = 0; head < heads; head++) {
                long long row = group * heads + head;
                dw += (A)dy[row * width + column] * (A)x[group * outer + head * inner + column] * scales[row];
            }
    found[threadIdx.y][threadIdx.x] = dw;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
        for (int warp = 1; warp < 8; warp++) dw += found[warp][threadIdx.x];
        sums[blockIdx.y * width + column] = dw;
    }
}
