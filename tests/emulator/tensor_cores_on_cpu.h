// The instructions of tinygrad_lite/cuda/tensor_cores.cuh on a CPU, written from the layouts in the PTX manual.
//
// Copies into shared memory happen only when the thread waits for them: code that forgets to wait finds garbage.

namespace on_cpu {

struct Copy {
    void* to;
    const void* from;
    bool is_there;
};
static Copy copies[1024][64];  // begun by each thread and not yet finished
static int begun[1024];

// What the threads of a warp show each other: 8 words, or an address. Two places alternate, so one barrier is enough:
// no thread writes to a place again until all have reached the barrier after reading it.
static uint32_t words[2][1024][8];
static const void* addresses[2][1024];
static int place[1024];

static inline int other_place() { return place[current] ^= 1; }

static inline float number(uint32_t pair, int which) {
    uint32_t bits = which ? pair & 0xffff0000 : pair << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t nearest_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value != value) return 0x7fff;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

static inline void load(unsigned* four, const void* row, bool transposed) {
    int now = other_place(), warp = current & ~31;
    if ((uintptr_t)row % 16) fail("ldmatrix: an address that is no multiple of 16");
    addresses[now][current] = row;
    wait(AT_WARP_BARRIER);
    for (int matrix = 0; matrix < 4; matrix++) {
        uint32_t pair = 0;
        for (int j = 0; j < 2; j++) {
            int r = lane() / 4, c = lane() % 4 * 2 + j;
            const uint16_t* from = (const uint16_t*)addresses[now][warp + matrix * 8 + (transposed ? c : r)];
            pair |= (uint32_t)from[transposed ? r : c] << 16 * j;
        }
        four[matrix] = pair;
    }
}

}  // namespace on_cpu

static inline void mma(float* c, const unsigned* a, const unsigned* b) {
    using namespace on_cpu;
    int now = other_place();
    uint32_t(*shown)[8] = words[now] + (current & ~31);
    memcpy(words[now][current], a, 16);
    memcpy(words[now][current] + 4, b, 8);
    wait(AT_WARP_BARRIER);
    for (int i = 0; i < 4; i++) {
        int row = lane() / 4 + i / 2 * 8, column = lane() % 4 * 2 + i % 2;
        float sum = 0;
        for (int k = 0; k < 16; k++) {  // A[row][k] B[k][column]
            uint32_t first = shown[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
            uint32_t second = shown[column * 4 + k % 8 / 2][4 + k / 8];
            sum += number(first, k % 2) * number(second, k % 2);
        }
        c[i] += sum;
    }
}

static inline void ldmatrix(unsigned* four, const void* row) { on_cpu::load(four, row, false); }
static inline void ldmatrix_transposed(unsigned* four, const void* row) { on_cpu::load(four, row, true); }

static inline unsigned to_bf16x2(float first, float second) {
    return on_cpu::nearest_bf16(first) | on_cpu::nearest_bf16(second) << 16;
}

static inline float ex2(float x) {
    float y = exp2f(x);
    return y < 0x1p-126f ? 0 : y;
}

static inline void cp_async(void* to, const void* from, bool is_there) {
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16) on_cpu::fail("cp.async: an address that is no multiple of 16");
    int& count = on_cpu::begun[on_cpu::current];
    if (count == 64) on_cpu::fail("cp.async: more than 64 copies under way in a thread");
    on_cpu::copies[on_cpu::current][count++] = {to, from, is_there};
}

static inline void cp_async_wait_all() {
    int& count = on_cpu::begun[on_cpu::current];
    for (int i = 0; i < count; i++) {
        const on_cpu::Copy& copy = on_cpu::copies[on_cpu::current][i];
        if (copy.is_there) memcpy(copy.to, copy.from, 16);
        else memset(copy.to, 0, 16);
    }
    count = 0;
}
