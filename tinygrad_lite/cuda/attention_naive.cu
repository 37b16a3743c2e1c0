// Causal attention as simply as a GPU can compute it: each thread takes a query and goes through the keys that it may
// attend to, with the running maximum and sum of flash_attention.py. flash_forward.cu is tested against this kernel.
//
// It is slow for three reasons. Each thread reads all keys and values itself (flash_forward.cu reads them once for 64
// queries). The rows of neighbouring threads are far apart in memory, so their reads and writes are not coalesced, and
// each sum is written and read again for each key. And it multiplies one pair of numbers at a time, whereas a tensor
// core multiplies matrices.

// O (heads, queries, width), where query t sees the keys s <= t + ahead; all arrays are contiguous.
extern "C" __global__ void attention_naive(const float* q, const float* k, const float* v, float* out,
                                           long long queries, long long keys, long long width, long long ahead,
                                           float scale) {
    long long head = blockIdx.y, query = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (query >= queries) return;
    q += (head * queries + query) * width;
    out += (head * queries + query) * width;
    float maximum = -__uint_as_float(0x7f800000), sum = 0;  // of the scores so far, and of e^(score - maximum)
    for (int i = 0; i < width; i++) out[i] = 0;
    for (long long key = 0; key < min(keys, query + ahead + 1); key++) {
        const float *key_row = k + (head * keys + key) * width, *value_row = v + (head * keys + key) * width;
        float score = 0;
        for (int i = 0; i < width; i++) score += q[i] * key_row[i];
        score *= scale;
        float before = maximum;
        maximum = fmaxf(maximum, score);
        float rescale = exp(before - maximum), weight = exp(score - maximum);
        sum = sum * rescale + weight;
        for (int i = 0; i < width; i++) out[i] = out[i] * rescale + weight * value_row[i];
    }
    for (int i = 0; i < width && sum > 0; i++) out[i] /= sum;
}
