// IQ1_M: for each 8 weights the low byte of an index; for each 8 weights a nibble: 3 upper bits of the index, and
// whether 1/8 is taken off or added; for each 64 weights 16 bits: four 3-bit multipliers, and above them a nibble of
// the f16 scale, the lowest first. Codes are eighths.
#import lib/grid

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 56u;

fn unpack(at: u32, group: u32) {
    let a = whole_at(at + 48u);
    let b = whole_at(at + 52u);
    let scale = ((a >> 12u) & 15u) | ((a >> 24u) & 0xf0u) | ((b >> 4u) & 0xf00u) | ((b >> 16u) & 0xf000u);
    let stored = select(a, b, group >= 4u) >> (8u * (group & 2u) + 6u * (group & 1u));
    scales = half(scale) * 0.125 * vec2(odd_multiplier(stored & 7u), odd_multiplier((stored >> 3u) & 7u));
    offsets = vec2(0.0);
    let low = whole_at(at + 4u * group);
    let high = even_pair_at(at + 32u + 2u * group);
    for (var i = 0u; i < 4u; i++) {
        let nibble = high >> (4u * i);
        eight_eighths(i, ((low >> (8u * i)) & 0xffu) | ((nibble & 7u) << 8u), (nibble >> 3u) & 1u);
    }
}
