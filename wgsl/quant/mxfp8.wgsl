// MXFP8: an exponent, then 32 E4M3 floats.
#import lib/floats
#import lib/bytes

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 33u;

fn e4m3(byte: u32) -> f32 {
    let magnitude = byte & 0x7fu;
    let normal = bitcast<f32>((magnitude << 20u) + 0x3c000000u);
    let value = select(normal, f32(magnitude) * 0.001953125, magnitude < 8u);
    return select(value, -value, byte >= 0x80u);
}

fn unpack(at: u32, group: u32) {
    // 2^(exponent - 127), which is subnormal for 0 only.
    let exponent = byte_at(at);
    let scale = bitcast<f32>(select(exponent << 23u, 0x00400000u, exponent == 0u));
    var words = words_at(at + 1u);
    for (var i = 0u; i < 8u; i++) {
        let word = next_word(&words);
        values[i] = scale * vec4(
            e4m3(word & 0xffu), e4m3((word >> 8u) & 0xffu), e4m3((word >> 16u) & 0xffu), e4m3(word >> 24u));
    }
}
