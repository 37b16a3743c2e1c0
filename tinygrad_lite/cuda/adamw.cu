// One AdamW update; formulas in optim/adamw.py, the guard's numbers in guard.py. Each thread takes one pack of elements.
// With a = 1 / (1 - beta1^step) and b = 1 / sqrt(1 - beta2^step), the corrected means are a m and (b sqrt(v))^2. Values
// shared by all elements are computed on the host: keep = 1 - lr weight_decay, rate = lr a, rest1 = 1 - beta1, and
// rest2 likewise. `rounded`, if it is not null, gets a copy of w in bfloat16.
extern "C" __global__ void adamw(long long packs, X* w, const X* g, X* m, X* v, bf16* rounded, const double* guard,
                                 A keep, A rate, A rest1, A rest2, A b, A eps) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= packs || (guard && guard[1] >= 0)) return;
    X scale = guard ? (X)guard[0] : (X)1;
    Pack<X> pw = ((Pack<X>*)w)[i], pg = ((const Pack<X>*)g)[i], pm = ((Pack<X>*)m)[i], pv = ((Pack<X>*)v)[i];
    for (int k = 0; k < PACK; k++) {
        X gradient = pg.at[k] * scale;
        pm.at[k] += rest1 * (gradient - pm.at[k]);
        pv.at[k] += rest2 * (gradient * gradient - pv.at[k]);
        pw.at[k] = pw.at[k] * keep - rate * pm.at[k] / (b * sqrt(pv.at[k]) + eps);
    }
    ((Pack<X>*)w)[i] = pw;
    if (rounded) {
        Pack<bf16> copy;
        for (int k = 0; k < PACK; k++) copy.at[k] = (bf16)(float)pw.at[k];
        ((Pack<bf16>*)rounded)[i] = copy;
    }
    ((Pack<X>*)m)[i] = pm;
    ((Pack<X>*)v)[i] = pv;
}
