// IQ2_XS: an f16 scale, 16 bits for each 8 weights (9 of index, 7 of signs), then for each 32 weights a byte of two
// multipliers.
#import lib/grid

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 74u;

fn unpack(at: u32, group: u32) {
    scales = even_half_at(at) * 0.125 * odd_multipliers(byte_at(at + 66u + group));
    offsets = vec2(0.0);
    var words = words_at(at + 2u + 8u * group);
    for (var i = 0u; i < 4u; i += 2u) {
        let word = next_word(&words);
        eight(i, word & 511u, even_signs(word >> 9u));
        eight(i + 1u, (word >> 16u) & 511u, even_signs(word >> 25u));
    }
}
