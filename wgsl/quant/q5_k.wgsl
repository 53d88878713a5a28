// Q5_K: f16 scale, f16 minimum, 12 bytes of scales and minimums as in Q4_K, 32 bytes of high bits (bit g of byte i is
// weight i's of group g), then for each 64 weights 32 bytes: the first 32 weights are the low nibbles.
#import lib/k

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 176u;

fn unpack(at: u32, group: u32) {
    scale_and_offset(at, group);
    let bits = at + 16u;
    let nibbles = at + 48u + 32u * (group >> 1u);
    let shift = 4u * (group & 1u);
    for (var i = 0u; i < 8u; i++) {
        let bit = (whole_at(bits + 4u * i) >> group) & 0x01010101u;
        codes[i] = ((whole_at(nibbles + 4u * i) >> shift) & 0x0f0f0f0fu) | (bit << 4u);
    }
}
