// y += bias for every row of y. Each thread takes one pack of one row; `width` is the number of packs in a row.
extern "C" __global__ void add_bias(long long packs, long long width, X* y, const A* bias) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= packs) return;
    Pack<X> p = ((Pack<X>*)y)[i];
    Pack<A> b = ((const Pack<A>*)bias)[i % width];
    for (int k = 0; k < PACK; k++) p.at[k] = (X)((A)p.at[k] + b.at[k]);
    ((Pack<X>*)y)[i] = p;
}
