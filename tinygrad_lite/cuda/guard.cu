// Clips gradients and stops at a broken step, without the host; see guard.py.

// The first of two steps to the sum of squares of all gradients: each block writes the sum of its 256 threads. A thread
// adds few numbers, in float; the sums of the threads are added in double.
extern "C" __global__ void sums_of_squares(long long packs, const X* g, double* sums) {
    __shared__ double found[8];
    A sum = 0;
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < packs; i += gridDim.x * 256ll) {
        Pack<X> p = ((const Pack<X>*)g)[i];
        for (int k = 0; k < PACK; k++) sum += p.at[k] * p.at[k];
    }
    double of_block = sum_of_block(sum, found);
    if (threadIdx.x == 0) sums[blockIdx.x] = of_block;
}

// The second step, by a single warp: add these sums, and write the numbers that follow from them.
//   numbers: 0 the factor for gradients, 1 the first broken step or -1, 2 loss, 3 norm
// After a broken step nothing more is written: loss and norm remain those of that step.
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
