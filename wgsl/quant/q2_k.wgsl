// Q2_K: a byte for each 16 weights (scale below, minimum above), two times 32 bytes of bit pairs (pair s of byte i is
// weight i of the s-th 32 of that half), f16 scale, f16 minimum.
#import lib/unpacked
#import lib/words

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 84u;

fn unpack(at: u32, group: u32) {
    let halves = whole_at(at + 80u);
    let stored = even_pair_at(at + 2u * group);
    scales = half(halves & 0xffffu) * vec2<f32>(vec2(stored & 15u, (stored >> 8u) & 15u));
    offsets = -half(halves >> 16u) * vec2<f32>(vec2((stored >> 4u) & 15u, stored >> 12u));
    let pairs = at + 16u + 32u * (group >> 2u);
    let shift = 2u * (group & 3u);
    for (var i = 0u; i < 8u; i++) {
        codes[i] = (whole_at(pairs + 4u * i) >> shift) & 0x03030303u;
    }
}
