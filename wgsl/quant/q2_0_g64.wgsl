// Q2_0 in groups of 64: an f16 scale, then bit pairs, four to a byte, lowest first. A code is stored plus 1.
#import lib/pairs

const BLOCK: u32 = 64u;
const BLOCK_BYTES: u32 = 18u;

fn unpack(at: u32, group: u32) {
    scales = vec2(even_half_at(at));
    offsets = vec2(0.0);
    pairs_less_1(at + 2u + 8u * group);
}
