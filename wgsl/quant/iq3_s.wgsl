// IQ3_S: an f16 scale; for each 4 weights the low byte of an index; for each 32 weights a byte of the indices' ninth
// bits; for each 8 weights a byte of signs; for each 64 weights a byte of two multipliers, the low nibble first.
#import lib/grid

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 110u;

fn unpack(at: u32, group: u32) {
    let multiplier = (byte_at(at + 106u + (group >> 1u)) >> (4u * (group & 1u))) & 15u;
    scales = vec2(even_half_at(at) * odd_multiplier(multiplier));
    offsets = vec2(0.0);
    let high = byte_at(at + 66u + group);
    let signs = word_at(at + 74u + 4u * group);
    var words = words_at(at + 2u + 8u * group);
    for (var i = 0u; i < 4u; i += 2u) {
        let word = next_word(&words);
        let ninth = high >> (2u * i);
        let first = vec2(word & 0xffu, (word >> 8u) & 0xffu) | (vec2(ninth << 8u, ninth << 7u) & vec2(256u));
        let second = vec2((word >> 16u) & 0xffu, word >> 24u) | (vec2(ninth << 6u, ninth << 5u) & vec2(256u));
        two_fours(i, first.x, first.y, signs >> (8u * i));
        two_fours(i + 1u, second.x, second.y, signs >> (8u * i + 8u));
    }
}
