// SwiGLU and ReLU squared; formulas in functional/swiglu.py and functional/relu_squared.py. Each thread takes one pack.

// 1 / (1 + e^-g)
__device__ __forceinline__ A sigmoid(A g) { return 1 / (1 + exp(-g)); }

// Here blockIdx.x is a row of (N, F). The rows of gate and up may have gaps between them: each has its own stride.
extern "C" __global__ void swiglu_forward(long long width, long long gate_stride, long long up_stride, const X* gate,
                                          const X* up, X* y) {
    const Pack<X>* gates = (const Pack<X>*)(gate + blockIdx.x * gate_stride);
    const Pack<X>* ups = (const Pack<X>*)(up + blockIdx.x * up_stride);
    Pack<X>* ys = (Pack<X>*)(y + blockIdx.x * width);
    for (long long i = blockIdx.y * (long long)blockDim.x + threadIdx.x; i < width / PACK;
         i += gridDim.y * (long long)blockDim.x) {
        Pack<X> pg = gates[i], pu = ups[i], out;
        for (int k = 0; k < PACK; k++) {
            A g = (A)pg.at[k];
            out.at[k] = (X)(g * sigmoid(g) * (A)pu.at[k]);
        }
        ys[i] = out;
    }
}

// du = dy silu(g) and dg = dy u (s + silu(g) (1 - s)), side by side in rows of 2 F numbers
extern "C" __global__ void swiglu_backward(long long width, long long gate_stride, long long up_stride, const X* gate,
                                           const X* up, const X* dy, X* d_gate, X* d_up) {
    const Pack<X>* gates = (const Pack<X>*)(gate + blockIdx.x * gate_stride);
    const Pack<X>* ups = (const Pack<X>*)(up + blockIdx.x * up_stride);
    const Pack<X>* dys = (const Pack<X>*)(dy + blockIdx.x * width);
    for (long long i = blockIdx.y * (long long)blockDim.x + threadIdx.x; i < width / PACK;
         i += gridDim.y * (long long)blockDim.x) {
        Pack<X> pg = gates[i], pu = ups[i], pd = dys[i];
        for (int k = 0; k < PACK; k++) {
            A g = (A)pg.at[k], u = (A)pu.at[k], d = (A)pd.at[k], s = sigmoid(g);
            pg.at[k] = (X)(d * u * (s + g * s * (1 - s)));
            pu.at[k] = (X)(d * g * s);
        }
        ((Pack<X>*)(d_gate + blockIdx.x * 2 * width))[i] = pg;
        ((Pack<X>*)(d_up + blockIdx.x * 2 * width))[i] = pu;
    }
}

extern "C" __global__ void relu_squared_forward(long long packs, const X* x, X* y) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= packs) return;
    Pack<X> p = ((const Pack<X>*)x)[i];
    for (int k = 0; k < PACK; k++) {
        A z = (A)p.at[k] < 0 ? 0 : (A)p.at[k];  // NaN stays NaN
        p.at[k] = (X)(z * z);
    }
    ((Pack<X>*)y)[i] = p;
}

// dx = 2 sqrt(y) dy; where y is 0, dx is 0 even if dy is infinite
extern "C" __global__ void relu_squared_backward(long long packs, const X* dy, const X* y, X* dx) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= packs) return;
    Pack<X> d = ((const Pack<X>*)dy)[i], p = ((const Pack<X>*)y)[i];
    for (int k = 0; k < PACK; k++) d.at[k] = (A)p.at[k] <= 0 ? (X)0 : (X)(2 * sqrt((A)p.at[k]) * (A)d.at[k]);
    ((Pack<X>*)dx)[i] = d;
}
