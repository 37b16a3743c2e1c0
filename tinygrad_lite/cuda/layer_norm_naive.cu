// Layer normalisation as simply as a GPU can compute it: each thread takes a row. layer_norm.cu is tested against this
// kernel.
//
// It is slow because the numbers that neighbouring threads load together are a row apart, so the loads are not
// coalesced: memory is read in chunks of 32 bytes, and each load uses only 4 of them. And there is only one thread per
// row, while a GPU can run more than 200,000. layer_norm.cu uses a warp per row, whose threads load neighbouring
// numbers.

// x, y: (rows, width); weight, bias: (width).
extern "C" __global__ void layer_norm_naive(long long rows, long long width, const float* x, const float* weight,
                                            const float* bias, float eps, float* y) {
    long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += row * width;
    y += row * width;
    float mean = 0, variance = 0;
    for (long long i = 0; i < width; i++) mean += x[i] / width;
    for (long long i = 0; i < width; i++) variance += (x[i] - mean) * (x[i] - mean) / width;
    for (long long i = 0; i < width; i++) y[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i];
}
