// Watching over the updates of a training run without asking the host; see guard.py.

// The sum of squares of all gradients, first of two steps: each block leaves the sum of what its 256 threads have seen.
// A thread adds few numbers, and in float; what comes from many threads is added in double.
extern "C" __global__ void sums_of_squares(long long packs, const X* g, double* sums) {
    __shared__ double found[8];
    A sum = 0;
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < packs; i += gridDim.x * 256ll) {
        Pack<X> p = ((const Pack<X>*)g)[i];
        for (int k = 0; k < PACK; k++) sum += p.at[k] * p.at[k];
    }
    double of_warp = sum_of_warp((double)sum);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = of_warp;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; warp++) of_warp += found[warp];
        sums[blockIdx.x] = of_warp;
    }
}

// The second step, by a single warp: add up these sums, and write down what follows from them.
//   numbers: 0 what gradients are to be multiplied by, 1 the first broken step or -1, 2 loss, 3 norm
// After a broken step nothing is written any more: loss and norm stay those of that step.
extern "C" __global__ void judge(const double* sums, long long count, const X* loss, double max_norm, long long step,
                                 double* numbers) {
    double squares = 0;
    for (long long i = threadIdx.x; i < count; i += 32) squares += sums[i];
    squares = sum_of_warp(squares);
    if (threadIdx.x > 0 || numbers[1] >= 0) return;
    double norm = sqrt(squares);
    numbers[2] = (double)*loss;
    numbers[3] = norm;
    numbers[0] = 0 < max_norm && max_norm < norm ? max_norm / norm : 1;
    if (!isfinite((double)*loss + norm)) numbers[1] = (double)step;
}
