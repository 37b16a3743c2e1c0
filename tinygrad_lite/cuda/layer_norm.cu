// Layer normalisation; formulas and derivation in functional/layer_norm.py. A warp takes one row of C numbers; each
// thread has every 32nd pack of it. The row is read three times, but only the first time from outside the cache.
//
// A mean above the deviation is two numbers: one rounded to its own size, and what is missing, the differences' mean.
#include "residual.cuh"

// With a `part`, x + part is normalised, and written to `sum` as well.
extern "C" __global__ void layer_norm_forward(long long rows, long long width, const X* x, const P* part, X* sum,
                                              const A* weight, const A* bias, A eps, Y* y, A* means, A* scales) {
    long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    if (part) x = add_row(x, part, sum, row, width);
    const Pack<X>* xs = (const Pack<X>*)(x + row * width);
    const Pack<A>* ws = (const Pack<A>*)weight;
    const Pack<A>* bs = (const Pack<A>*)bias;
    Pack<Y>* ys = (Pack<Y>*)(y + row * width);
    int packs = width / PACK;

    A total = 0;
    for (int i = threadIdx.x; i < packs; i += 32) {
        Pack<X> p = xs[i];
        for (int k = 0; k < PACK; k++) total += (A)p.at[k];
    }
    A mean = sum_of_warp(total) / (A)width;

    A missing = 0, r;
    for (int pass = 0; pass < 2; pass++) {
        A rest = 0, squares = 0;
        for (int i = threadIdx.x; i < packs; i += 32) {
            Pack<X> p = xs[i];
            for (int k = 0; k < PACK; k++) {
                A u = (A)p.at[k] - mean - missing;
                rest += u;
                squares += u * u;
            }
        }
        r = 1 / sqrt(sum_of_warp(squares) / (A)width + eps);
        if (pass || (mean < 0 ? -mean : mean) * r <= 1) break;
        missing = sum_of_warp(rest) / (A)width;
    }

    for (int i = threadIdx.x; i < packs; i += 32) {
        Pack<X> p = xs[i];
        Pack<A> w = ws[i], b;
        if (bias) b = bs[i];
        Pack<Y> out;
        for (int k = 0; k < PACK; k++)
            out.at[k] = (Y)(((A)p.at[k] - mean - missing) * r * w.at[k] + (bias ? b.at[k] : (A)0));
        ys[i] = out;
    }
    if (threadIdx.x == 0) {
        means[2 * row] = mean;
        means[2 * row + 1] = missing;
        scales[row] = r;
    }
}

#ifndef OWN
#define OWN 0  // the packs of a row that a thread has; 0 if there are too many to keep their sums in registers
#endif

// dx = r (dh - mean(dh) - h mean(dh h)) with dh = dy w and h = (x - m) r, plus `so_far` (or null), the gradient that
// bypassed the norm. `rounded` (or null) gets a copy in bfloat16.
//
// A warp takes several rows. Meanwhile each thread adds up dy h and dy for its own columns; at the end a block writes a
// row of 2 C `sums`, first those for dw, then those for db. Another kernel adds up the columns of these rows.
extern "C" __global__ void layer_norm_backward(long long rows, long long width, const Y* dy, const X* x,
                                               const A* weight, const A* means, const A* scales, const X* so_far,
                                               X* dx, bf16* rounded, A* sums) {
    const Pack<A>* ws = (const Pack<A>*)weight;
    int packs = width / PACK;
    A dw[OWN + 1][PACK] = {}, db[OWN + 1][PACK] = {};
    for (long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y; row < rows; row += gridDim.x * blockDim.y) {
        const Pack<Y>* dys = (const Pack<Y>*)(dy + row * width);
        const Pack<X>* xs = (const Pack<X>*)(x + row * width);
        A mean = means[2 * row], missing = means[2 * row + 1], r = scales[row];

        A sum_dh = 0, sum_dh_h = 0;
        for (int i = threadIdx.x; i < packs; i += 32) {
            Pack<Y> d = dys[i];
            Pack<X> p = xs[i];
            Pack<A> w = ws[i];
            for (int k = 0; k < PACK; k++) {
                A dh = (A)d.at[k] * w.at[k];
                sum_dh += dh;
                sum_dh_h += dh * ((A)p.at[k] - mean - missing) * r;
            }
        }
        A mean_dh = sum_of_warp(sum_dh) / (A)width, mean_dh_h = sum_of_warp(sum_dh_h) / (A)width;

#pragma unroll
        for (int own = 0; own < (OWN ? OWN : packs); own++) {
            int i = threadIdx.x + 32 * own;
            if (i >= packs) break;
            Pack<Y> d = dys[i];
            Pack<X> p = xs[i];
            Pack<A> w = ws[i];
            Pack<X> out;
            for (int k = 0; k < PACK; k++) {
                A h = ((A)p.at[k] - mean - missing) * r, gradient = (A)d.at[k];
                out.at[k] = (X)(r * (gradient * w.at[k] - mean_dh - h * mean_dh_h));
                if (!OWN) continue;
                dw[OWN ? own : 0][k] += gradient * h;
                db[OWN ? own : 0][k] += gradient;
            }
            store_gradient(out, row * packs + i, so_far, dx, rounded);
        }
    }
    __shared__ A found[2][4][32 * PACK];  // dw or db, warp, column
    int column = threadIdx.y * 32 + threadIdx.x;
#pragma unroll
    for (int own = 0; own < OWN; own++) {
        for (int k = 0; k < PACK; k++) {
            found[0][threadIdx.y][threadIdx.x * PACK + k] = dw[own][k];
            found[1][threadIdx.y][threadIdx.x * PACK + k] = db[own][k];
        }
        __syncthreads();
        int place = own * 32 * PACK + column;
        if (column < 32 * PACK && place < width)
            for (int which = 0; which < 2; which++) {
                A total = 0;
                for (int warp = 0; warp < 4; warp++) total += found[which][warp][column];
                sums[(blockIdx.x * 2ll + which) * width + place] = total;
            }
        __syncthreads();
    }
}

// The same sums of dy h and dy for wide rows, by a separate kernel: the first of two steps, as in columns.cu.
extern "C" __global__ void layer_norm_backward_weight(long long rows, long long width, const Y* dy, const X* x,
                                                      const A* means, const A* scales, A* sums) {
    __shared__ A found_dw[8][32], found_db[8][32];
    long long column = blockIdx.x * 32ll + threadIdx.x;
    A dw = 0, db = 0;
    if (column < width)
        for (long long row = blockIdx.y * 8ll + threadIdx.y; row < rows; row += gridDim.y * 8ll) {
            A d = (A)dy[row * width + column];
            dw += d * ((A)x[row * width + column] - means[2 * row] - means[2 * row + 1]) * scales[row];
            db += d;
        }
    found_dw[threadIdx.y][threadIdx.x] = dw;
    found_db[threadIdx.y][threadIdx.x] = db;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
        for (int warp = 1; warp < 8; warp++) {
            dw += found_dw[warp][threadIdx.x];
            db += found_db[warp][threadIdx.x];
        }
        sums[blockIdx.y * 2 * width + column] = dw;
        sums[(blockIdx.y * 2 + 1) * width + column] = db;
    }
}
