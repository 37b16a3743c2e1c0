// Muon's update except the matrix products; formulas in optim/muon.py, the guard's numbers in guard.py. X is the type of the
// weights, Y the type of the products' factors. The matrices of a stack follow one another; blockIdx.y chooses one.

// u = momentum m + (1 - momentum) g, which becomes the new m; applied once more, it is the update (Nesterov)
__device__ __forceinline__ X mixed(X m, X g, X momentum) { return momentum * m + (1 - momentum) * g; }

// The new m, and for each matrix the sum of squares of u per block.
extern "C" __global__ void muon_momentum(long long packs, const X* g, X* m, const double* guard, A momentum,
                                         double* sums) {
    __shared__ double found[8];
    if (guard && guard[1] >= 0) return;
    X scale = guard ? (X)guard[0] : (X)1;
    A sum = 0;
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < packs; i += gridDim.x * 256ll) {
        long long place = blockIdx.y * packs + i;
        Pack<X> pg = ((const Pack<X>*)g)[place], pm = ((Pack<X>*)m)[place];
        for (int k = 0; k < PACK; k++) {
            X gradient = pg.at[k] * scale;
            pm.at[k] = mixed(pm.at[k], gradient, momentum);
            X u = mixed(pm.at[k], gradient, momentum);
            sum += u * u;
        }
        ((Pack<X>*)m)[place] = pm;
    }
    double of_block = sum_of_block(sum, found);
    if (threadIdx.x == 0) sums[blockIdx.y * gridDim.x + blockIdx.x] = of_block;
}

// x = u / |u|, from the sums of the kernel above, launched with the same number of blocks. u is recomputed, which takes
// no more memory traffic than reading it. After a broken step x is 0.
extern "C" __global__ void muon_normalize(long long packs, const X* g, const X* m, const double* guard, A momentum,
                                          const double* sums, A eps, Y* x) {
    double squares = 0;
    for (int block = threadIdx.x % 32; block < gridDim.x; block += 32) squares += sums[blockIdx.y * gridDim.x + block];
    bool is_broken = guard && guard[1] >= 0;
    X scale = guard ? (X)guard[0] : (X)1, factor = (X)(1 / max((A)sqrt(sum_of_warp(squares)), eps));
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < packs; i += gridDim.x * 256ll) {
        long long place = blockIdx.y * packs + i;
        Pack<X> pg = ((const Pack<X>*)g)[place], pm = ((const Pack<X>*)m)[place];
        Pack<Y> out;
        for (int k = 0; k < PACK; k++)
            out.at[k] = is_broken ? (Y)0 : (Y)(mixed(pm.at[k], pg.at[k] * scale, momentum) * factor);
        ((Pack<Y>*)x)[place] = out;
    }
}

// a I + b A + c A^2, in place of A^2; blockIdx.x is a row of A.
extern "C" __global__ void muon_polynomial(long long width, A a, A b, A c, const Y* gram, Y* square) {
    long long start = (blockIdx.y * (long long)gridDim.x + blockIdx.x) * width;
    for (long long i = threadIdx.x; i < width / PACK; i += blockDim.x) {
        Pack<Y> p = ((const Pack<Y>*)(gram + start))[i], q = ((Pack<Y>*)(square + start))[i];
        for (int k = 0; k < PACK; k++) {
            A diagonal = i * PACK + k == blockIdx.x ? a : (A)0;
            q.at[k] = (Y)(diagonal + b * (A)p.at[k] + c * (A)q.at[k]);
        }
        ((Pack<Y>*)(square + start))[i] = q;
    }
}

// w = keep w - step x
extern "C" __global__ void muon_update(long long packs, X* w, const Y* x, const double* guard, A keep, A step) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= packs || (guard && guard[1] >= 0)) return;
    Pack<X> pw = ((Pack<X>*)w)[i];
    Pack<Y> px = ((const Pack<Y>*)x)[i];
    for (int k = 0; k < PACK; k++) pw.at[k] = keep * pw.at[k] - step * (X)px.at[k];
    ((Pack<X>*)w)[i] = pw;
}
