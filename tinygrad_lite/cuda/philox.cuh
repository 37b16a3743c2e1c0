// Random numbers from a counter. The bits of element i are a function of i and a key, without any state: threads are
// independent, and the backward pass recomputes the bits of the forward pass instead of reading them.
//
// Philox4x32-7 turns four words, the counter, into four random words. Each round multiplies two of them by constants.
// The upper half of a product depends on all bits of the factor: it is mixed, with part of the key, into one of the
// other two words, and the lower half takes the place of that word. Seven rounds are the fewest after which a large
// battery of statistical tests finds no pattern. Libraries use ten, for a safety margin; but attention with dropout
// spends more instructions here than on its products.
//
// Reference: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3" (SC11), on Philox.

struct Words {
    unsigned at[4];
};

// The part of the key for each round, computed on the host (dropout.py). As a parameter of the kernel it is a constant,
// which an instruction can take as an operand. The training step is a part of the counter: its number, or, if the step
// is replayed as a graph (graph.py), where in memory that is.
struct RoundKeys {
    unsigned at[7][2];
    const unsigned* step_at;
    unsigned step;
};

__device__ __forceinline__ Words philox(Words count, const RoundKeys& round_keys) {
    for (int round = 0; round < 7; round++) {
        unsigned long long first = 0xD2511F53ull * count.at[0], second = 0xCD9E8D57ull * count.at[2];
        count = {{(unsigned)(second >> 32) ^ count.at[1] ^ round_keys.at[round][0], (unsigned)second,
                  (unsigned)(first >> 32) ^ count.at[3] ^ round_keys.at[round][1], (unsigned)first}};
    }
    return count;
}

// One call decides eight neighbouring elements, each by 16 bits: word k has those of element 2 k in its lower half and
// those of element 2 k + 1 in its upper half.
__device__ __forceinline__ Words random_words(const RoundKeys& round_keys, unsigned long long eight) {
    unsigned step = round_keys.step_at ? __ldg(round_keys.step_at) : round_keys.step;
    return philox({{(unsigned)eight, (unsigned)(eight >> 32), step, 0}}, round_keys);
}

// One of the words, when `which` is not known at compile time.
__device__ __forceinline__ unsigned word(const Words& words, int which) {
    unsigned low = which & 1 ? words.at[1] : words.at[0], high = which & 1 ? words.at[3] : words.at[2];
    return which & 2 ? high : low;
}

__device__ __forceinline__ unsigned half_of(unsigned word, int upper) { return upper ? word >> 16 : word & 0xffff; }

// The 16 bits of one element, and of the elements 4 quad to 4 quad + 3, which are half of a call.
__device__ __forceinline__ unsigned random_bits(const RoundKeys& round_keys, unsigned long long element) {
    return half_of(word(random_words(round_keys, element / 8), (int)(element % 8 / 2)), (int)(element % 2));
}

__device__ __forceinline__ Words random_bits_of_four(const RoundKeys& round_keys, unsigned long long quad) {
    Words words = random_words(round_keys, quad / 2);
    unsigned first = quad % 2 ? words.at[2] : words.at[0], second = quad % 2 ? words.at[3] : words.at[1];
    return {{half_of(first, 0), half_of(first, 1), half_of(second, 0), half_of(second, 1)}};
}
