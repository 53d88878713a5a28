// Codes of 5 bits, as in Q5_0: 32 bits (bit j is the fifth of code j), then nibbles.
#import lib/nibbles
#import lib/bytes

// Those at `at`, to `codes`: 0 to 31.
fn fives(at: u32) {
    let bits = word_at(at);
    nibbles(at + 4u);
    for (var i = 0u; i < 8u; i++) {
        codes[i] |= spread_bits(bits >> (4u * i)) << 4u;
    }
}
