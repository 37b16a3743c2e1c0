// Rotary positions; formulas in functional/rotary.py. Each thread takes one pack of points (x_i, x_(i + D/2)) of one
// token, and rotates them in all heads, so it computes their angles once.
//
// A large angle in float has few digits after the point: 100,000 radians are off by 0.004. Double has enough, but most
// GPUs compute it 64 times slower. Integers are exact: a frequency is given as the fraction of a turn by which each
// position rotates, in units of 2^-64, and the product with the position overflows by whole turns; they change nothing.
extern "C" __global__ void rotary(long long count, long long length, long long heads, long long half,
                                  long long batch_stride, long long token_stride, long long head_stride, const X* x,
                                  const long long* positions, long long positions_stride, const long long* frequencies,
                                  A direction, X* y) {
    long long n = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (n >= count) return;
    long long packs = half / PACK, token = n / packs, i = n % packs * PACK, b = token / length, t = token % length;
    unsigned long long position = positions[b * positions_stride + t];
    A cosine[PACK], sine[PACK];
    for (int k = 0; k < PACK; k++) {
        long long angle = position * (unsigned long long)frequencies[i + k];  // from -1/2 to 1/2 turn
        sincospi((A)angle * (A)1.0842021724855044e-19 * direction, &sine[k], &cosine[k]);  // times 2^-63: half turns
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
