// Cross-entropy; formulas and derivation in functional/cross_entropy.py. A warp takes one row, the V logits z of one
// position. Its 32 threads (lanes) take the packs in turn, so their loads are coalesced. With m the largest logit and s
// the sum of all e^(z - m):
//
//     log q = z - m - log s        q = e^(z - m) / s
//
// Row n begins at z + n * stride. GPT-2's 50,257 logits are stored in rows of 50,304 numbers, so that each row begins
// at an address from which packs can be loaded. A pack must not reach into the 47 numbers after the logits, which are
// undefined: the last V % PACK logits are loaded one by one.

// Packs that a thread loads before it uses the first, so that it waits for memory once, not once per pack.
constexpr int LOADS = PACK == 1 ? 8 : 4;

// e^x for x <= 0. A GPU has an instruction for 2^x; exp(float) takes seven more, for x of any size.
__device__ __forceinline__ float exponential(float x) { return exp2f(x * 1.4426950408889634f); }  // log2(e)
__device__ __forceinline__ double exponential(double x) { return exp(x); }

// The loss of each row, and its m and 1/s for the backward pass, in one pass over the logits. m is only known at the
// end, so each thread uses the largest so far, and when it finds a larger one, multiplies its sum by e^(old m - new m).
//
// A target outside the vocabulary makes the loss NaN, which stops training. Ignored rows are not read.
extern "C" __global__ void cross_entropy_forward(long long rows, long long width, long long stride,
                                                 const X* __restrict__ z, const long long* __restrict__ targets,
                                                 long long ignore_index, A smoothing, A* __restrict__ losses,
                                                 A* __restrict__ largest, A* __restrict__ scales) {
    long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const A infinity = __uint_as_float(0x7f800000);
    long long target = targets[row];
    bool ignored = target == ignore_index;
    if (ignored || target < 0 || target >= width) {
        if (threadIdx.x == 0) {
            losses[row] = scales[row] = ignored ? (A)0 : infinity - infinity;
            largest[row] = 0;
        }
        return;
    }
    z += row * stride;
    int packs = width / PACK;

    A m = sizeof(A) == 8 ? -1e308 : -3e38;  // finite, because -infinity - -infinity would be NaN
    A s = 0;
    double sum = 0;  // of the logits, for label smoothing; double, because V m will be subtracted from it
    for (int first = threadIdx.x; first < packs; first += 32 * LOADS) {
        A v[LOADS * PACK];
        for (int j = 0; j < LOADS; j++) {
            bool there = first + 32 * j < packs;
            Pack<X> p;
            if (there) p = ((const Pack<X>*)z)[first + 32 * j];
            for (int k = 0; k < PACK; k++) v[j * PACK + k] = there ? (A)p.at[k] : -infinity;
        }
        A before = m;
        for (int n = 0; n < LOADS * PACK; n++) m = max(m, v[n]);
        s *= exponential(before - m);
        for (int n = 0; n < LOADS * PACK; n++) s += exponential(v[n] - m);
        if (smoothing != 0) {
            A some = 0;  // of v - m, in A: most GPUs add doubles 64 times slower
            int count = 0;
            for (int n = 0; n < LOADS * PACK; n++)
                if (first + 32 * (n / PACK) < packs) some += v[n] - m, count++;
            sum += (double)some + count * (double)m;
        }
    }
    int last = packs * PACK + threadIdx.x;  // the column of this thread in the incomplete pack
    if (last < width) {
        A v = (A)z[last], before = m;
        m = max(m, v);
        s = s * exponential(before - m) + exponential(v - m);
        sum += (double)v;
    }
    A before = m;
    m = max_of_warp(m);
    s = sum_of_warp(s * exponential(before - m));
    if (smoothing != 0) sum = sum_of_warp(sum);
    if (threadIdx.x != 0) return;

    A loss = log(s) - ((A)z[target] - m);
    if (smoothing != 0) loss = (1 - smoothing) * loss + smoothing * (log(s) - (A)(sum / width - m));
    losses[row] = loss;
    largest[row] = m;
    scales[row] = 1 / s;
}

// The sum of all losses (for the mean, divided by the number of positions not ignored), and that divisor, for the
// backward pass. A single block adds them up, always in the same order.
extern "C" __global__ void cross_entropy_total(long long rows, const A* __restrict__ losses,
                                               const long long* __restrict__ targets, long long ignore_index,
                                               long long mean, A* total, A* divisor) {
    __shared__ A sums[32], counts[32];
    A sum = 0, count = 0;
#pragma unroll 4
    for (long long row = threadIdx.x; row < rows; row += blockDim.x) {
        sum += losses[row];
        count += targets[row] != ignore_index;
    }
    sum = sum_of_warp(sum);
    count = sum_of_warp(count);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    if (lane == 0) {
        sums[warp] = sum;
        counts[warp] = count;
    }
    __syncthreads();
    if (warp != 0) return;
    sum = sum_of_warp(lane < warps ? sums[lane] : (A)0);
    count = sum_of_warp(lane < warps ? counts[lane] : (A)0);
    if (lane == 0) {
        *divisor = mean && count > 0 ? count : (A)1;
        *total = sum / *divisor;
    }
}

// dz = (q - w) dy with the target probabilities w. With a divisor, dy is one number; without one, each row has its own.
// dz has the stride of z, and may be z itself: each thread overwrites only what it has read.
extern "C" __global__ void cross_entropy_backward(long long rows, long long width, long long stride, const X* z,
                                                  const long long* __restrict__ targets, long long ignore_index,
                                                  A smoothing, const A* __restrict__ largest,
                                                  const A* __restrict__ scales, const A* __restrict__ dy,
                                                  const A* __restrict__ divisor, X* dz) {
    long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    z += row * stride;
    dz += row * stride;
    int packs = width / PACK, last = packs * PACK + threadIdx.x;
    long long target = targets[row];
    if (target == ignore_index) {
        Pack<X> zeros;
        for (int k = 0; k < PACK; k++) zeros.at[k] = (X)(A)0;
        for (int i = threadIdx.x; i < packs; i += 32) ((Pack<X>*)dz)[i] = zeros;
        if (last < width) dz[last] = (X)(A)0;
        return;
    }
    A d = divisor ? *dy / *divisor : dy[row], m = largest[row], scale = scales[row] * d;
    A everywhere = smoothing / width, at_target = (everywhere + (1 - smoothing)) * d;  // w dy
    everywhere *= d;
    auto gradient = [&](A v, int distance) {  // of the logit that is `distance` columns to the left of the target's
        return (X)(exponential(v - m) * scale - (distance == 0 ? at_target : everywhere));
    };
    for (int first = threadIdx.x; first < packs; first += 32 * LOADS) {
        Pack<X> p[LOADS];
        for (int j = 0; j < LOADS; j++)
            if (first + 32 * j < packs) p[j] = ((const Pack<X>*)z)[first + 32 * j];
        for (int j = 0; j < LOADS; j++) {
            int i = first + 32 * j, distance = (int)target - i * PACK;
            for (int k = 0; k < PACK; k++) p[j].at[k] = gradient((A)p[j].at[k], distance - k);
            if (i < packs) ((Pack<X>*)dz)[i] = p[j];
        }
    }
    if (last < width) dz[last] = gradient((A)z[last], (int)target - last);
}
