// CUDA C++ on a CPU: what a kernel uses and C++ does not have, so that kernels run on machines without a GPU.
//
// Blocks run one after the other. The threads of a block are coroutines (each has its own stack and is switched to by
// hand), so a thread waits at a barrier by yielding until all others have arrived. What a real GPU would do silently is
// an error here: a barrier that some threads never reach, more than 1,024 threads, more than 48 KiB of shared memory.
// Shared memory starts out as garbage. CUDA_ON_CPU_ORDER sets the order in which the threads run: 0 upwards or 1
// downwards, each warp as far as it can get before the next one begins, or 2 mixed, all interleaved. A kernel whose
// result depends on the order lacks a barrier. Floats below 1.2e-38 are 0, in arguments and in results, as in kernels
// compiled by CuPy.

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>  // no more than these: every header takes time in every kernel

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __shared__ static __attribute__((section("on_chip")))

extern char __start_on_chip[] __attribute__((weak)), __stop_on_chip[] __attribute__((weak));

struct uint3 {
    unsigned x, y, z;
};
static uint3 threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;

namespace on_cpu {

enum State { READY, AT_WARP_BARRIER, AT_BLOCK_BARRIER, DONE };

struct Thread {
    jmp_buf place;  // where it continues
    uint3 index;
    State state;
    void* stack;
};

static const int STACK = 1 << 16;
static Thread threads[1024];
static jmp_buf scheduler;
static int current, order;
static void (*body)(const void*);  // calls the kernel with the arguments stored here
static const void* arguments;
static uint64_t exchange[1024][2];  // what each thread shows the others in its warp

// Continue the thread `current` until it yields. (Switching by jumps needs no system call. Contexts would, but one is
// needed to give a thread its own stack.)
__attribute__((noinline)) static void go_on() {
    if (_setjmp(scheduler) == 0) _longjmp(threads[current].place, 1);
}

static inline void wait(State at) {
    threads[current].state = at;
    if (_setjmp(threads[current].place) == 0) _longjmp(scheduler, 1);
}

// The life of a thread: from one block to the next.
static void live() {
    for (;;) {
        wait(DONE);
        body(arguments);
    }
}

// Give a thread a stack, and run it until it waits for its first block.
__attribute__((noinline)) static void be_born(int i) {
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = threads[i].stack = malloc(STACK);
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, live, 0);
    current = i;
    if (_setjmp(scheduler) == 0) setcontext(&context);
}

[[noreturn]] static void fail(const char* what) {
    fprintf(stderr, "cuda_on_cpu: block (%u, %u, %u): %s\n", blockIdx.x, blockIdx.y, blockIdx.z, what);
    abort();
}

// Release the threads in [first, last) that wait at this barrier, if none is still running.
static bool release(int first, int last, State at) {
    int waiting = 0;
    for (int i = first; i < last; i++) {
        if (threads[i].state == at) waiting++;
        else if (threads[i].state != DONE) return false;
    }
    for (int i = first; i < last; i++)
        if (threads[i].state == at) threads[i].state = READY;
    return waiting > 0;
}

static void run_block(int count) {
    for (char* c = __start_on_chip; c && c < __stop_on_chip; c++) *c = (char)0xff;  // every float is NaN
    for (int i = 0; i < count; i++) {
        Thread& t = threads[i];
        if (!t.stack) be_born(i);
        t.state = READY;
        t.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    }
    int warps = (count + 31) / 32;
    bool moved;
    auto run = [&](int i) {
        Thread& t = threads[current = i];
        if (t.state != READY) return;
        threadIdx = t.index;
        go_on();
        moved = true;
    };
    for (;;) {
        moved = false;
        if (order == 2)
            for (int i = 0; i < count; i++) run((int)((i * 7919ll + 13) % count));  // prime: each gets its turn
        for (int w = 0; w < warps; w++) {
            int warp = order == 1 ? warps - 1 - w : w;
            int first = warp * 32, last = warp + 1 < warps ? first + 32 : count;
            do {
                for (int i = 0; i < last - first && order != 2; i++) run(order == 1 ? last - 1 - i : first + i);
            } while (release(first, last, AT_WARP_BARRIER) && order != 2);
        }
        bool all_done = true;
        for (int i = 0; i < count; i++) all_done &= threads[i].state == DONE;
        if (all_done) return;
        moved |= release(0, count, AT_BLOCK_BARRIER);
        if (!moved) fail("some threads wait at a barrier that others never reach");
    }
}

template <class Kernel>
static void launch(const unsigned* g, const Kernel& kernel) {
    gridDim = {g[0], g[1], g[2]};
    blockDim = {g[3], g[4], g[5]};
    int count = g[3] * g[4] * g[5];
    if (count < 1 || count > 1024) fail("a block has 1 to 1,024 threads");
    if (g[1] > 65535 || g[2] > 65535) fail("a grid has at most 65,535 blocks along y and z");
    if (__start_on_chip && __stop_on_chip - __start_on_chip > 48 * 1024) fail("more than 48 KiB of shared memory");
    body = [](const void* kernel) { (*(const Kernel*)kernel)(); };
    arguments = &kernel;
    const char* chosen = getenv("CUDA_ON_CPU_ORDER");
    order = chosen ? atoi(chosen) : 0;
#if defined(FLUSH_TO_ZERO) && defined(__SSE__)
    unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040);
#endif
    for (unsigned z = 0; z < g[2]; z++)
        for (unsigned y = 0; y < g[1]; y++)
            for (unsigned x = 0; x < g[0]; x++) {
                blockIdx = {x, y, z};
                run_block(count);
            }
#if defined(FLUSH_TO_ZERO) && defined(__SSE__)
    __builtin_ia32_ldmxcsr(before);
#endif
}

static inline int lane() { return current & 31; }

// What another thread of the warp shows.
template <class V>
static inline V shown_by(int other, V value) {
    static_assert(sizeof(V) <= 8, "at most 8 bytes are exchanged at once");
    memcpy(exchange[current], &value, sizeof(V));
    wait(AT_WARP_BARRIER);
    V result;
    memcpy(&result, exchange[(current & ~31) + other], sizeof(V));
    wait(AT_WARP_BARRIER);
    return result;
}

}  // namespace on_cpu

static inline void __syncthreads() { on_cpu::wait(on_cpu::AT_BLOCK_BARRIER); }
static inline void __syncwarp(unsigned = ~0u) { on_cpu::wait(on_cpu::AT_WARP_BARRIER); }

template <class V>
static inline V __shfl_xor_sync(unsigned mask, V value, int distance) {
    if (mask != ~0u) on_cpu::fail("a shuffle of a part of a warp");
    return on_cpu::shown_by(on_cpu::lane() ^ distance, value);
}

template <class V>
static inline V __shfl_sync(unsigned mask, V value, int from) {
    if (mask != ~0u) on_cpu::fail("a shuffle of a part of a warp");
    return on_cpu::shown_by(from, value);
}

template <class V>
static inline V atomicAdd(V* place, V value) {
    V before = *place;
    *place += value;
    return before;
}

static inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
static inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}
static inline unsigned __ldg(const unsigned* place) { return *place; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }

// The functions of CUDA's library; the C++ header that declares them takes longer to read than all of this.
#define FUNCTION(name)                                                    \
    static inline float name(float x) { return __builtin_##name##f(x); } \
    static inline double name(double x) { return __builtin_##name(x); }
FUNCTION(exp)
FUNCTION(exp2)
FUNCTION(log)
FUNCTION(log2)
FUNCTION(sqrt)
FUNCTION(tanh)
FUNCTION(erf)
FUNCTION(fabs)
FUNCTION(rint)
static inline float exp2f(float x) { return __builtin_exp2f(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float log2f(float x) { return __builtin_log2f(x); }
static inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
// sin(pi x) and cos(pi x)
template <class V>
static inline void sincospi(V x, V* sine, V* cosine) {
    *sine = (V)__builtin_sin(3.14159265358979323846 * (double)x);
    *cosine = (V)__builtin_cos(3.14159265358979323846 * (double)x);
}
static inline float rsqrtf(float x) { return 1 / sqrt(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
template <class V>
static inline bool isfinite(V x) { return __builtin_isfinite(x); }
template <class V>
static inline bool isnan(V x) { return __builtin_isnan(x); }
template <class V>
static inline V min(V a, V b) { return b < a ? b : a; }
template <class V>
static inline V max(V a, V b) { return a < b ? b : a; }

#include "tensor_cores_on_cpu.h"
