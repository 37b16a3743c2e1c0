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

// dQ = dS K / sqrt(D): queries stay, keys and values pass.
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
    unsigned own_q[WIDTH / 16][4], own_dy[WIDTH / 16][4];
    keep_rows(own_q, q + b * q_b + h * q_h, q_t, first, queries);
    keep_rows(own_dy, dy + b * dy_b + h * dy_h, dy_t, first, queries);
    const long long row = head * gridDim.y * ROWS + first + row_of(0);
    const float log[2] = {logs[row], logs[row + 8]}, row_sum[2] = {row_sums[row], row_sums[row + 8]};

    float sums[WIDTH / 8][4] = {};
    begin_pair(0, k, k_s, v, v_s, 0, end);
    for (int s = 0, now = 0; s < end; s += STEP, now ^= 1) {
        finish_copies();
        __syncthreads();
        begin_pair(now ^ 1, k, k_s, v, v_s, s + STEP, end);
        float c[STEP / 8][4], dp[STEP / 8][4];
        compare(c, own_q, tile(now, 0));
        compare(dp, own_dy, tile(now, 1));
        bool all_allowed = rules.allow_all(first, s + STEP - 1);
#if DROPOUT
        unsigned kept = kept_of_queries(rules, first, s);
#endif
        FOR_EACH_NUMBER(n, i) {
            int query = first + row_of(i), key = s + column_of(n, i);
            float p = all_allowed || rules.may_attend(query, key) ? exp2f(c[n][i] * scale_2 - log[i / 2]) : 0;
#if DROPOUT
            dp[n][i] = is_kept(kept, n, i) ? dp[n][i] * (float)keep_scale : 0;
#endif
            c[n][i] = p * (dp[n][i] - row_sum[i / 2]);  // dS
        }
        add_weighted(sums, c, tile(now, 0));
    }
    store_rows(dq, sums, scale, scale, head, heads, first, queries);
}

// dV = P^T dO and dK = dS^T Q / sqrt(D): keys and values stay, queries and dO pass. Everything is transposed: rows are
// keys, columns are queries.
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
    unsigned own_k[WIDTH / 16][4], own_v[WIDTH / 16][4];
    keep_rows(own_k, k + b * k_b + h * k_h, k_s, first, keys);
    keep_rows(own_v, v + b * v_b + h * v_h, v_s, first, keys);
    const long long padded = (queries + ROWS - 1) / ROWS * ROWS;
    logs += head * padded;
    row_sums += head * padded;

    float sums_k[WIDTH / 8][4] = {}, sums_v[WIDTH / 8][4] = {};
    int begin = max(0, first - (int)ahead) / STEP * STEP;  // the first query that sees one of these keys
    begin_pair(0, q, q_t, dy, dy_t, begin, queries);
    for (int t = begin, now = 0; t < queries; t += STEP, now ^= 1) {
        finish_copies();
        __syncthreads();
        begin_pair(now ^ 1, q, q_t, dy, dy_t, t + STEP, queries);
        float c[STEP / 8][4], dp[STEP / 8][4];
        compare(c, own_k, tile(now, 0));
        compare(dp, own_v, tile(now, 1));
        bool all_allowed = rules.allow_all(t, first + ROWS - 1);
#if DROPOUT
        unsigned kept = kept_of_keys(rules, first, t);
#endif
        FOR_EACH_NUMBER(n, i) {
            int query = t + column_of(n, i), key = first + row_of(i);
            float p = all_allowed || rules.may_attend(query, key) ? exp2f(c[n][i] * scale_2 - logs[query]) : 0;
            c[n][i] = p;
#if DROPOUT
            if (!is_kept(kept, n, i)) c[n][i] = 0;
            dp[n][i] = is_kept(kept, n, i) ? dp[n][i] * (float)keep_scale : 0;
#endif
            dp[n][i] = p * (dp[n][i] - row_sums[query]);  // dS
        }
        add_weighted(sums_v, c, tile(now, 1));
        add_weighted(sums_k, dp, tile(now, 0));
    }
    store_rows(dk, sums_k, scale, scale, head, heads, first, keys);
    store_rows(dv, sums_v, keep_scale, keep_scale, head, heads, first, keys);
}
