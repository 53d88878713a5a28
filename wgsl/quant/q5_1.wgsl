// Q5_1: an f16 scale, an f16 minimum, 32 high bits (bit j is weight j's), then 16 bytes of nibbles: byte j holds
// weights j and j + 16.
#import lib/fives

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 24u;

fn unpack(at: u32, group: u32) {
    let halves = whole_at(at);
    scales = vec2(half(halves & 0xffffu));
    offsets = vec2(half(halves >> 16u));
    fives(at + 4u);
}
