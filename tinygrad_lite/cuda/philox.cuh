// Random numbers without a state: the n-th number of a key is a function of both, so every thread finds the numbers of its
// own elements, in any order, and finds the same ones again in the backward pass. Nothing has to be kept but the key.
//
// Philox4x32-10 encrypts a counter: ten rounds in each of which two of its four words are multiplied by constants, and
// the halves of the products are mixed with the other two words and with the key.
//
// Reference: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.

struct FourWords {
    unsigned at[4];
};

__device__ inline FourWords philox(unsigned long long key, unsigned long long counter) {
    unsigned a = (unsigned)counter, b = (unsigned)(counter >> 32), c = 0, d = 0;
    unsigned low_key = (unsigned)key, high_key = (unsigned)(key >> 32);
    for (int round = 0; round < 10; round++) {
        unsigned a_high = __umulhi(0xD2511F53u, a), a_low = 0xD2511F53u * a;
        unsigned c_high = __umulhi(0xCD9E8D57u, c), c_low = 0xCD9E8D57u * c;
        a = c_high ^ b ^ low_key;
        b = c_low;
        c = a_high ^ d ^ high_key;
        d = a_low;
        low_key += 0x9E3779B9u;
        high_key += 0xBB67AE85u;
    }
    return {{a, b, c, d}};
}

// 32 random bits for this element: one word in four of a counter that four neighbours share.
__device__ inline unsigned random_bits(unsigned long long key, unsigned long long element) {
    return philox(key, element / 4).at[element % 4];
}
