// Q4_K: f16 scale, f16 minimum, 12 bytes of eight 6-bit scales and minimums, then for each 64 weights 32 bytes: the
// first 32 weights are the low nibbles.
#import lib/k

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 144u;

fn unpack(at: u32, group: u32) {
    scale_and_offset(at, group);
    let nibbles = at + 16u + 32u * (group >> 1u);
    let shift = 4u * (group & 1u);
    for (var i = 0u; i < 8u; i++) {
        codes[i] = (whole_at(nibbles + 4u * i) >> shift) & 0x0f0f0f0fu;
    }
}
