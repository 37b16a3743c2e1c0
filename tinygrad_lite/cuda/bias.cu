// y += bias for every row of y, which begins at y + row * stride. A thread loads one pack of the bias, and adds it to
// the same pack of several rows, in a grid-stride loop; `packs` is the number of packs in a row. (If a thread took only
// one pack of y, it would spend half of its instructions on finding its place, including a remainder i % packs.)
extern "C" __global__ void add_bias(long long rows, long long packs, long long stride, X* y, const A* bias) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= packs) return;
    Pack<A> b = ((const Pack<A>*)bias)[i];
    for (long long row = blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += gridDim.y * blockDim.y) {
        Pack<X>* place = (Pack<X>*)(y + row * stride) + i;
        Pack<X> p = *place;
        for (int k = 0; k < PACK; k++) p.at[k] = (X)((A)p.at[k] + b.at[k]);
        *place = p;
    }
}
