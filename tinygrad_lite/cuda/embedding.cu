// Rows of a table, and the sum of the gradients of each row; functional/embedding.py.
//
// In the backward pass, the positions of the text are sorted by token, so that the rows of dy for one token form a
// *run*. The lengths of runs vary widely: a rare token occurs once, the space at every sixth position. So a warp takes
// not a run but SEGMENT positions of the sorted list, and sums each run in them. A run within one segment is then
// complete. For a run across segments, each segment writes a part: parts[segment][0] belongs to the run continued from
// the previous segment, parts[segment][1] to a run that begins here and continues in the next. A second kernel sums
// these parts. The order of all additions depends on the tokens alone. With `add`, the sums are added to the table.

// y[n] = weight[ids[n]]. A warp copies one row; for a token that is not in the table it writes NaN.
extern "C" __global__ void embedding_forward(long long count, long long rows, long long width, const long long* ids,
                                             const X* weight, X* y) {
    long long n = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (n >= count) return;
    long long id = ids[n];
    bool known = id >= 0 && id < rows;
    const Pack<X>* from = (const Pack<X>*)(weight + (known ? id : 0) * width);
    Pack<X>* to = (Pack<X>*)(y + n * width);
    Pack<X> nans;
    for (int k = 0; k < PACK; k++) nans.at[k] = __uint_as_float(0x7fffffff);  // NaN
    for (int i = threadIdx.x; i < width / PACK; i += 32) to[i] = known ? from[i] : nans;
}

// A warp takes one segment and 32 packs of columns. `order` maps the sorted list to positions in the text.
extern "C" __global__ void embedding_backward(long long count, long long rows, long long width,
                                              const long long* sorted, const long long* order, const X* dy, X* table,
                                              X* parts, long long add) {
    long long segment = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    long long first = segment * SEGMENT, last = min(first + SEGMENT, count);  // the end, exclusive
    long long column = (blockIdx.y * 32ll + threadIdx.x) * PACK;
    if (first >= count || column >= width) return;
    bool came_in = first > 0 && sorted[first - 1] == sorted[first];
    Pack<X> sum = {};
    for (long long start = first; start < last; start += 4) {
        Pack<X> fetched[4];  // requested together, because a warp that requests rows one by one waits for each
        for (int k = 0; k < 4; k++)
            if (start + k < last) fetched[k] = *(const Pack<X>*)(dy + order[start + k] * width + column);
        for (int k = 0; k < 4; k++) {
            long long i = start + k;
            if (i >= last) break;
            long long id = sorted[i];
            for (int j = 0; j < PACK; j++) sum.at[j] += fetched[k].at[j];
            bool run_continues = i + 1 < count && sorted[i + 1] == id;
            if (run_continues && i + 1 < last) continue;
            X* out = table + id * width;
            if (came_in) out = parts + segment * 2 * width;
            else if (run_continues) out = parts + (segment * 2 + 1) * width;
            if (id >= 0 && id < rows) {  // otherwise the token is not in the table
                if (add && !came_in && !run_continues)
                    for (int j = 0; j < PACK; j++) sum.at[j] += out[column + j];
                *(Pack<X>*)(out + column) = sum;
            }
            sum = {};
            came_in = false;
        }
    }
}

// A block takes 32 columns of the run that begins in a segment and continues in the next, if there is one; each of its
// 8 warps sums every eighth part of it.
extern "C" __global__ void embedding_backward_runs(long long count, long long rows, long long width,
                                                   const long long* sorted, const X* parts, X* table,
                                                   long long add) {
    __shared__ X found[8][32];
    long long segment = blockIdx.x, first = segment * SEGMENT, next = first + SEGMENT;
    if (next >= count) return;
    long long id = sorted[next], column = blockIdx.y * 32ll + threadIdx.x;
    bool begins_here = sorted[next - 1] == id && (first == 0 || sorted[first - 1] != id);
    if (!begins_here || id < 0 || id >= rows) return;  // the same for all threads of the block
    X sum = 0;
    if (column < width) {
        if (threadIdx.y == 0) sum = parts[(segment * 2 + 1) * width + column];
        for (long long other = segment + 1 + threadIdx.y; other * SEGMENT < count; other += 8) {
            if (sorted[other * SEGMENT] != id) break;
            sum += parts[other * 2 * width + column];
        }
    }
    found[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
        for (int warp = 1; warp < 8; warp++) sum += found[warp][threadIdx.x];
        table[id * width + column] = add ? table[id * width + column] + sum : sum;
    }
}
