// Q1_0: an f16 scale, then a bit a weight, lowest first: 1 where it is set, -1 where it is not.
#import lib/unpacked
#import lib/words
#import lib/bytes

const BLOCK: u32 = 128u;
const BLOCK_BYTES: u32 = 18u;

fn unpack(at: u32, group: u32) {
    scales = vec2(even_half_at(at));
    offsets = vec2(0.0);
    let bits = word_at(at + 2u + 4u * group);
    for (var i = 0u; i < 8u; i++) {
        codes[i] = byte_mask(spread_bits(~bits >> (4u * i))) | 0x01010101u;
    }
}
