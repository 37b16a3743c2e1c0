// Rotary positions; formulas in functional/rotary.py. Each thread takes one pack of points (x_i, x_(i + D/2)) of one
// token, and rotates them in all heads: so it computes their angles once.
//
// A large angle in float has few digits behind the point: 100,000 radians are off by 0.004. So it is computed in double,
// whole rotations are taken off, and only the rest, between -1 and 1 half rotations, becomes a float.
extern "C" __global__ void rotary(long long count, long long length, long long heads, long long half,
                                  long long batch_stride, long long token_stride, long long head_stride, const X* x,
                                  const long long* positions, long long positions_stride, const double* frequencies,
                                  double direction, X* y) {
    long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (n >= count) return;
    long long packs = half / PACK, token = n / packs, i = n % packs * PACK, b = token / length, t = token % length;
    double position = (double)positions[b * positions_stride + t] * direction;
    A cosine[PACK], sine[PACK];
    for (int k = 0; k < PACK; k++) {
        double half_turns = position * frequencies[i + k] * 0.31830988618379067;  // 1 / pi
        sincospi((A)(half_turns - 2 * rint(half_turns / 2)), &sine[k], &cosine[k]);
    }
    const X* from = x + b * batch_stride + t * token_stride + i;
    X* to = y + token * heads * 2 * half + i;
    for (long long h = 0; h < heads; h++, from += head_stride, to += 2 * half) {
        Pack<X> first = *(const Pack<X>*)from, second = *(const Pack<X>*)(from + half), out1, out2;
        for (int k = 0; k < PACK; k++) {
            A x1 = (A)first.at[k], x2 = (A)second.at[k];
            out1.at[k] = (X)(x1 * cosine[k] - x2 * sine[k]);
            out2.at[k] = (X)(x2 * cosine[k] + x1 * sine[k]);
        }
        *(Pack<X>*)to = out1;
        *(Pack<X>*)(to + half) = out2;
    }
}
