// The linear map of decode.cu for many texts, on the tensor cores (tensor_cores.cuh). The weights are bfloat16; all
// other numbers, and all sums, are float.
//
// In decode.cu each row of W reads the numbers of every text again: for 32 texts, 64 times the bytes of the row itself.
// Here a block takes a tile of the product, 16 ROW_TILES rows of W by 8 TEXT_TILES texts, and reads each of their
// numbers once. An mma multiplies 16 rows (A) by 8 texts (B), 16 columns at a time.
//
// Split-K: a matrix of 768 rows has only 48 tiles of 16, too few for 132 multiprocessors to have enough warps. So all
// warps of a block take the same tile, and split the columns, K: warp w multiplies the pieces w, w + WARPS, ... of 32
// columns each. Then their sums are added up in shared memory, always in the same order. As no two warps need the same
// number, each thread loads its elements of the fragments straight into its registers.
//
// The order of the columns: in a fragment a thread has pairs of neighbours, but fetching 16 bytes at once takes fewer
// instructions. A dot product may be added up in any order, if both factors have the same one. So of the 32 columns of
// a piece, a thread takes 8 neighbours, in A as in B, and these are its pairs for two mma: columns 0, 1 and 2, 3 for
// the first, 4, 5 and 6, 7 for the second.
//
// Three parts: mma takes x in bfloat16, too, of whose 24 bits that keeps 8. But if x is rounded, and so is the rest, and
// what then remains, the three have all bits of x, and each A is multiplied by all three. (Two would leave an error of
// 2^-17 |x|. A key that differs by so little is often rounded to another number of the cache, by 2^-9.) It costs
// little, since the tensor cores wait for the memory anyway.
#include "tensor_cores.cuh"
#include "decode.cuh"

constexpr int PARTS = 3;
// Pieces under way in a thread. Each takes 8 registers for every tile.
constexpr int AHEAD = ROW_TILES + TEXT_TILES < 8 ? 12 / (ROW_TILES + TEXT_TILES) : 2;

// What a thread reads: rows lane / 4 and lane / 4 + 8 of each tile of W, and text lane / 4 of each tile of x. It knows by
// their number of packs where they begin, because addresses would take twice the registers.
struct Source {
    const Pack<unsigned>* weight;  // 8 weights in a pack: 4 pairs
    const Pack<float>* x;          // 4 numbers
    unsigned rows[ROW_TILES][2], texts[TEXT_TILES];
};

// Its 8 columns of a piece.
struct Piece {
    Pack<unsigned> rows[ROW_TILES][2];
    Pack<float> texts[TEXT_TILES][2];
};

// Start loading the columns from 8 k on. Beyond the last, 8 `end`, there are zeros, which add nothing.
__device__ __forceinline__ void load(Piece& piece, const Source& from, int k, int end) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
            piece.rows[t][half] = k < end ? from.weight[from.rows[t][half] + k] : Pack<unsigned>{};
#pragma unroll
        for (int n = 0; n < TEXT_TILES; n++)
            piece.texts[n][half] = k < end ? from.x[from.texts[n] + 2 * k + half] : Pack<float>{};
    }
}

// sums[t][n] += the piece's product for row tile t and text tile n; squares[n] += x . x for this thread's columns.
__device__ __forceinline__ void multiply(const Piece& piece, float (*sums)[TEXT_TILES][4], float* squares) {
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int n = 0; n < TEXT_TILES; n++) {
            unsigned b[PARTS][2];  // a fragment of each part
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float first = piece.texts[n][half].at[2 * i], second = piece.texts[n][half].at[2 * i + 1];
                squares[n] += first * first + second * second;
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    unsigned pair = b[part][i] = to_bf16x2(first, second);
                    first -= __uint_as_float(pair << 16);  // exact; a bfloat16 is the upper half of a float
                    second -= __uint_as_float(pair & 0xffff0000);
                }
            }
#pragma unroll
            for (int part = 0; part < PARTS; part++)
#pragma unroll
                for (int t = 0; t < ROW_TILES; t++) {
                    const unsigned *above = piece.rows[t][0].at + 2 * half, *below = piece.rows[t][1].at + 2 * half;
                    unsigned a[4] = {above[0], below[0], above[1], below[1]};
                    mma(sums[t][n], a, b[part]);
                }
        }
}

// The arguments of decode_linear. For swiglu, the upper 8 rows of a tile are rows of the gate, and the lower 8 those
// that they belong to, so a thread has both; a tile then gives 8 results for each text instead of 16.
extern "C" __global__ void __launch_bounds__(32 * WARPS) decode_linear_tiles(
    long long batch, long long results, long long width, const float* x, const bf16* weight, const float* shift,
    long long normed, float eps, long long activation, long long add, float* y) {
    __shared__ Pack<float> of_warps[WARPS][TEXT_TILES][32];   // C of one row tile
    __shared__ float squares_of_warps[WARPS][TEXT_TILES * 8];
    const int lane = threadIdx.x, warp = threadIdx.y;
    const bool gated = activation == SWIGLU;
    const int in_tile = gated ? 8 : 16;  // results
    const long long first_text = blockIdx.x * 8 * TEXT_TILES;
    const long long first_result = blockIdx.y * (long long)in_tile * ROW_TILES + lane / 4;  // of this thread

    Source from = {(const Pack<unsigned>*)weight, (const Pack<float>*)x};
    float shifts[ROW_TILES][2];  // requested now, because they come from memory, too
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++)
        for (int half = 0; half < 2; half++) {  // beyond the last row, or text: the last again
            long long row = min(first_result + t * in_tile + (gated ? 0 : 8 * half), results - 1);
            if (gated && half) row += results;
            from.rows[t][half] = row * (width / 8);
            shifts[t][half] = shift ? shift[row] : 0;
        }
    for (int n = 0; n < TEXT_TILES; n++)
        from.texts[n] = min(first_text + n * 8 + lane / 4, batch - 1) * (width / 4);

    float sums[ROW_TILES][TEXT_TILES][4] = {}, squares[TEXT_TILES] = {};
    Piece pieces[AHEAD];
    const int count = (width + 31) / 32, end = width / 8;
#pragma unroll
    for (int j = 0; j < AHEAD; j++) load(pieces[j], from, (warp + j * WARPS) * 4 + lane % 4, end);
    for (int first = warp; first < count; first += AHEAD * WARPS) {
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int piece = first + j * WARPS;
            if (piece >= count) break;
            multiply(pieces[j], sums, squares);
            load(pieces[j], from, (piece + AHEAD * WARPS) * 4 + lane % 4, end);
        }
    }

    for (int n = 0; n < TEXT_TILES; n++) {
        float sum = sum_of_row(squares[n]);
        if (lane % 4 == 0) squares_of_warps[warp][n * 8 + lane / 4] = sum;
    }
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++) {
        for (int n = 0; n < TEXT_TILES; n++)
            for (int i = 0; i < 4; i++) of_warps[warp][n][lane].at[i] = sums[t][n][i];
        __syncthreads();
        if (warp < TEXT_TILES) {  // warp n adds up text tile n, a thread its elements i of C
            float *out[4], before[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                long long text = first_text + warp * 8 + lane % 4 * 2 + i % 2;
                long long n = first_result + t * in_tile + (gated ? 0 : i / 2 * 8);
                bool is_there = text < batch && n < results && !(gated && i < 2);
                out[i] = is_there ? y + text * results + n : nullptr;
                before[i] = is_there && add ? *out[i] : 0;
            }
            Pack<float> sum = {};
            float square = 0;  // of text lane % 8
            for (int w = 0; w < WARPS; w++) {
                for (int i = 0; i < 4; i++) sum.at[i] += of_warps[w][warp][lane].at[i];
                square += squares_of_warps[w][warp * 8 + lane % 8];
            }
            float of_text = normed ? 1 / sqrt(square / width + eps) : 1;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float r = __shfl_sync(~0u, of_text, lane % 4 * 2 + i % 2);
                float z = sum.at[i] * r + shifts[t][i / 2], gate = sum.at[i % 2] * r + shifts[t][0];
                z = activated(z, gate, activation);
                if (out[i]) *out[i] = before[i] + z;
            }
        }
        __syncthreads();  // before the next tile takes the place of this one
    }
}
