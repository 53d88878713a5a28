// TQ1_0: 32 + 16 bytes of five trits, 4 bytes of four, an f16 scale. Weight 32 n + j is trit n of byte j < 32, then
// 160 + 16 n + j that of byte 32 + j, then 240 + 4 n + j that of byte 48 + j. A byte is a fraction in base 3, the first
// trit (plus 1) its first digit.
#import lib/unpacked
#import lib/words
#import lib/bytes

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 54u;

// Trit n of each byte. Two bytes at a time: a product with 3^n <= 81 has 16 bits.
fn trits(word: u32, n: u32) -> u32 {
    let power = select((0x1b090301u >> (8u * n)) & 0xffu, 81u, n == 4u);
    let even = ((((word & 0x00ff00ffu) * power) & 0x00ff00ffu) * 3u) >> 8u;
    let odd = ((((word >> 8u) & 0x00ff00ffu) * power) & 0x00ff00ffu) * 3u;
    return less_bytes((even & 0x00030003u) | (odd & 0x03000300u), 0x01010101u);
}

fn unpack(at: u32, group: u32) {
    scales = vec2(even_half_at(at + 52u));
    offsets = vec2(0.0);
    for (var i = 0u; i < 8u; i++) {
        var word = i;
        var n = group;
        if group >= 5u {
            word = 8u + (i & 3u);
            n = 2u * (group - 5u) + (i >> 2u);
            if n == 5u {
                word = 12u;
                n = i & 3u;
            }
        }
        codes[i] = trits(word_at(at + 4u * word), n);
    }
}
