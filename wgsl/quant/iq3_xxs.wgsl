// IQ3_XXS: an f16 scale, a byte of index for each 4 weights, then for each 32 weights a word of four times 7 signs
// with a 4-bit multiplier on top.
#import lib/grid

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 98u;

fn unpack(at: u32, group: u32) {
    let signs = word_at(at + 66u + 4u * group);
    scales = vec2(even_half_at(at) * 0.25 * odd_multiplier(signs >> 28u));
    offsets = vec2(0.0);
    var words = words_at(at + 2u + 8u * group);
    for (var i = 0u; i < 4u; i += 2u) {
        let word = next_word(&words);
        two_fours(i, word & 0xffu, (word >> 8u) & 0xffu, even_signs(signs >> (7u * i)));
        two_fours(i + 1u, (word >> 16u) & 0xffu, word >> 24u, even_signs(signs >> (7u * i + 7u)));
    }
}
