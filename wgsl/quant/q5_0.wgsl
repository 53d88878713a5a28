// Q5_0: an f16 scale, 32 high bits (bit j is weight j's), then 16 bytes of nibbles: byte j holds weights j and j + 16.
// A code is stored plus 16.
#import lib/fives

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 22u;

fn unpack(at: u32, group: u32) {
    scales = vec2(even_half_at(at));
    offsets = vec2(0.0);
    fives(at + 2u);
    for (var i = 0u; i < 8u; i++) {
        codes[i] = less_bytes(codes[i], 0x10101010u);
    }
}
