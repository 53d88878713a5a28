// F32: numbers as they are, 32 at a time.
#import lib/floats

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 128u;

fn unpack(at: u32, group: u32) {
    for (var i = 0u; i < 8u; i++) {
        values[i] = bitcast<vec4<f32>>(vec4(word_at(at + 16u * i), word_at(at + 16u * i + 4u), word_at(at + 16u * i + 8u), word_at(at + 16u * i + 12u)));
    }
}
