// IQ4_NL: an f16 scale, then 16 bytes of nibbles, each for one of 16 values: byte j holds weights j and j + 16.
#import lib/iq4

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 18u;

fn unpack(at: u32, group: u32) {
    scales = vec2(even_half_at(at));
    offsets = vec2(0.0);
    iq4(at + 2u);
}
