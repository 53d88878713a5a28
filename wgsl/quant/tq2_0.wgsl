// TQ2_0: two times 32 bytes of bit pairs (pair s of byte i is weight i of the s-th 32 of that half), an f16 scale. A
// code is stored plus 1.
#import lib/unpacked
#import lib/words
#import lib/bytes

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 66u;

fn unpack(at: u32, group: u32) {
    scales = vec2(even_half_at(at + 64u));
    offsets = vec2(0.0);
    var words = words_at(at + 32u * (group >> 2u));
    let shift = 2u * (group & 3u);
    for (var i = 0u; i < 8u; i++) {
        codes[i] = less_bytes((next_word(&words) >> shift) & 0x03030303u, 0x01010101u);
    }
}
