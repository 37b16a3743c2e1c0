// The softmax inside attention, in place, and its gradient; the formulas are in functional/attention.py, and
// softmax_naive.cu does the same in a dozen lines.
//
// The scores S of a block of queries are a contiguous array (B, H, length, width): the queries t = first, first + 1,
// ... of the block, and the keys s < width, all that they can see. A warp takes one row, that is, one query; its lanes
// take neighbouring packs, so their loads are coalesced. With causal attention, a query sees the keys s <= t + ahead,
// and the warp does not read the others.
//
// Dropout numbers the weights as if all T x S of them existed, so that a mask does not depend on the blocks. The stored
// P is negative where a weight was dropped (weights are never negative), so backward need not compute the random words.
#include "philox.cuh"

// The random words of a pack; one call of Philox gives all four if the pack begins at a multiple of 4.
__device__ inline Words random_bits_of_pack(const RoundKeys& round_keys, long long element) {
#if PACK == 4
    if (element % 4 == 0) return random_bits_of_four(round_keys, element / 4);
    return {{random_bits(round_keys, element), random_bits(round_keys, element + 1),
             random_bits(round_keys, element + 2), random_bits(round_keys, element + 3)}};
#else
    return {{random_bits(round_keys, element)}};
#endif
}

// The number of keys, from the first on, that the query of a row can see.
__device__ inline int keys_seen(long long query, long long width, long long ahead) {
    long long seen = query + ahead + 1;
    return (int)(seen < 0 ? 0 : seen < width ? seen : width);
}

// P = softmax(S) where `mask` (with its own strides, or null) is true, and 0 elsewhere; negative where a weight was
// dropped. `dropped` (or null) becomes P * M: M is 0 where the random word is below drop_below, else keep_scale =
// 1 / (1 - p). A query that may attend to no key gets zeros.
extern "C" __global__ void softmax_forward(long long rows, X* scores, X* dropped, const bool* mask, long long mask_b,
                                           long long mask_h, long long mask_t, long long mask_s, long long heads,
                                           long long queries, long long keys, long long first, long long length,
                                           long long width, long long ahead, RoundKeys round_keys, long long drop_below,
                                           A keep_scale) {
    long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    long long head = row / length, query = first + row % length;  // head: b H + h
    int seen = keys_seen(query, width, ahead), packs = width / PACK;
    const bool* allowed = mask + head / heads * mask_b + head % heads * mask_h + query * mask_t;
    Pack<X>* ps = (Pack<X>*)(scores + row * width);
    Pack<X>* ds = (Pack<X>*)(dropped + row * width);

    const A minus_infinity = __uint_as_float(0xff800000);
    A largest = minus_infinity;
    for (int i = threadIdx.x; i * PACK < seen; i += 32) {
        Pack<X> p = ps[i];
        for (int k = 0; k < PACK; k++) {
            int s = i * PACK + k;
            if (s < seen && (!mask || allowed[s * mask_s]) && (A)p.at[k] > largest) largest = (A)p.at[k];
        }
    }
    largest = max_of_warp(largest);
    if (largest == minus_infinity) largest = 0;  // -inf - -inf would be NaN

    A sum = 0;
    for (int i = threadIdx.x; i * PACK < seen; i += 32) {
        Pack<X> p = ps[i];
        for (int k = 0; k < PACK; k++) {
            int s = i * PACK + k;
            if (s < seen && (!mask || allowed[s * mask_s])) sum += exp((A)p.at[k] - largest);
        }
    }
    sum = sum_of_warp(sum);
    A share = 1 / (sum == 0 ? (A)1 : sum);

    for (int i = threadIdx.x; i < packs; i += 32) {
        Pack<X> p, d;
        if (i * PACK < seen) p = ps[i];
        Words bits;
        if (dropped && i * PACK < seen) bits = random_bits_of_pack(round_keys, (head * queries + query) * keys + i * PACK);
        for (int k = 0; k < PACK; k++) {
            int s = i * PACK + k;
            A weight = 0;
            if (s < seen && (!mask || allowed[s * mask_s])) weight = exp((A)p.at[k] - largest) * share;
            bool kept = !dropped || weight == 0 || bits.at[k] >= drop_below;
            p.at[k] = (X)(kept ? weight : -weight);
            d.at[k] = (X)(kept ? weight * keep_scale : (A)0);
        }
        ps[i] = p;
        if (dropped) ds[i] = d;
    }
}

// dS = P * (dP * M - rowsum(dP * M * P)), where dP = dO V^T would be the gradient of P if nothing were dropped. dS
// overwrites dP. With dropout, P * M, which dV needs, overwrites P.
extern "C" __global__ void softmax_backward(long long rows, X* weights, X* d_weights, long long length, long long first,
                                            long long width, long long ahead, A keep_scale) {
    long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    int seen = keys_seen(first + row % length, width, ahead), packs = width / PACK;
    Pack<X>* ps = (Pack<X>*)(weights + row * width);
    Pack<X>* ds = (Pack<X>*)(d_weights + row * width);

    A sum = 0;
    for (int i = threadIdx.x; i * PACK < seen; i += 32) {
        Pack<X> p = ps[i], d = ds[i];
        for (int k = 0; k < PACK; k++) {
            A weight = (A)p.at[k];
            // Where the weight is 0 nothing is added, not even 0 times an infinity, which would be NaN.
            if (weight != 0 && !(weight < 0)) sum += weight * (A)d.at[k] * keep_scale;
        }
    }
    sum = sum_of_warp(sum);

    for (int i = threadIdx.x; i < packs; i += 32) {
        Pack<X> p, d;
        if (i * PACK < seen) {
            p = ps[i];
            d = ds[i];
        }
        for (int k = 0; k < PACK; k++) {
            A weight = i * PACK + k < seen ? (A)p.at[k] : (A)0, gradient = 0;
            if (weight < 0) gradient = weight * sum;
            else if (weight != 0) gradient = weight * ((A)d.at[k] * keep_scale - sum);
            d.at[k] = (X)gradient;
            p.at[k] = (X)(weight < 0 ? (A)0 : weight * keep_scale);
        }
        ds[i] = d;
        if (keep_scale != 1) ps[i] = p;
    }
}
