// Attention without a (T, S) array, forward; the formulas are in functional/attention.py, the idea in
// flash_attention.py, the building blocks in flash_attention.cuh; attention_naive.cu does the same in a dozen lines. A
// block takes 64 or 128 queries; keys and values come in tiles.
#include "philox.cuh"
#include "tensor_cores.cuh"
#include "flash_attention.cuh"

// O, and log2(sum_s e^S) of each row, from which backward recomputes P; infinity for rows that see no key.
extern "C" __global__ void __launch_bounds__(THREADS, WIDTH > 64 ? 1 : 16 / WARPS - DROPOUT) flash_forward(
    const bf16* q, long long q_b, long long q_h, long long q_t, const bf16* k, long long k_b, long long k_h,
    long long k_s, const bf16* v, long long v_b, long long v_h, long long v_s, const bool* mask, long long mask_b,
    long long mask_s, bf16* out, float* logs, long long heads, long long queries, long long keys, long long ahead,
    float scale, RoundKeys round_keys, long long drop_below, float keep_scale) {
    long long head = blockIdx.x, b = head / heads, h = head % heads;
    int first = (gridDim.y - 1 - blockIdx.y) * ROWS;  // the last queries, which see the most keys, start first
    int end = min(keys, first + ROWS + ahead);
    const float scale_2 = scale * LOG2_E, minus_infinity = -infinity();
    Rules rules = {(int)keys, (int)ahead, mask ? mask + b * mask_b : mask, mask_s,
                   (unsigned long long)(head * queries * keys), round_keys, (unsigned)drop_below};
    k += b * k_b + h * k_h;
    v += b * v_b + h * v_h;
    unsigned a[WIDTH / 16][4];
    load_fragments(a, q + b * q_b + h * q_h, q_t, first, queries);

    float sums[WIDTH / 8][4] = {}, row_max[2] = {minus_infinity, minus_infinity}, row_sum[2] = {};
    // The last key that all of this warp's queries see, and the last that any sees; a warp without queries skips all
    // tiles.
    const int all_see = rules.last_key(first + first_row_of_warp());
    const int any_sees = first + first_row_of_warp() < queries ? rules.last_key(first + first_row_of_warp() + 15) : -1;
    copy_tiles(0, k, k_s, v, v_s, 0, end);
    for (int s = 0, buffer = 0; s < end; s += TILE, buffer ^= 1) {
        cp_async_wait_all();
        __syncthreads();
        copy_tiles(buffer ^ 1, k, k_s, v, v_s, s + TILE, end);
        if (s > any_sees) continue;
        float c[TILE / 8][4];
        matmul_transposed(c, a, tiles[buffer][0]);
        if (rules.mask || s + TILE - 1 > all_see) replace_masked(c, rules, first, s, minus_infinity);
#pragma unroll
        for (int half = 0; half < 4; half += 2) {  // the two rows of this thread
            float& m = row_max[half / 2];
            float before = m * scale_2;
#pragma unroll
            for (int n = 0; n < TILE / 8; n++) m = fmaxf(m, fmaxf(c[n][half], c[n][half + 1]));
            m = max_of_row(m);
            float shift = m == minus_infinity ? 0 : m * scale_2;
            float rescale = ex2(before - shift);  // for the sums so far, which are relative to the previous maximum
            row_sum[half / 2] *= rescale;
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
                sums[n][half] *= rescale;
                sums[n][half + 1] *= rescale;
            }
#pragma unroll
            for (int n = 0; n < TILE / 8; n++) {
                c[n][half] = ex2(c[n][half] * scale_2 - shift);
                c[n][half + 1] = ex2(c[n][half + 1] * scale_2 - shift);
                row_sum[half / 2] += c[n][half] + c[n][half + 1];
            }
        }
#if DROPOUT
        unsigned kept = keep_mask(rules, first, s);
        FOR_EACH_ELEMENT(n, i)
            if (!is_kept(kept, n, i)) c[n][i] = 0;
#endif
        matmul_add(sums, c, tiles[buffer][1]);
    }

    float factor[2];
    for (int half = 0; half < 2; half++) {
        float sum = sum_of_row(row_sum[half]);
        int query = first + row_of(2 * half);
        bool is_empty = query >= queries || sum == 0;
        factor[half] = is_empty ? 0 : keep_scale / sum;
        if (threadIdx.x % 4 == 0)
            logs[head * padded(queries) + query] = is_empty ? infinity() : row_max[half] * scale_2 + log2f(sum);
    }
    store_rows(out, heads * WIDTH, sums, factor[0], factor[1], head, heads, first, queries);
}
