// Sums of the columns of a matrix (N, C), in two steps, always added in the same order.
//
// A block takes 32 packs of columns and some of the rows. Each of its 8 warps sums every eighth of those rows, and each
// thread PACK neighbouring columns, so the loads of a warp are coalesced. The 8 partial sums of a column are added in
// shared memory. Each block writes one row of sums, and the second step is the same kernel on these rows.
//
// Row n begins at x + n * stride. With `add`, the sums are added to what is already there.

extern "C" __global__ void column_sums(long long rows, long long width, long long stride, const X* x, A* sums,
                                       long long add) {
    __shared__ A partial[8][32 * PACK];
    long long first = blockIdx.x * 32ll * PACK;  // first column of the block
    int column = threadIdx.x * PACK;             // first column of the thread, within the block
    A sum[PACK] = {};
    if (first + column < width)
#pragma unroll 4
        for (long long row = blockIdx.y * 8ll + threadIdx.y; row < rows; row += gridDim.y * 8ll) {
            Pack<X> p = *(const Pack<X>*)(x + row * stride + first + column);
            for (int k = 0; k < PACK; k++) sum[k] += (A)p.at[k];
        }
    for (int k = 0; k < PACK; k++) partial[threadIdx.y][column + k] = sum[k];
    __syncthreads();
    column = threadIdx.y * 32 + threadIdx.x;
    if (column >= 32 * PACK || first + column >= width) return;
    A total = 0;
    for (int warp = 0; warp < 8; warp++) total += partial[warp][column];
    A* sum_of_column = sums + blockIdx.y * width + first + column;
    *sum_of_column = add ? *sum_of_column + total : total;
}
