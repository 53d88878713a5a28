// 32 nibbles in 16 bytes: byte j holds number j (low nibble) and number j + 16 (high).
#import lib/unpacked
#import lib/words

// Those at `at`, to `codes`.
fn nibbles(at: u32) {
    var words = words_at(at);
    for (var i = 0u; i < 4u; i++) {
        let word = next_word(&words);
        codes[i] = word & 0x0f0f0f0fu;
        codes[i + 4u] = (word >> 4u) & 0x0f0f0f0fu;
    }
}
