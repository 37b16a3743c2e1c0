// The building blocks of flash_forward.cu and flash_backward.cu.
//
// A block has 4 warps and takes 64 rows of one matrix (queries, say), 16 for each warp, which stay in registers. The
// rows of two other matrices (keys and values) pass through shared memory in tiles of STEP rows: while one pair of
// tiles is multiplied, the next pair is fetched. The products c[n][i] are spread over a warp as described in
// tensor_cores.cuh, where n numbers the matrices C side by side: their rows are the rows that stay, their columns the
// rows that pass.
//
// Powers of two instead of e: e^x = 2^(x log2(e)), and the GPU has an instruction for 2^x.
//
// Compiled for WIDTH (the head's D), STEP (16, 32 or 64), and DROPOUT (0 or 1).

#define ROWS 64
#define LENGTH (WIDTH + 8)  // of a row in shared memory; the padding puts 8 rows into different banks
#define FOR_EACH_NUMBER(n, i)                            \
    _Pragma("unroll") for (int n = 0; n < STEP / 8; n++) \
        _Pragma("unroll") for (int i = 0; i < 4; i++)
#define LOG2_E 1.4426950408889634

typedef bf16 Row[LENGTH];
__align__(16) __shared__ Row tiles[4 * STEP];  // two pairs

__device__ __forceinline__ Row* tile(int pair, int which) { return tiles + (2 * pair + which) * STEP; }

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000); }

// The row and the column of this thread's number c[n][i].
__device__ __forceinline__ int row_of(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 * 8; }
__device__ __forceinline__ int column_of(int n, int i) { return n * 8 + threadIdx.x % 4 * 2 + i % 2; }

// Begin to fetch `count` rows of a matrix, from `first` on; from row `end` on they are zeros.
__device__ __forceinline__ void begin_rows(Row* to, int count, const bf16* matrix, long long stride, int first,
                                           int end) {
    for (int i = threadIdx.x; i < count * (WIDTH / 8); i += 128) {
        int row = i / (WIDTH / 8), column = i % (WIDTH / 8) * 8;
        bool is_there = first + row < end;
        begin_copy(&to[row][column], matrix + (is_there ? first + row : 0) * stride + column, is_there);
    }
}

// Begin to fetch a pair of tiles of two matrices, if any rows are left.
__device__ __forceinline__ void begin_pair(int pair, const bf16* x, long long x_stride, const bf16* y,
                                           long long y_stride, int first, int end) {
    if (first >= end) return;
    begin_rows(tile(pair, 0), STEP, x, x_stride, first, end);
    begin_rows(tile(pair, 1), STEP, y, y_stride, first, end);
}

// Fetch the 64 rows that stay, from `first` on, 16 for each warp.
__device__ __forceinline__ void keep_rows(unsigned (*own)[4], const bf16* matrix, long long stride, int first,
                                          int end) {
    begin_rows(tiles, ROWS, matrix, stride, first, end);
    finish_copies();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) load_first(own[k], &tiles[threadIdx.x / 32 * 16][k * 16], LENGTH);
    __syncthreads();
}

// c = (rows that stay) (rows of a tile)^T: the dot products of all pairs.
__device__ __forceinline__ void compare(float (*c)[4], const unsigned (*own)[4], const Row* rows) {
#pragma unroll
    for (int n = 0; n < STEP / 8; n += 2) {
        for (int i = 0; i < 4; i++) c[n][i] = c[n + 1][i] = 0;
#pragma unroll
        for (int k = 0; k < WIDTH / 16; k++) {
            unsigned b[4];
            load_second_turned(b, &rows[n * 8][k * 16], LENGTH);
            multiply_add(c[n], own[k], b);
            multiply_add(c[n + 1], own[k], b + 2);
        }
    }
}

// sums += c (rows of a tile): for each row that stays, the sum of the tile's rows weighted by c.
__device__ __forceinline__ void add_weighted(float (*sums)[4], const float (*c)[4], const Row* rows) {
#pragma unroll
    for (int k = 0; k < STEP / 16; k++) {
        const float *left = c[2 * k], *right = c[2 * k + 1];
        unsigned a[4] = {rounded(left[0], left[1]), rounded(left[2], left[3]),
                         rounded(right[0], right[1]), rounded(right[2], right[3])};
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n += 2) {
            unsigned b[4];
            load_second(b, &rows[k * 16][n * 8], LENGTH);
            multiply_add(sums[n], a, b);
            multiply_add(sums[n + 1], a, b + 2);
        }
    }
}

// Write the sums of this head to an array (B, rows, H, D), multiplied by one factor for each of a thread's two rows.
__device__ __forceinline__ void store_rows(bf16* out, const float (*sums)[4], float factor, float factor_8_below,
                                           long long head, long long heads, int first, int end) {
    out += (head / heads * end * heads + head % heads) * WIDTH;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        int row = first + row_of(i);
        float by = i ? factor_8_below : factor;
        if (row >= end) break;
        unsigned* pairs = (unsigned*)(out + row * heads * WIDTH + column_of(0, 0));
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) pairs[n * 4] = rounded(sums[n][i] * by, sums[n][i + 1] * by);
    }
}

// Which keys a query may attend to, and which weights are dropped.
struct Rules {
    int keys, ahead;  // query t sees the keys s <= t + ahead
    const bool* mask;
    long long mask_s;
    unsigned long long first_element, random_key;
    unsigned drop_below;

    __device__ __forceinline__ bool may_attend(int query, int key) const {
        return key < keys && key <= query + ahead && (!mask || mask[key * mask_s]);
    }

    // Whether all queries from first_query on may attend to all keys up to last_key.
    __device__ __forceinline__ bool allow_all(int first_query, int last_key) const {
        return !mask && last_key < keys && last_key <= first_query + ahead;
    }

    __device__ __forceinline__ unsigned long long element(int query, int key) const {
        return first_element + query * (long long)keys + key;
    }
};

// Which of a thread's numbers c[n][i] dropout keeps, as bits 4 n + i, where queries stay and keys pass by.
//
// Four neighbouring keys share one call of Philox (philox.cuh), if S is a multiple of 4. Two threads hold two rows of
// the same four keys: each computes the words of one row, and gives the other thread its half.
__device__ __forceinline__ unsigned kept_of_queries(const Rules& rules, int first, int s) {
    unsigned kept = 0;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
        unsigned bits[4];
        if (rules.keys % 4 == 0) {
            bool is_odd = threadIdx.x % 2;
            int query = first + row_of(is_odd ? 2 : 0), key = s + n * 8 + threadIdx.x % 4 / 2 * 4;
            Words drawn = random_bits_of_four(rules.random_key, rules.element(query, key) / 4);
            unsigned left = __shfl_xor_sync(~0u, is_odd ? drawn.at[0] : drawn.at[2], 1);
            unsigned right = __shfl_xor_sync(~0u, is_odd ? drawn.at[1] : drawn.at[3], 1);
            bits[0] = is_odd ? left : drawn.at[0];
            bits[1] = is_odd ? right : drawn.at[1];
            bits[2] = is_odd ? drawn.at[2] : left;
            bits[3] = is_odd ? drawn.at[3] : right;
        } else {
            for (int i = 0; i < 4; i++)
                bits[i] = random_bits(rules.random_key, rules.element(first + row_of(i), s + column_of(n, i)));
        }
#pragma unroll
        for (int i = 0; i < 4; i++) kept |= (unsigned)(bits[i] >= rules.drop_below) << (4 * n + i);
    }
    return kept;
}

// The same where keys stay and queries pass. Here the four threads that hold the same queries with four neighbouring
// keys share their calls: each computes the words for one of their four numbers.
__device__ __forceinline__ unsigned kept_of_keys(const Rules& rules, int first, int t) {
    unsigned kept = 0;
    int own = threadIdx.x / 4 % 4;  // which of the four keys is this thread's, and the number whose words it computes
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
        if (rules.keys % 4 == 0) {
            int query = t + column_of(n, own), key = first + row_of(own) - own;
            Words drawn = random_bits_of_four(rules.random_key, rules.element(query, key) / 4);
#pragma unroll
            for (int apart = 0; apart < 4; apart++) {  // exchange a word with another thread
                unsigned bits = __shfl_xor_sync(~0u, word(drawn, own ^ apart), 4 * apart);
                kept |= (unsigned)(bits >= rules.drop_below) << (4 * n + (own ^ apart));
            }
        } else {
            for (int i = 0; i < 4; i++) {
                unsigned bits = random_bits(rules.random_key, rules.element(t + column_of(n, i), first + row_of(i)));
                kept |= (unsigned)(bits >= rules.drop_below) << (4 * n + i);
            }
        }
    }
    return kept;
}

// Whether a number is kept.
__device__ __forceinline__ bool is_kept(unsigned kept, int n, int i) { return kept >> (4 * n + i) & 1; }
