// Sums of the columns of a matrix (N, C), in two steps, always added in the same order.
//
// A block takes 32 columns and some of the rows. Each of its 8 warps sums every eighth of those rows, and shared memory
// brings the 8 sums together. Each block writes one row of sums, and the second step is the same kernel on these rows.

extern "C" __global__ void column_sums(const X* x, A* sums, long long rows, long long width) {
    __shared__ A found[8][32];
    long long column = blockIdx.x * 32ll + threadIdx.x;
    A sum = 0;
    if (column < width)
        for (long long row = blockIdx.y * 8ll + threadIdx.y; row < rows; row += gridDim.y * 8ll)
            sum += (A)x[row * width + column];
    found[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
        for (int warp = 1; warp < 8; warp++) sum += found[warp][threadIdx.x];
        sums[blockIdx.y * width + column] = sum;
    }
}
