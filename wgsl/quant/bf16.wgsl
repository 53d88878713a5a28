// BF16: numbers as they are, 32 at a time.
#import lib/floats

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 64u;

fn unpack(at: u32, group: u32) {
    for (var i = 0u; i < 8u; i++) {
        let pairs = vec2(whole_at(at + 8u * i), whole_at(at + 8u * i + 4u));
        values[i] = bitcast<vec4<f32>>(vec4(pairs.x << 16u, pairs.x & 0xffff0000u, pairs.y << 16u, pairs.y & 0xffff0000u));
    }
}
