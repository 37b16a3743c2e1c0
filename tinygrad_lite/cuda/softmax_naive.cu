// The softmax inside attention as simply as a GPU can compute it: each thread takes a row, that is, one query.
// softmax.cu is tested against this kernel; layer_norm_naive.cu explains why such a kernel is slow.

// P = softmax(S) for scores S (B, H, queries, keys), where query t sees the keys s <= t + ahead. The others get 0.
extern "C" __global__ void softmax_naive(long long rows, long long queries, long long keys, long long ahead,
                                         const float* scores, float* weights) {
    long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (row >= rows) return;
    scores += row * keys;
    weights += row * keys;
    long long seen = min(keys, row % queries + ahead + 1);
    float largest = -__uint_as_float(0x7f800000), sum = 0;
    for (long long s = 0; s < seen; s++) largest = fmaxf(largest, scores[s]);
    for (long long s = 0; s < seen; s++) sum += exp(scores[s] - largest);
    for (long long s = 0; s < keys; s++) weights[s] = s < seen ? exp(scores[s] - largest) / sum : 0;
}
