// Attention of one new position for each of B texts: queries, keys and values of that position -> the cache, and the
// weighted mean of all values in it. A block takes one head of queries of one text. WIDTH is D, X the cache's type, and
// WARPS the number of warps in a block.
//
// LANES threads together, a *team*, read the key and the value of one position: each takes every LANES-th pack. Team i
// of n takes the positions i, i + n, i + 2 n, ..., and computes softmax piece by piece, as in flash_attention.py: it
// keeps the largest score so far m, the sum z of e^(score - m), and the sum o of e^(score - m) * value. At the end, all
// teams are rescaled to the largest m of all, and their z and o are added up, always in the same order.

constexpr int TEAMS = WARPS * 32 / LANES;         // per block
constexpr int PACKS = WIDTH / PACK;               // per key or value
constexpr int OWN = (PACKS + LANES - 1) / LANES;  // how many of them one thread has
constexpr int LOADS = 4;                          // positions that a team requests before it waits for the first

// Number i of a query or key: x[i], normalised to mean square 1 if there are gains, and rotated as functional/rotary.py
// describes if there are factors. r = 1 / sqrt(mean(x^2) + eps).
__device__ __forceinline__ A prepared(const A* x, int i, A r, const A* gains, const A* factors) {
    A value = gains ? x[i] * r * gains[i] : x[i];
    if (!factors) return value;
    int other = i < WIDTH / 2 ? i + WIDTH / 2 : i - WIDTH / 2;
    return value * factors[i] + (gains ? x[other] * r * gains[other] : x[other]) * factors[WIDTH + i];
}

// joint: (B, heads + 2 kv_heads, D), the queries, keys and values. gains: (2, D) of queries and keys, or null. turns:
// (T, 2, D), the factors of the rotation, or null. y: (B, heads, D). both: the cache (B, 2, kv_heads, capacity, D).
// With few texts there are fewer blocks than multiprocessors, so one block may use all registers of a multiprocessor:
// 128 in each of 512 threads. Small blocks share them.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 16 / WARPS) decode_attention(
    long long heads, long long kv_heads, long long capacity, const A* joint, A scale, const A* gains, A eps,
    const A* turns, A* y, const long long* inputs, X* both) {
    __shared__ A query[WIDTH];
    __align__(16) __shared__ X newest[2][WIDTH];  // key and value of the new position, as they will be in the cache
    __shared__ A of_warps[WARPS], parts[WARPS][WIDTH];
    long long position = inputs[0];
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    long long b = blockIdx.x / heads, head = blockIdx.x % heads, group = heads / kv_heads, kv_head = head / group;
    const A* vectors = joint + b * (heads + 2 * kv_heads) * WIDTH;
    X* keys = both + (b * 2 * kv_heads + kv_head) * capacity * WIDTH;
    X* values = keys + kv_heads * capacity * WIDTH;

    // Warp 0 prepares the query, warp 1 the key. The value stays as it is.
    if (warp < 2) {
        const A* x = vectors + (warp == 0 ? head : heads + kv_head) * WIDTH;
        A squares = 0;
        for (int i = lane; i < WIDTH; i += 32) squares += x[i] * x[i];
        A r = 1 / sqrt(sum_of_warp(squares) / WIDTH + eps);
        const A* own_gains = gains ? gains + warp * WIDTH : nullptr;
        const A* factors = turns ? turns + position * 2 * WIDTH : nullptr;
        for (int i = lane; i < WIDTH; i += 32) {
            A value = prepared(x, i, r, own_gains, factors);
            if (warp == 0) query[i] = value * scale;
            else newest[0][i] = (X)value;
        }
    } else if (warp == 2) {
        for (int i = lane; i < WIDTH; i += 32) newest[1][i] = (X)vectors[(heads + kv_heads + kv_head) * WIDTH + i];
    }
    __syncthreads();
    // The other heads of the group have computed the same, since they cannot know when it is in the cache.
    if (head % group == 0)
        for (int i = thread; i < 2 * WIDTH; i += WARPS * 32)
            (i < WIDTH ? keys : values)[position * WIDTH + i % WIDTH] = newest[i / WIDTH][i % WIDTH];

    int team = thread / LANES, place = thread % LANES;
    const A infinity = __uint_as_float(0x7f800000);
    A m = sizeof(A) == 8 ? -1e308 : -3e38;  // finite, because -infinity - -infinity would be NaN
    A z = 0;
    Pack<A> q[OWN], o[OWN] = {};
    for (int n = 0; n < OWN; n++)
        for (int k = 0; k < PACK; k++) {
            int i = (place + n * LANES) * PACK + k;
            q[n].at[k] = i < WIDTH ? query[i] : (A)0;
        }
    // A whole warp leaves the loop at once, when its first team has no position left.
    for (long long first = 0; first + warp * (32 / LANES) <= position; first += LOADS * TEAMS) {
        Pack<X> k[LOADS][OWN], v[LOADS][OWN];
        for (int j = 0; j < LOADS; j++) {
            long long s = first + j * TEAMS + team;
            const Pack<X>* key = (const Pack<X>*)(s == position ? newest[0] : keys + s * WIDTH);
            const Pack<X>* value = (const Pack<X>*)(s == position ? newest[1] : values + s * WIDTH);
            for (int n = 0; n < OWN; n++) {
                k[j][n] = v[j][n] = {};
                int i = place + n * LANES;
                if (s <= position && i < PACKS) {
                    k[j][n] = key[i];
                    v[j][n] = value[i];
                }
            }
        }
        A scores[LOADS], before = m;
        for (int j = 0; j < LOADS; j++) {
            A score = 0;
            for (int n = 0; n < OWN; n++)
                for (int i = 0; i < PACK; i++) score += q[n].at[i] * (A)k[j][n].at[i];
            for (int distance = 1; distance < LANES; distance *= 2) score += __shfl_xor_sync(~0u, score, distance);
            scores[j] = first + j * TEAMS + team <= position ? score : -infinity;
            m = scores[j] > m ? scores[j] : m;
        }
        A smaller = exp(before - m);
        z *= smaller;
        for (int n = 0; n < OWN; n++)
            for (int i = 0; i < PACK; i++) o[n].at[i] *= smaller;
        for (int j = 0; j < LOADS; j++) {
            A weight = exp(scores[j] - m);
            z += weight;
            for (int n = 0; n < OWN; n++)
                for (int i = 0; i < PACK; i++) o[n].at[i] += weight * (A)v[j][n].at[i];
        }
    }

    // The largest m of all teams.
    A largest = max_of_warp(m);
    if (lane == 0) of_warps[warp] = largest;
    __syncthreads();
    largest = max_of_warp(of_warps[lane % WARPS]);
    __syncthreads();

    // The sums over the teams of each warp, and then over the warps.
    A smaller = exp(m - largest);
    z *= smaller;
    for (int distance = LANES; distance < 32; distance *= 2) z += __shfl_xor_sync(~0u, z, distance);
    if (lane == 0) of_warps[warp] = z;
    for (int n = 0; n < OWN; n++)
        for (int i = 0; i < PACK; i++) {
            A sum = o[n].at[i] * smaller;
            for (int distance = LANES; distance < 32; distance *= 2) sum += __shfl_xor_sync(~0u, sum, distance);
            int column = (place + n * LANES) * PACK + i;
            if (lane < LANES && column < WIDTH) parts[warp][column] = sum;
        }
    __syncthreads();
    for (int i = thread; i < WIDTH; i += WARPS * 32) {
        A sum = 0, total = 0;
        for (int w = 0; w < WARPS; w++) {
            sum += parts[w][i];
            total += of_warps[w];
        }
        y[(b * heads + head) * WIDTH + i] = sum / total;
    }
}
