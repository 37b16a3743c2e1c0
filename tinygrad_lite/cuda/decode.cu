// One position of a Transformer for each of B texts, as generation computes it for every token: the embedding, the
// linear maps with what comes before and after them, and the log-probabilities. gpt/fast/step_cuda.py combines them;
// attention is in decode_attention.cu.
//
// A linear map here takes as long as fetching its matrix, because each weight is multiplied by only B numbers: the
// matrix units would be idle. So there is a kernel for it, and whatever else must be done with a vector is done in the
// same kernel. A warp takes one row of the matrix, that is, one result for each of BATCH texts. BATCH is small; the
// warps of the other texts take the same row at the same time, so that it is fetched from memory once. But every row
// reads the texts again. So for more than BATCH texts and weights in bfloat16 there is decode_tiles.cu.
//
// X is the type of the weights. All other numbers have type A.

#include "decode.cuh"

constexpr int LOADS = 4;  // packs of weights that a thread requests before it waits for the first

// sums[b] += w . x[b], and squares[b] += x[b] . x[b], for `width` numbers each; this thread takes every 32nd pack.
__device__ __forceinline__ void multiply(const X* w, const A* const* x, long long width, A* sums, A* squares) {
    int packs = width / PACK;
    for (int first = threadIdx.x; first < packs; first += 32 * LOADS) {
        Pack<X> weights[LOADS];
        for (int j = 0; j < LOADS; j++)
            if (first + 32 * j < packs) weights[j] = ((const Pack<X>*)w)[first + 32 * j];
        for (int j = 0; j < LOADS; j++) {
            if (first + 32 * j >= packs) break;
            for (int b = 0; b < BATCH; b++) {
                Pack<A> numbers = ((const Pack<A>*)x[b])[first + 32 * j];
                for (int k = 0; k < PACK; k++) {
                    sums[b] += (A)weights[j].at[k] * numbers.at[k];
                    squares[b] += numbers.at[k] * numbers.at[k];
                }
            }
        }
    }
}

// y = activation(W x r + shift) or, with `add`, y += that, for x (B, C) and y (B, N). W is (N, C); for swiglu it is
// (2 N, C), and the first N rows are the gate's. With `normed`, r = 1 / sqrt(mean(x^2) + eps), otherwise it is 1.
extern "C" __global__ void decode_linear(long long count, long long batch, long long results, long long width,
                                         const A* x, const X* weight, const A* shift, long long normed, A eps,
                                         long long activation, long long add, A* y) {
    long long unit = blockIdx.x * (long long)blockDim.y + threadIdx.y, parts = (batch + BATCH - 1) / BATCH;
    if (unit >= count) return;
    long long n = unit / parts, first = unit % parts * BATCH;
    const A* rows[BATCH];
    for (int b = 0; b < BATCH; b++) rows[b] = x + min(first + b, batch - 1) * width;  // beyond the last: the last again
    A sums[BATCH] = {}, gates[BATCH] = {}, squares[BATCH] = {}, unused[BATCH] = {};
    if (activation == SWIGLU) multiply(weight + n * width, rows, width, gates, unused);
    long long row = activation == SWIGLU ? results + n : n;
    multiply(weight + row * width, rows, width, sums, squares);
    for (int b = 0; b < BATCH; b++) {
        A r = normed ? 1 / sqrt(sum_of_warp(squares[b]) / (A)width + eps) : (A)1;
        A z = sum_of_warp(sums[b]) * r + (shift ? shift[row] : (A)0), gate = 0;
        if (activation == SWIGLU) gate = sum_of_warp(gates[b]) * r + (shift ? shift[n] : (A)0);
        if (threadIdx.x != b || first + b >= batch) continue;  // thread b writes the result of text b
        A* out = y + (first + b) * results + n;
        z = activated(z, gate, activation);
        *out = add ? *out + z : z;
    }
}

// x[b] = tokens[id] * factor + positions[position], minus its mean if `centred`. `inputs` holds the position, and then
// an id for each text. A warp takes one text; for a token that is not in the table it writes NaN.
extern "C" __global__ void decode_embedding(long long batch, long long vocabulary, long long width, const A* tokens,
                                            A factor, const A* positions, long long centred, A* x,
                                            const long long* inputs) {
    long long b = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (b >= batch) return;
    long long position = inputs[0], id = inputs[1 + b];
    bool known = id >= 0 && id < vocabulary;
    const A* token = tokens + (known ? id : 0) * width;
    A* out = x + b * width;
    A sum = 0;
#pragma unroll 4
    for (long long i = threadIdx.x; i < width; i += 32) {
        A value = token[i] * factor + (positions ? positions[position * width + i] : (A)0);
        out[i] = known ? value : __uint_as_float(0x7fffffff);  // NaN
        sum += value;
    }
    if (!centred) return;
    for (int pass = 0; pass < 2; pass++) {  // a large mean is rounded: the differences have one, too
        A mean = sum_of_warp(sum) / (A)width;
        sum = 0;
        for (long long i = threadIdx.x; i < width; i += 32) sum += out[i] -= mean;
    }
}

constexpr int REQUESTED = 8;  // elements that a thread requests before it waits for the first

// Every blockDim.x-th element from `first` on; beyond the last they are -infinity.
__device__ __forceinline__ void request(A* values, const A* z, long long first, long long width) {
#pragma unroll
    for (int j = 0; j < REQUESTED; j++) {
        long long i = first + j * blockDim.x;
        values[j] = i < width ? z[i] : -(A)__uint_as_float(0x7f800000);
    }
}

// z - max(z) - log(sum(e^(z - max(z)))) for each row of z (B, V), in place. A block takes one row.
extern "C" __global__ void __launch_bounds__(1024) decode_log_softmax(long long width, A* logits) {
    __shared__ A of_warps[32];
    A *z = logits + blockIdx.x * width, values[REQUESTED];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, step = REQUESTED * blockDim.x;

    A largest = z[0];
    for (long long first = threadIdx.x; first < width; first += step) {
        request(values, z, first, width);
        for (int j = 0; j < REQUESTED; j++) largest = values[j] > largest ? values[j] : largest;
    }
    largest = max_of_warp(largest);
    if (lane == 0) of_warps[warp] = largest;
    __syncthreads();
    largest = max_of_warp(of_warps[lane < warps ? lane : 0]);
    __syncthreads();

    A sum = 0;
    for (long long first = threadIdx.x; first < width; first += step) {
        request(values, z, first, width);
        for (int j = 0; j < REQUESTED; j++) sum += exp(values[j] - largest);
    }
    sum = sum_of_warp(sum);
    if (lane == 0) of_warps[warp] = sum;
    __syncthreads();
    A log_sum = log(sum_of_warp(lane < warps ? of_warps[lane] : (A)0));

    for (long long first = threadIdx.x; first < width; first += step) {
        request(values, z, first, width);
#pragma unroll
        for (int j = 0; j < REQUESTED; j++)
            if (first + j * blockDim.x < width) z[first + j * blockDim.x] = values[j] - largest - log_sum;
    }
}
