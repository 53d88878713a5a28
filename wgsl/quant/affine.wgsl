// MLX's affine blocks: an f16 scale, an f16 bias, then 64 codes of 4 or 8 bits, lowest first: element =
// code * scale + bias. The user declares BYTES of a block.
const BLOCK: u32 = 64u;
const BLOCK_BYTES: u32 = BYTES;
const BITS: u32 = BYTES / 8u;

#import lib/unpacked
#import lib/stream

fn unpack(at: u32, group: u32) {
    let numbers = two_halves(whole_at(at));
    stream(at + 4u + 4u * BITS * group);
    scales = vec2(numbers.x);
    offsets = vec2(numbers.y);
    codes = streamed;
    if BITS == 8u {
        // Bytes are multiplied as signed ones.
        offsets += 128.0 * scales;
        for (var i = 0u; i < 8u; i++) {
            codes[i] ^= 0x80808080u;
        }
    }
}
