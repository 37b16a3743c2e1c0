// Attention without a (T, S) array, backward; the formulas are in functional/attention.py, the idea in
// flash_attention.py, the building blocks in flash_attention.cuh. P is recomputed as 2^(S log2(e) - L), with L from the
// forward pass, which is infinite for rows that see no key, so that their P is 0.
#include "philox.cuh"
#include "tensor_cores.cuh"
#include "flash_attention.cuh"

struct alignas(16) Eight {
    bf16 at[8];
};

// rowsum(dO * O) for each query, and 0 after the last one; a block takes 64 queries. WIDTH / 8 threads take a row, and
// each of them reads 16 bytes at once, the most that a thread can.
extern "C" __global__ void __launch_bounds__(THREADS) flash_row_sums(const bf16* dy, long long dy_b, long long dy_h,
                                                                     long long dy_t, const bf16* out, float* sums,
                                                                     long long heads, long long queries) {
    const int lanes = WIDTH / 8;
    int column = threadIdx.x % lanes * 8, b = blockIdx.x / (unsigned)heads, h = blockIdx.x % (unsigned)heads;
    dy += b * dy_b + h * dy_h + column;
    out += (b * queries * heads + h) * WIDTH + column;
    sums += blockIdx.x * padded(queries);
#pragma unroll
    for (int i = 0; i < ROWS; i += THREADS / lanes) {
        long long query = blockIdx.y * ROWS + i + threadIdx.x / lanes;
        float sum = 0;
        if (query < queries) {
            Eight x = *(const Eight*)(dy + query * dy_t), y = *(const Eight*)(out + query * heads * WIDTH);
            for (int j = 0; j < 8; j++) sum += (float)x.at[j] * (float)y.at[j];
        }
        for (int distance = 1; distance < lanes; distance *= 2) sum += __shfl_xor_sync(~0u, sum, distance);
        if (column == 0) sums[query] = sum;
    }
}

// dQ = dS K / sqrt(D): a block takes 64 queries; keys and values come in tiles.
extern "C" __global__ void __launch_bounds__(THREADS) flash_backward_query(
    const bf16* q, long long q_b, long long q_h, long long q_t, const bf16* k, long long k_b, long long k_h,
    long long k_s, const bf16* v, long long v_b, long long v_h, long long v_s, const bool* mask, long long mask_b,
    long long mask_s, const bf16* dy, long long dy_b, long long dy_h, long long dy_t, const float* logs,
    const float* row_sums, bf16* dq, long long stride, long long heads, long long queries, long long keys,
    long long ahead, float scale, RoundKeys round_keys, long long drop_below, float keep_scale) {
    long long head = blockIdx.x, b = head / heads, h = head % heads;
    int first = (gridDim.y - 1 - blockIdx.y) * ROWS;
    int end = min(keys, first + ROWS + ahead);
    const float scale_2 = scale * LOG2_E;
    Rules rules = {(int)keys, (int)ahead, mask ? mask + b * mask_b : mask, mask_s,
                   (unsigned long long)(head * queries * keys), round_keys, (unsigned)drop_below};
    k += b * k_b + h * k_h;
    v += b * v_b + h * v_h;
    unsigned a_q[WIDTH / 16][4], a_dy[WIDTH / 16][4];
    load_fragments(a_q, q + b * q_b + h * q_h, q_t, first, queries);
    load_fragments(a_dy, dy + b * dy_b + h * dy_h, dy_t, first, queries);
    const long long row = head * padded(queries) + first + row_of(0);
    const float log[2] = {logs[row], logs[row + 8]}, row_sum[2] = {row_sums[row], row_sums[row + 8]};

    float sums[WIDTH / 8][4] = {};
    // The last key that all of this warp's queries see, and the last key that any of them sees.
    const int all_see = rules.last_key(first + first_row_of_warp());
    const int any_sees = rules.last_key(first + first_row_of_warp() + 15);
    copy_tiles(0, k, k_s, v, v_s, 0, end);
    for (int s = 0, buffer = 0; s < end; s += TILE, buffer ^= 1) {
        cp_async_wait_all();
        __syncthreads();
        copy_tiles(buffer ^ 1, k, k_s, v, v_s, s + TILE, end);
        if (s > any_sees) continue;
        float c[TILE / 8][4], dp[TILE / 8][4];
        matmul_transposed(c, a_q, tiles[buffer][0]);
        matmul_transposed(dp, a_dy, tiles[buffer][1]);
        FOR_EACH_ELEMENT(n, i) c[n][i] = ex2(c[n][i] * scale_2 - log[i / 2]);  // P
        if (rules.mask || s + TILE - 1 > all_see) replace_masked(c, rules, first, s, 0);
#if DROPOUT
        unsigned kept = keep_mask(rules, first, s);
#endif
        FOR_EACH_ELEMENT(n, i) {
#if DROPOUT
            dp[n][i] = is_kept(kept, n, i) ? dp[n][i] * keep_scale : 0;
#endif
            c[n][i] *= dp[n][i] - row_sum[i / 2];  // dS
        }
        matmul_add(sums, c, tiles[buffer][0]);
    }
    store_rows(dq, stride, sums, scale, scale, head, heads, first, queries);
}

// L and rowsum(dO * O) of a tile's queries: buffer, which of the two, query.
__align__(16) __shared__ float of_queries[2][2][TILE];

// Start copying both, 16 bytes in each thread. (The arrays are padded: see padded().)
__device__ __forceinline__ void copy_of_queries(int buffer, const float* logs, const float* row_sums, int first,
                                                int end) {
    int which = threadIdx.x / (TILE / 4), place = threadIdx.x % (TILE / 4) * 4;
    if (first < end && which < 2)
        cp_async(&of_queries[buffer][which][place], (which ? row_sums : logs) + first + place, true);
}

// dV = P^T dO and dK = dS^T Q / sqrt(D): a block takes 64 keys and values; queries and dO come in tiles. So everything
// is transposed: rows are keys, columns are queries.
extern "C" __global__ void __launch_bounds__(THREADS, WIDTH > 64 ? 1 : 3) flash_backward_key_value(
    const bf16* q, long long q_b, long long q_h, long long q_t, const bf16* k, long long k_b, long long k_h,
    long long k_s, const bf16* v, long long v_b, long long v_h, long long v_s, const bool* mask, long long mask_b,
    long long mask_s, const bf16* dy, long long dy_b, long long dy_h, long long dy_t, const float* logs,
    const float* row_sums, bf16* dk, bf16* dv, long long stride, long long heads, long long queries, long long keys,
    long long ahead, float scale, RoundKeys round_keys, long long drop_below, float keep_scale) {
    long long head = blockIdx.x, b = head / heads, h = head % heads;
    int first = blockIdx.y * ROWS;  // the blocks of the first keys start first: most queries see them
    const float scale_2 = scale * LOG2_E;
    Rules rules = {(int)keys, (int)ahead, mask ? mask + b * mask_b : mask, mask_s,
                   (unsigned long long)(head * queries * keys), round_keys, (unsigned)drop_below};
    q += b * q_b + h * q_h;
    dy += b * dy_b + h * dy_h;
    unsigned a_k[WIDTH / 16][4], a_v[WIDTH / 16][4];
    load_fragments(a_k, k + b * k_b + h * k_h, k_s, first, keys);
    load_fragments(a_v, v + b * v_b + h * v_h, v_s, first, keys);
    logs += head * padded(queries);
    row_sums += head * padded(queries);
    // The first queries that see this thread's two keys, and those that see any, or all, of the warp's 16 keys.
    const int first_key = first + first_row_of_warp(), never = 0x7fffffff;
    int seen_from[2];
    for (int half = 0; half < 2; half++) {
        int key = first + row_of(2 * half);
        seen_from[half] = key >= rules.keys || rules.is_masked(key) ? never : key - rules.ahead;
    }
    const int any_seen_from = first_key - rules.ahead;
    const int all_seen_from = rules.mask || first_key + 15 >= rules.keys ? never : first_key + 15 - rules.ahead;

    float sums_k[WIDTH / 8][4] = {}, sums_v[WIDTH / 8][4] = {};
    int begin = max(0, first - (int)ahead) / TILE * TILE;  // the first query that sees one of these keys
    copy_tiles(0, q, q_t, dy, dy_t, begin, queries);
    copy_of_queries(0, logs, row_sums, begin, queries);
    for (int t = begin, buffer = 0; t < queries; t += TILE, buffer ^= 1) {
        cp_async_wait_all();
        __syncthreads();
        copy_tiles(buffer ^ 1, q, q_t, dy, dy_t, t + TILE, queries);
        copy_of_queries(buffer ^ 1, logs, row_sums, t + TILE, queries);
        if (t + TILE <= any_seen_from) continue;
        float c[TILE / 8][4], dp[TILE / 8][4];
        matmul_transposed(c, a_k, tiles[buffer][0]);
        matmul_transposed(dp, a_v, tiles[buffer][1]);
        FOR_EACH_ELEMENT(n, i) c[n][i] = ex2(c[n][i] * scale_2 - of_queries[buffer][0][column_of(n, i)]);  // P
        if (t < all_seen_from) {
            FOR_EACH_ELEMENT(n, i)
                if (t + column_of(n, i) < seen_from[i / 2]) c[n][i] = 0;
        }
#if DROPOUT
        unsigned kept = keep_mask_transposed(rules, first, t);
#endif
        FOR_EACH_ELEMENT(n, i) {
#if DROPOUT
            dp[n][i] = is_kept(kept, n, i) ? dp[n][i] * keep_scale : 0;
#endif
            dp[n][i] = c[n][i] * (dp[n][i] - of_queries[buffer][1][column_of(n, i)]);  // dS
#if DROPOUT
            if (!is_kept(kept, n, i)) c[n][i] = 0;
#endif
        }
        matmul_add(sums_v, c, tiles[buffer][1]);
        matmul_add(sums_k, dp, tiles[buffer][0]);
    }
    store_rows(dk, stride, sums_k, scale, scale, head, heads, first, keys);
    store_rows(dv, stride, sums_v, keep_scale, keep_scale, head, heads, first, keys);
}
