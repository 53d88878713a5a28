// IQ4_XS: an f16 scale; for each 32 weights the upper 2 bits (16 in all), then the lower 4 (32 in all) of a multiplier,
// stored plus 32; then for each 32 weights 16 bytes of nibbles as in IQ4_NL.
#import lib/iq4

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 136u;

fn unpack(at: u32, group: u32) {
    let head = whole_at(at);
    let high = (head >> (16u + 2u * group)) & 3u;
    let low = (whole_at(at + 4u) >> (4u * group)) & 15u;
    scales = vec2(half(head & 0xffffu) * (f32(low | (high << 4u)) - 32.0));
    offsets = vec2(0.0);
    iq4(at + 8u + 16u * group);
}
