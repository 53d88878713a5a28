// IQ2_S: an f16 scale; for each 8 weights the low byte of an index; for each 8 weights a byte of signs; for each 32
// weights a byte of the indices' four upper bit pairs; for each 32 weights a byte of two multipliers.
#import lib/grid

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 82u;

fn unpack(at: u32, group: u32) {
    scales = even_half_at(at) * 0.125 * odd_multipliers(byte_at(at + 74u + group));
    offsets = vec2(0.0);
    let low = word_at(at + 2u + 4u * group);
    let signs = word_at(at + 34u + 4u * group);
    let high = byte_at(at + 66u + group);
    for (var i = 0u; i < 4u; i++) {
        let index = ((low >> (8u * i)) & 0xffu) | (((high >> (2u * i)) & 3u) << 8u);
        eight(i, index, signs >> (8u * i));
    }
}
