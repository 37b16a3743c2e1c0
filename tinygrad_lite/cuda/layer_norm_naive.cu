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
    float sum = 0, rest = 0, squares = 0;
    for (long long i = 0; i < width; i++) sum += x[i];
    float mean = sum / width;
    for (long long i = 0; i < width; i++) rest += x[i] - mean;
    rest /= width;  // what the rounding of the mean left out
    for (long long i = 0; i < width; i++) squares += (x[i] - mean - rest) * (x[i] - mean - rest);
    float r = 1 / sqrt(squares / width + eps);
    for (long long i = 0; i < width; i++) y[i] = (x[i] - mean - rest) * r * weight[i] + bias[i];
}
