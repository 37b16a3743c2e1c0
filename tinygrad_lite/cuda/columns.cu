// Sums of the columns of a matrix (N, C), in two steps, always added in the same order.
//
// A block takes 32 columns and some of the rows; its 8 warps take every eighth of those and add up what they have found
// through the memory that they share. Each block leaves one row of sums, and the second step adds up these rows.

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
