// 32 codes of BITS bits as a bit stream: code i is bits [i * BITS, i * BITS + BITS) of the little-endian number that the
// bytes are.
#import lib/words

// Four codes each, a byte a code.
var<private> streamed: array<u32, 8>;

// Those at `at`, to `streamed`.
fn stream(at: u32) {
    var stored: array<u32, BITS>;
    var words = words_at(at);
    for (var i = 0u; i < BITS; i++) {
        stored[i] = next_word(&words);
    }
    for (var i = 0u; i < 8u; i++) {
        let bit = 4u * BITS * i;
        let shift = bit % 32u;
        let low = stored[bit / 32u] >> shift;
        // What is behind the last word is not of these codes. In two steps, as a shift by 32 is none.
        let high = (stored[min(bit / 32u + 1u, BITS - 1u)] << 1u) << (31u - shift);
        streamed[i] = apart(low | high);
    }
}

// The lowest four codes, each as a byte.
fn apart(codes: u32) -> u32 {
    let first = codes & ((1u << BITS) - 1u);
    let second = (codes >> BITS) & ((1u << BITS) - 1u);
    let third = (codes >> (2u * BITS)) & ((1u << BITS) - 1u);
    let fourth = (codes >> (3u * BITS)) & ((1u << BITS) - 1u);
    return first | (second << 8u) | (third << 16u) | (fourth << 24u);
}
