// Instructions of the tensor cores (the matrix units), asynchronous copies into shared memory, and 2^x. GPUs of compute
// capability 8.0 or higher have them. They are written in PTX, NVIDIA's assembly language, because C++ has no names for
// them; each function has the name of its instruction.
//
// mma.m16n8k16 multiplies a 16 x 16 matrix A by a 16 x 8 matrix B of bfloat16, and adds the product to a 16 x 8 matrix
// C of float. No lane has a whole matrix: the elements of all three are spread over the registers of the 32 lanes of a
// warp, and the part in one lane's registers is called its fragment. With row = lane / 4 and column = lane % 4 * 2,
//
//     c[0], c[1]: C[row][column], C[row][column + 1]          c[2], c[3]: the same in row + 8
//     a[0] to a[3]: pairs of neighbours at (row, column), (row + 8, column), (row, column + 8), (row + 8, column + 8)
//     b[0], b[1]: B[column][row], B[column + 1][row], and the pair 8 rows below
//
// So two C side by side, rounded to bfloat16, have the layout of an A: the result of one product can be the first
// factor of the next without leaving the registers.
//
// Reference: the PTX manual, "Matrix Fragments for mma.m16n8k16 with floating point type", ldmatrix, cp.async,
// ex2.

#ifdef __CUDACC__  // elsewhere (tests/emulator), seven of these functions are written in C++

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

// C += A B
__device__ __forceinline__ void mma(float* c, const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Load four 8 x 8 matrices; each lane gets the pair at (row, column) of each. Lanes 8 i to 8 i + 7 supply the addresses
// of the rows of matrix i (multiples of 16 bytes in shared memory).
__device__ __forceinline__ void ldmatrix(unsigned* four, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3]) : "r"(shared_address(row)) : "memory");
}

// The same, but each matrix is transposed.
__device__ __forceinline__ void ldmatrix_transposed(unsigned* four, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3]) : "r"(shared_address(row)) : "memory");
}

// Two floats rounded to bfloat16, as a pair of neighbours.
__device__ __forceinline__ unsigned to_bf16x2(float first, float second) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// Start copying 16 bytes from global into shared memory; if not is_there, 16 zero bytes are written, and `from` may be
// any multiple of 16, since nothing is read.
__device__ __forceinline__ void cp_async(void* to, const void* from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}

// Wait until the copies started by this thread are done (for those of other threads, also wait at a barrier).
__device__ __forceinline__ void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// 2^x, or 0 below 2^-126. (exp2f also returns those tiny numbers, and needs three more instructions for them.)
__device__ __forceinline__ float ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif

// Load the fragment of a 16 x 16 matrix A from shared memory, where its rows are `stride` elements apart.
__device__ __forceinline__ void load_fragment_a(unsigned* a, const bf16* corner, int stride) {
    int lane = threadIdx.x % 32;
    ldmatrix(a, corner + lane % 16 * stride + lane / 16 * 8);
}

// Load a 16 x 16 matrix as two B side by side: b[0], b[1] for columns 0 to 7, b[2], b[3] for 8 to 15. The pairs of a B
// are neighbours in a column, so it is this function that needs ldmatrix_transposed.
__device__ __forceinline__ void load_fragment_b(unsigned* b, const bf16* corner, int stride) {
    int lane = threadIdx.x % 32;
    ldmatrix_transposed(b, corner + lane % 16 * stride + lane / 16 * 8);
}

// Load the transpose of a 16 x 16 matrix as two B side by side.
__device__ __forceinline__ void load_fragment_b_transposed(unsigned* b, const bf16* corner, int stride) {
    int lane = threadIdx.x % 32;
    ldmatrix(b, corner + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
}

// Sum and maximum over the four lanes that share two rows of a C.
__device__ __forceinline__ float sum_of_row(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

__device__ __forceinline__ float max_of_row(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
