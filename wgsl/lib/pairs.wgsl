// Codes of 2 bits, four to a byte, lowest first, as in Q2_0: each less 1.
#import lib/unpacked
#import lib/words
#import lib/bytes

// The 32 codes at `at`, to `codes`.
fn pairs_less_1(at: u32) {
    var words = words_at(at);
    for (var i = 0u; i < 8u; i += 4u) {
        let word = next_word(&words);
        for (var j = 0u; j < 4u; j++) {
            codes[i + j] = less_bytes(spread_pairs(word >> (8u * j)), 0x01010101u);
        }
    }
}
