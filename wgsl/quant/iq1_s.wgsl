// IQ1_S: an f16 scale; for each 8 weights the low byte of an index; for each 32 weights 16 bits: four times 3 upper
// bits of an index, a 3-bit multiplier, and whether 1/8 is taken off or added. Codes are eighths.
#import lib/grid

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 50u;

fn unpack(at: u32, group: u32) {
    let high = even_pair_at(at + 34u + 2u * group);
    scales = vec2(even_half_at(at) * 0.125 * odd_multiplier((high >> 12u) & 7u));
    offsets = vec2(0.0);
    let low = word_at(at + 2u + 4u * group);
    for (var i = 0u; i < 4u; i++) {
        let index = ((low >> (8u * i)) & 0xffu) | (((high >> (3u * i)) & 7u) << 8u);
        eight_eighths(i, index, high >> 15u);
    }
}
