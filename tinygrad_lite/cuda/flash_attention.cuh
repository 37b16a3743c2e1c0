// The building blocks of flash_forward.cu and flash_backward.cu.
//
// A block has WARPS warps and computes 16 rows of the result in each of them. For these rows it keeps fragments of one
// or two matrices (queries, say) in registers. The rows of two other matrices (keys and values) come through shared
// memory in tiles of TILE rows. A thread's elements c[n][i] of a product are laid out as described in tensor_cores.cuh,
// where n counts the matrices C side by side: their rows are the block's rows, their columns the rows of the tile.
//
// Powers of 2 replace those of e: e^x = 2^(x log2(e)), and the GPU has an instruction for 2^x.
//
// Compiled for WIDTH (the head's D), TILE (16, 32 or 64), WARPS (4 or 8), and DROPOUT (0 or 1).

#define ROWS (16 * WARPS)
#define THREADS (32 * WARPS)
#define FOR_EACH_ELEMENT(n, i)                           \
    _Pragma("unroll") for (int n = 0; n < TILE / 8; n++) \
        _Pragma("unroll") for (int i = 0; i < 4; i++)
#define LOG2_E 1.4426950408889634f

// Shared memory has 32 banks of 4 bytes. ldmatrix reads 8 rows of 16 bytes at once, which takes one step only if they
// lie in 32 different banks. Rows of 64 elements would all begin in the same bank (a bank conflict: 8 steps); padding
// by 8 elements, or 4 banks, puts each row into the banks after those of the row above.
#define STRIDE (WIDTH + 8)
typedef bf16 Row[STRIDE];

// While the tiles of one buffer are multiplied, cp.async fills the other one. One barrier per tile is enough: each
// thread first waits for its own copies, so after the barrier all of this tile has arrived, and since all threads are
// done with the previous tile, its buffer may be filled again.
__align__(16) __shared__ Row tiles[2][2][TILE];  // buffer, matrix, row

// The room for a head's queries in L and in the row sums: a multiple of any kernel's ROWS.
__device__ __forceinline__ long long padded(long long queries) { return (queries + 127) / 128 * 128; }

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000); }

// The row and the column of this thread's element c[n][i] in the block's rows and the tile.
__device__ __forceinline__ int first_row_of_warp() { return threadIdx.x / 32 * 16; }
__device__ __forceinline__ int row_of(int i) { return first_row_of_warp() + threadIdx.x % 32 / 4 + i / 2 * 8; }
__device__ __forceinline__ int column_of(int n, int i) { return n * 8 + threadIdx.x % 4 * 2 + i % 2; }

// Start copying `count` rows of a matrix, from `first` on; from row `end` on they are zeros. Neighbouring threads read
// neighbouring addresses (coalesced).
__device__ __forceinline__ void copy_rows(Row* to, int count, const bf16* matrix, long long stride, int first,
                                          int end) {
    const int at_once = THREADS / (WIDTH / 8);  // rows that the block copies at once, 16 bytes in each thread
    int row = threadIdx.x / (WIDTH / 8), column = threadIdx.x % (WIDTH / 8) * 8;
    const bf16* from = matrix + (first + row) * stride + column;
#pragma unroll
    for (int i = 0; i < count; i += at_once) {
        cp_async(&to[row + i][column], from, first + row + i < end);
        from += at_once * stride;
    }
}

// Start copying a tile of each of two matrices, if any rows are left.
__device__ __forceinline__ void copy_tiles(int buffer, const bf16* x, long long x_stride, const bf16* y,
                                           long long y_stride, int first, int end) {
    if (first >= end) return;
    copy_rows(tiles[buffer][0], TILE, x, x_stride, first, end);
    copy_rows(tiles[buffer][1], TILE, y, y_stride, first, end);
}

// Load the fragments of this warp's 16 rows of a matrix in which the block's rows begin at `first`.
__device__ __forceinline__ void load_fragments(unsigned (*a)[4], const bf16* matrix, long long stride, int first,
                                               int end) {
    Row* rows = tiles[0][0];
    copy_rows(rows, ROWS, matrix, stride, first, end);
    cp_async_wait_all();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) load_fragment_a(a[k], &rows[first_row_of_warp()][k * 16], STRIDE);
    __syncthreads();
}

// C = A B^T for a tile B: the dot products of the warp's rows with those of the tile.
__device__ __forceinline__ void matmul_transposed(float (*c)[4], const unsigned (*a)[4], const Row* tile) {
#pragma unroll
    for (int n = 0; n < TILE / 8; n += 2) {
        for (int i = 0; i < 4; i++) c[n][i] = c[n + 1][i] = 0;
#pragma unroll
        for (int k = 0; k < WIDTH / 16; k++) {
            unsigned b[4];
            load_fragment_b_transposed(b, &tile[n * 8][k * 16], STRIDE);
            mma(c[n], a[k], b);
            mma(c[n + 1], a[k], b + 2);
        }
    }
}

// SUMS += C B for a tile B: for each row of the warp, the sum of the tile's rows weighted by C.
__device__ __forceinline__ void matmul_add(float (*sums)[4], const float (*c)[4], const Row* tile) {
#pragma unroll
    for (int k = 0; k < TILE / 16; k++) {
        const float *left = c[2 * k], *right = c[2 * k + 1];
        unsigned a[4] = {to_bf16x2(left[0], left[1]), to_bf16x2(left[2], left[3]),
                         to_bf16x2(right[0], right[1]), to_bf16x2(right[2], right[3])};
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n += 2) {
            unsigned b[4];
            load_fragment_b(b, &tile[k * 16][n * 8], STRIDE);
            mma(sums[n], a, b);
            mma(sums[n + 1], a, b + 2);
        }
    }
}

// Write the sums of this head, multiplied by one factor for each of a thread's two rows, to an array (B, rows, H, D) in
// which a row of all heads begins `stride` elements after the previous one.
__device__ __forceinline__ void store_rows(bf16* out, long long stride, const float (*sums)[4], float factor,
                                           float factor_8_below, long long head, long long heads, int first, int end) {
    out += head / heads * end * stride + head % heads * WIDTH;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        int row = first + row_of(i);
        float by = i ? factor_8_below : factor;
        if (row >= end) break;
        unsigned* pairs = (unsigned*)(out + row * stride + column_of(0, 0));
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) pairs[n * 4] = to_bf16x2(sums[n][i] * by, sums[n][i + 1] * by);
    }
}

// Which keys a query may attend to, and which weights are dropped.
struct Rules {
    int keys, ahead;  // query t sees the keys s <= t + ahead
    const bool* mask;
    long long mask_s;
    unsigned long long first_element;
    RoundKeys round_keys;
    unsigned drop_below;

    // The last key that a query sees.
    __device__ __forceinline__ int last_key(int query) const { return min(keys - 1, query + ahead); }

    // Whether the mask excludes a key; beyond the last key, whether it excludes the last one. (A load that all threads
    // perform takes fewer instructions than one that depends on a condition.)
    __device__ __forceinline__ bool is_masked(int key) const { return mask && !mask[min(key, keys - 1) * mask_s]; }

    __device__ __forceinline__ unsigned long long element(int query, int key) const {
        return first_element + query * (long long)keys + key;
    }
};

// Replace the elements whose query (row) may not attend to their key (column).
__device__ __forceinline__ void replace_masked(float (*c)[4], const Rules& rules, int first, int s, float value) {
    const int last[2] = {rules.last_key(first + row_of(0)), rules.last_key(first + row_of(2))};
    FOR_EACH_ELEMENT(n, i)
        if (s + column_of(n, i) > last[i / 2]) c[n][i] = value;
    if (!rules.mask) return;
#pragma unroll
    for (int n = 0; n < TILE / 8; n++)
        for (int i = 0; i < 2; i++) {
            bool is_masked = rules.is_masked(s + column_of(n, i));
            c[n][i] = is_masked ? value : c[n][i];
            c[n][i + 2] = is_masked ? value : c[n][i + 2];
        }
}

// Which of a thread's elements c[n][i] dropout keeps, as bits 4 n + i, where rows are queries and columns are keys.
//
// Eight neighbouring keys share one call of Philox (philox.cuh), if S is a multiple of 8. Four threads hold two rows of
// 16 keys, two neighbours in each of four places (n, row). Each thread makes the call for one of these places, and then
// the four exchange words, so that each has one word of every call: the one for its own two keys.
__device__ __forceinline__ unsigned keep_mask(const Rules& rules, int first, int s) {
    unsigned kept = 0;
    int own = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < TILE / 8; n += 2) {
        if (rules.keys % 8 == 0) {
            int query = first + row_of(own % 2 * 2), key = s + (n + own / 2) * 8;
            Words drawn = random_words(rules.round_keys, rules.element(query, key) / 8);
#pragma unroll
            for (int apart = 0; apart < 4; apart++) {
                int place = own ^ apart, at = 4 * (n + place / 2) + place % 2 * 2;
                unsigned bits = __shfl_xor_sync(~0u, word(drawn, place), apart);
                for (int i = 0; i < 2; i++) kept |= (unsigned)(half_of(bits, i) >= rules.drop_below) << (at + i);
            }
        } else {
            for (int i = 0; i < 8; i++) {
                int query = first + row_of(i % 4), key = s + column_of(n + i / 4, i % 4);
                unsigned bits = random_bits(rules.round_keys, rules.element(query, key));
                kept |= (unsigned)(bits >= rules.drop_below) << (4 * n + i);
            }
        }
    }
    return kept;
}

// The same where rows are keys and columns are queries. Here eight threads hold eight neighbouring keys of the same
// queries, in eight places (n, i), and each makes the call for one of these.
__device__ __forceinline__ unsigned keep_mask_transposed(const Rules& rules, int first, int t) {
    unsigned kept = 0;
    int own = threadIdx.x / 4 % 8;  // which of the eight keys is this thread's, and the place whose words it computes
#pragma unroll
    for (int n = 0; n < TILE / 8; n += 2) {
        if (rules.keys % 8 == 0) {
            int query = t + column_of(n + own / 4, own % 4), key = first + row_of(own % 4) - own;
            Words drawn = random_words(rules.round_keys, rules.element(query, key) / 8);
#pragma unroll
            for (int apart = 0; apart < 8; apart++) {
                int place = own ^ apart;
                unsigned bits = half_of(__shfl_xor_sync(~0u, word(drawn, place / 2), 4 * apart), own % 2);
                kept |= (unsigned)(bits >= rules.drop_below) << (4 * n + place);
            }
        } else {
            for (int i = 0; i < 8; i++) {
                int query = t + column_of(n + i / 4, i % 4), key = first + row_of(i % 4);
                unsigned bits = random_bits(rules.round_keys, rules.element(query, key));
                kept |= (unsigned)(bits >= rules.drop_below) << (4 * n + i);
            }
        }
    }
    return kept;
}

// Whether an element is kept.
__device__ __forceinline__ bool is_kept(unsigned kept, int n, int i) { return kept >> (4 * n + i) & 1; }
