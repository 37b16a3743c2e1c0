// Random numbers from a counter. The bits of element i are a function of i and a key, without any state: threads are
// independent, and the backward pass computes the bits of the forward pass again instead of reading them.
//
// Philox4x32-7 turns four words, the counter, into four random words. Each round multiplies two of them by constants.
// The upper half of a product depends on all bits of the factor: it is mixed, with part of the key, into one of the
// other two words, and the lower half takes the place of that word. Seven rounds are the fewest after which a large
// battery of statistical tests finds no pattern. Libraries use ten, for a margin; but attention with dropout spends more
// instructions here than on its products.
//
// Reference: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3" (SC11), on Philox.

struct Words {
    unsigned at[4];
};

__device__ __forceinline__ Words philox(Words count, unsigned long long key) {
    unsigned low_key = (unsigned)key, high_key = (unsigned)(key >> 32);
    for (int round = 0; round < 7; round++) {
        unsigned long long first = 0xD2511F53ull * count.at[0], second = 0xCD9E8D57ull * count.at[2];
        count = {{(unsigned)(second >> 32) ^ count.at[1] ^ low_key, (unsigned)second,
                  (unsigned)(first >> 32) ^ count.at[3] ^ high_key, (unsigned)first}};
        low_key += 0x9E3779B9;  // of the golden ratio
        high_key += 0xBB67AE85;  // of the square root of 3
    }
    return count;
}

// The random words of the elements 4 quad to 4 quad + 3.
__device__ __forceinline__ Words random_bits_of_four(unsigned long long key, unsigned long long quad) {
    return philox({{(unsigned)quad, (unsigned)(quad >> 32), 0, 0}}, key);
}

// One of the words, when `which` is not known at compile time.
__device__ __forceinline__ unsigned word(const Words& words, int which) {
    unsigned low = which & 1 ? words.at[1] : words.at[0], high = which & 1 ? words.at[3] : words.at[2];
    return which & 2 ? high : low;
}

// The random word of one element; the words of four neighbours together cost no more.
__device__ __forceinline__ unsigned random_bits(unsigned long long key, unsigned long long element) {
    return word(random_bits_of_four(key, element / 4), (int)(element % 4));
}
