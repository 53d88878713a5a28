// F32: numbers as they are, 32 at a time.
#import lib/floats

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 128u;

fn unpack(at: u32, group: u32) {
    for (var i = 0u; i < 8u; i++) {
        let first = at + 16u * i;
        let words = vec4(whole_at(first), whole_at(first + 4u), whole_at(first + 8u), whole_at(first + 12u));
        values[i] = bitcast<vec4<f32>>(words);
    }
}
