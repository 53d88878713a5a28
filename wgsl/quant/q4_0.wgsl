// Q4_0: an f16 scale, then 16 bytes of nibbles, of which each is its code plus 8: byte j holds weights j and j + 16.
#import lib/nibbles
#import lib/bytes

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 18u;

fn unpack(at: u32, group: u32) {
    scales = vec2(even_half_at(at));
    offsets = vec2(0.0);
    nibbles(at + 2u);
    for (var i = 0u; i < 8u; i++) {
        codes[i] = less_bytes(codes[i], 0x08080808u);
    }
}
