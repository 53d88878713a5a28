// TurboQuant's keys: an f16 scale, an f16 zero, then 32 codes as a bit stream, signed where they have 8 bits:
// key = (code + zero) * scale. The user declares BYTES of a block.
const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = BYTES;
const BITS: u32 = BYTES / 4u - 1u;

#import lib/unpacked
#import lib/stream

fn unpack(at: u32, group: u32) {
    let numbers = two_halves(whole_at(at));
    scales = vec2(numbers.x);
    offsets = vec2(numbers.y * numbers.x);
    stream(at + 4u);
    codes = streamed;
}
