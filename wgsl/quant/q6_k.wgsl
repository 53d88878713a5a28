// Q6_K: two times 64 bytes of nibbles, two times 32 bytes of bit pairs, 16 signed scales, an f16 scale. Of the four 32
// weights of a half the first two are the low nibbles, the others the high ones; pair s of byte i is the upper bits of
// weight i of the s-th. A code is stored plus 32.
#import lib/unpacked
#import lib/words
#import lib/bytes

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 210u;

fn unpack(at: u32, group: u32) {
    let stored = unpack4xI8(even_pair_at(at + 192u + 2u * group));
    scales = even_half_at(at + 208u) * vec2<f32>(stored.xy);
    offsets = vec2(0.0);
    let side = group >> 2u;
    let section = group & 3u;
    var nibbles = words_at(at + 64u * side + 32u * (section & 1u));
    var pairs = words_at(at + 128u + 32u * side);
    let nibble_shift = 4u * (section >> 1u);
    let pair_shift = 2u * section;
    for (var i = 0u; i < 8u; i++) {
        let nibble = (next_word(&nibbles) >> nibble_shift) & 0x0f0f0f0fu;
        let pair = (next_word(&pairs) >> pair_shift) & 0x03030303u;
        codes[i] = less_bytes(nibble | (pair << 4u), 0x20202020u);
    }
}
