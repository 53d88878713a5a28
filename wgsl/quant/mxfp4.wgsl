// MXFP4: an exponent, then 16 bytes of nibbles, each an E2M1 float: byte j holds weights j and j + 16.
#import lib/nibbles
#import lib/e2m1

const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = 17u;

fn unpack(at: u32, group: u32) {
    // 2^(exponent - 128), as codes are doubled. Of 0 and 1 that is subnormal.
    let exponent = byte_at(at);
    scales = vec2(bitcast<f32>(select((exponent - 1u) << 23u, 0x00200000u << exponent, exponent < 2u)));
    offsets = vec2(0.0);
    nibbles(at + 1u);
    for (var i = 0u; i < 8u; i++) {
        codes[i] = e2m1(codes[i]);
    }
}
