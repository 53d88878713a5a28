// F16: numbers as they are, 32 at a time.
#import lib/floats

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 64u;

fn unpack(at: u32, group: u32) {
    for (var i = 0u; i < 8u; i++) {
        values[i] = vec4(two_halves(whole_at(at + 8u * i)), two_halves(whole_at(at + 8u * i + 4u)));
    }
}
