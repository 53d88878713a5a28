// Q8_0: an f16 scale, then 32 signed bytes.
#import lib/unpacked
#import lib/words

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 34u;

fn unpack(at: u32, group: u32) {
    scales = vec2(even_half_at(at));
    offsets = vec2(0.0);
    var words = words_at(at + 2u);
    for (var i = 0u; i < 8u; i++) {
        codes[i] = next_word(&words);
    }
}
