// F16: numbers as they are, 32 at a time.
#import lib/floats

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 64u;

fn unpack(at: u32, group: u32) {
    for (var i = 0u; i < 8u; i++) {
        let pairs = vec2(word_at(at + 8u * i), word_at(at + 8u * i + 4u));
        values[i] = vec4(half(pairs.x & 0xffffu), half(pairs.x >> 16u), half(pairs.y & 0xffffu), half(pairs.y >> 16u));
    }
}
