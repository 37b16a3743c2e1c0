// The instructions of the matrix units (tensor cores), and of copies that run in parallel with the computation. GPUs of
// compute capability 8.0 or more have them. They are written in PTX, NVIDIA's assembly language, because C++ has no
// names for them; the functions after this first part need none.
//
// A matrix unit multiplies a 16 x 16 matrix A by a 16 x 8 matrix B of bfloat16, and adds the product to a 16 x 8 matrix
// C of float. No thread has a whole matrix: the numbers of all three are spread over the 32 threads of a warp. With
// row = lane / 4 and column = lane % 4 * 2, thread `lane` holds these numbers of C,
//
//     c[0], c[1]: C[row][column], C[row][column + 1]          c[2], c[3]: the same in row + 8
//
// four pairs of A: a[0] at (row, column), a[1] at (row + 8, column), a[2] at (row, column + 8), a[3] at
// (row + 8, column + 8); and, with row and column exchanged, two pairs of B: b[0], and b[1] 8 rows below. So two C side
// by side, rounded to bfloat16, have the layout of an A: the result of one product can be the first factor of the next.
//
// Reference: the PTX manual, "Matrix Fragments for mma.m16n8k16 with floating point type", ldmatrix, cp.async.

#ifdef __CUDACC__  // elsewhere (tests/emulator) these six functions are written in C++

__device__ __forceinline__ unsigned on_chip(const void* pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }

// c += A B
__device__ __forceinline__ void multiply_add(float* c, const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Load four 8 x 8 matrices, pairs of neighbours spread over the warp as above. Threads 8 i to 8 i + 7 give the
// addresses of the rows of matrix i (multiples of 16 bytes in shared memory).
__device__ __forceinline__ void load_matrices(unsigned* four, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3]) : "r"(on_chip(row)) : "memory");
}

// The same, but each matrix is transposed.
__device__ __forceinline__ void load_matrices_turned(unsigned* four, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3]) : "r"(on_chip(row)) : "memory");
}

// Two numbers rounded to bfloat16, side by side.
__device__ __forceinline__ unsigned rounded(float first, float second) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// Begin to copy 16 bytes into shared memory; if not is_there, 16 zero bytes, without reading `from`.
__device__ __forceinline__ void begin_copy(void* to, const void* from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(on_chip(to)), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}

// Wait until the copies begun by this thread are done (for those of other threads, also wait at a barrier).
__device__ __forceinline__ void finish_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

#endif

// Load a 16 x 16 piece of a matrix in shared memory as a first factor; its rows are `length` elements apart.
__device__ __forceinline__ void load_first(unsigned* a, const bf16* corner, int length) {
    int lane = threadIdx.x % 32;
    load_matrices(a, corner + lane % 16 * length + lane / 16 * 8);
}

// Load a 16 x 16 piece as two second factors side by side: b[0], b[1] for columns 0 to 7, b[2], b[3] for 8 to 15.
__device__ __forceinline__ void load_second(unsigned* b, const bf16* corner, int length) {
    int lane = threadIdx.x % 32;
    load_matrices_turned(b, corner + lane % 16 * length + lane / 16 * 8);
}

// Load the transpose of a 16 x 16 piece as two second factors: its rows become their columns.
__device__ __forceinline__ void load_second_turned(unsigned* b, const bf16* corner, int length) {
    int lane = threadIdx.x % 32;
    load_matrices(b, corner + (lane % 8 + lane / 16 * 8) * length + lane / 8 % 2 * 8);
}

// Sum and maximum over the four threads that share two rows of a C.
__device__ __forceinline__ float sum_of_row(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

__device__ __forceinline__ float max_of_row(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
