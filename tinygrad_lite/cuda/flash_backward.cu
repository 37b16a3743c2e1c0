// Attention without a (T, S) array, backward; the formulas are in functional/attention.py, the idea in
// flash_attention.py, the building blocks in flash_attention.cuh. P is computed again as 2^(S log2(e) - L), with L from
// the forward pass, which is infinite for rows that see no key, so that their P is 0.
#include "philox.cuh"
#include "tensor_cores.cuh"
#include "flash_attention.cuh"

// rowsum(dO * O) for each query, and 0 for the padding of the last 64, which `rows` includes.
extern "C" __global__ void flash_row_sums(long long rows, const bf16* dy, long long dy_b, long long dy_h,
                                          long long dy_t, const bf16* out, long long heads, long long queries,
                                          float* sums) {
    long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    long long padded = (queries + ROWS - 1) / ROWS * ROWS, query = row % padded;
    long long b = row / padded / heads, h = row / padded % heads;
    float sum = 0;
    if (query < queries) {
        dy += b * dy_b + h * dy_h + query * dy_t;
        out += ((b * queries + query) * heads + h) * WIDTH;
        for (int i = threadIdx.x; i < WIDTH; i += 32) sum += (float)dy[i] * (float)out[i];
    }
    sum = sum_of_warp(sum);
    if (threadIdx.x == 0) sums[row] = sum;
}

// dQ = dS K / sqrt(D): a block takes 64 queries; keys and values come in tiles.
extern "C" __global__ void __launch_bounds__(128) flash_backward_query(
    const bf16* q, long long q_b, long long q_h, long long q_t, const bf16* k, long long k_b, long long k_h,
    long long k_s, const bf16* v, long long v_b, long long v_h, long long v_s, const bool* mask, long long mask_b,
    long long mask_s, const bf16* dy, long long dy_b, long long dy_h, long long dy_t, const float* logs,
    const float* row_sums, bf16* dq, long long heads, long long queries, long long keys, long long ahead, double scale,
    long long random_key, long long drop_below, double keep_scale) {
    long long head = blockIdx.x, b = head / heads, h = head % heads;
    int first = (gridDim.y - 1 - blockIdx.y) * ROWS;
    int end = min(keys, first + ROWS + ahead);
    const float scale_2 = scale * LOG2_E;
    Rules rules = {(int)keys, (int)ahead, mask ? mask + b * mask_b : mask, mask_s,
                   (unsigned long long)(head * queries * keys), (unsigned long long)random_key, (unsigned)drop_below};
    k += b * k_b + h * k_h;
    v += b * v_b + h * v_h;
    unsigned a_q[WIDTH / 16][4], a_dy[WIDTH / 16][4];
    load_fragments(a_q, q + b * q_b + h * q_h, q_t, first, queries);
    load_fragments(a_dy, dy + b * dy_b + h * dy_h, dy_t, first, queries);
    const long long row = head * gridDim.y * ROWS + first + row_of(0);
    const float log[2] = {logs[row], logs[row + 8]}, row_sum[2] = {row_sums[row], row_sums[row + 8]};

    float sums[WIDTH / 8][4] = {};
    copy_tiles(0, k, k_s, v, v_s, 0, end);
    for (int s = 0, buffer = 0; s < end; s += TILE, buffer ^= 1) {
        cp_async_wait_all();
        __syncthreads();
        copy_tiles(buffer ^ 1, k, k_s, v, v_s, s + TILE, end);
        float c[TILE / 8][4], dp[TILE / 8][4];
        matmul_transposed(c, a_q, tiles[buffer][0]);
        matmul_transposed(dp, a_dy, tiles[buffer][1]);
        bool all_allowed = rules.allow_all(first, s + TILE - 1);
#if DROPOUT
        unsigned kept = keep_mask(rules, first, s);
#endif
        FOR_EACH_ELEMENT(n, i) {
            int query = first + row_of(i), key = s + column_of(n, i);
            float p = all_allowed || rules.may_attend(query, key) ? exp2f(c[n][i] * scale_2 - log[i / 2]) : 0;
#if DROPOUT
            dp[n][i] = is_kept(kept, n, i) ? dp[n][i] * (float)keep_scale : 0;
#endif
            c[n][i] = p * (dp[n][i] - row_sum[i / 2]);  // dS
        }
        matmul_add(sums, c, tiles[buffer][0]);
    }
    store_rows(dq, sums, scale, scale, head, heads, first, queries);
}

// dV = P^T dO and dK = dS^T Q / sqrt(D): a block takes 64 keys and values; queries and dO come in tiles. So all is
// transposed: rows are keys, columns are queries.
extern "C" __global__ void __launch_bounds__(128, WIDTH > 64 ? 1 : 3) flash_backward_key_value(
    const bf16* q, long long q_b, long long q_h, long long q_t, const bf16* k, long long k_b, long long k_h,
    long long k_s, const bf16* v, long long v_b, long long v_h, long long v_s, const bool* mask, long long mask_b,
    long long mask_s, const bf16* dy, long long dy_b, long long dy_h, long long dy_t, const float* logs,
    const float* row_sums, bf16* dk, bf16* dv, long long heads, long long queries, long long keys, long long ahead,
    double scale, long long random_key, long long drop_below, double keep_scale) {
    long long head = blockIdx.x, b = head / heads, h = head % heads;
    int first = blockIdx.y * ROWS;  // the blocks of the first keys start first: most queries see them
    const float scale_2 = scale * LOG2_E;
    Rules rules = {(int)keys, (int)ahead, mask ? mask + b * mask_b : mask, mask_s,
                   (unsigned long long)(head * queries * keys), (unsigned long long)random_key, (unsigned)drop_below};
    q += b * q_b + h * q_h;
    dy += b * dy_b + h * dy_h;
    unsigned a_k[WIDTH / 16][4], a_v[WIDTH / 16][4];
    load_fragments(a_k, k + b * k_b + h * k_h, k_s, first, keys);
    load_fragments(a_v, v + b * v_b + h * v_h, v_s, first, keys);
    const long long padded = (queries + ROWS - 1) / ROWS * ROWS;
    logs += head * padded;
    row_sums += head * padded;

    float sums_k[WIDTH / 8][4] = {}, sums_v[WIDTH / 8][4] = {};
    int begin = max(0, first - (int)ahead) / TILE * TILE;  // the first query that sees one of these keys
    copy_tiles(0, q, q_t, dy, dy_t, begin, queries);
    for (int t = begin, buffer = 0; t < queries; t += TILE, buffer ^= 1) {
        cp_async_wait_all();
        __syncthreads();
        copy_tiles(buffer ^ 1, q, q_t, dy, dy_t, t + TILE, queries);
        float c[TILE / 8][4], dp[TILE / 8][4];
        matmul_transposed(c, a_k, tiles[buffer][0]);
        matmul_transposed(dp, a_v, tiles[buffer][1]);
        bool all_allowed = rules.allow_all(t, first + ROWS - 1);
#if DROPOUT
        unsigned kept = keep_mask_transposed(rules, first, t);
#endif
        FOR_EACH_ELEMENT(n, i) {
            int query = t + column_of(n, i), key = first + row_of(i);
            float p = all_allowed || rules.may_attend(query, key) ? exp2f(c[n][i] * scale_2 - logs[query]) : 0;
            c[n][i] = p;
#if DROPOUT
            if (!is_kept(kept, n, i)) c[n][i] = 0;
            dp[n][i] = is_kept(kept, n, i) ? dp[n][i] * (float)keep_scale : 0;
#endif
            dp[n][i] = p * (dp[n][i] - row_sums[query]);  // dS
        }
        matmul_add(sums_v, c, tiles[buffer][1]);
        matmul_add(sums_k, dp, tiles[buffer][0]);
    }
    store_rows(dk, sums_k, scale, scale, head, heads, first, keys);
    store_rows(dv, sums_v, keep_scale, keep_scale, head, heads, first, keys);
}
