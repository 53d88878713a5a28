// IQ2_XXS: an f16 scale, then for each 32 weights four bytes of indices (of eight weights) and a word of four times 7
// signs with a 4-bit multiplier on top.
#import lib/grid

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 66u;

fn unpack(at: u32, group: u32) {
    var words = words_at(at + 2u + 8u * group);
    let indices = next_word(&words);
    let signs = next_word(&words);
    scales = vec2(even_half_at(at) * 0.125 * odd_multiplier(signs >> 28u));
    offsets = vec2(0.0);
    for (var i = 0u; i < 4u; i++) {
        eight(i, (indices >> (8u * i)) & 0xffu, even_signs(signs >> (7u * i)));
    }
}
