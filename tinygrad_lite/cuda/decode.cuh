// What the two kernels for linear maps have in common, decode.cu for a few texts and decode_tiles.cu for many.

enum Activation { LINEAR, RELU, RELU2, GELU, GELU_TANH, SWIGLU };  // in the order of ACTIVATIONS in decode.py

// The non-linearity of a feed-forward part; formulas in functional/gelu.py and swiglu.py. `gate` is for swiglu only.
__device__ __forceinline__ A activated(A z, A gate, long long activation) {
    switch (activation) {
        case RELU: return z > 0 ? z : (A)0;
        case RELU2: return z > 0 ? z * z : (A)0;
        case GELU: return z * (1 + erf(z * (A)0.7071067811865476)) / 2;
        case GELU_TANH: return z * (1 + tanh((A)0.7978845608028654 * (z + (A)0.044715 * z * z * z))) / 2;
        case SWIGLU: return gate / (1 + exp(-gate)) * z;
        default: return z;
    }
}
