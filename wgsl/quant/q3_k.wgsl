// Q3_K: 32 bytes of high bits (bit g of byte i is weight i's of group g), bit pairs as in Q2_K, 12 bytes of 16 scales
// (plus 32), an f16 scale. A code is stored plus 4. Byte j < 8 of the scales holds the low nibbles of scales j and
// j + 8; pair p of byte 8 + j the upper bits of scale 4 p + j.
#import lib/unpacked
#import lib/words
#import lib/bytes

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 110u;

fn unpack(at: u32, group: u32) {
    // Scales 2 * group and the next one, a byte each.
    let low = even_pair_at(at + 96u + 2u * (group & 3u)) >> (4u * (group >> 2u));
    let high = even_pair_at(at + 104u + 2u * (group & 1u)) >> (2u * (group >> 1u));
    let stored = (low & 0x0f0fu) | ((high & 0x0303u) << 4u);
    scales = even_half_at(at + 108u) * (vec2<f32>(vec2(stored & 0xffu, stored >> 8u)) - 32.0);
    offsets = vec2(0.0);
    var bits = words_at(at);
    var pairs = words_at(at + 32u + 32u * (group >> 2u));
    let shift = 2u * (group & 3u);
    for (var i = 0u; i < 8u; i++) {
        let bit = (next_word(&bits) >> group) & 0x01010101u;
        let pair = (next_word(&pairs) >> shift) & 0x03030303u;
        codes[i] = less_bytes(pair | (bit << 2u), 0x04040404u);
    }
}
