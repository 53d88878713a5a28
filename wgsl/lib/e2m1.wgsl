// E2M1 floats, doubled: 0 1 2 3 4 6 8 12 and, with the nibble's top bit, their negatives.
#import lib/bytes

// Of four nibbles, a byte each.
fn e2m1(v: u32) -> u32 {
    // Beyond 4: 0, 1, 2 and 5 more than the lower three bits say.
    let high = (v >> 2u) & 0x01010101u;
    let more = v & (high | (high << 1u));
    let both = more & (more >> 1u) & 0x01010101u;
    let magnitude = (v & 0x07070707u) + more + (both << 1u);
    let negative = (v >> 3u) & 0x01010101u;
    // There is a negative zero, whose carry must not leave its byte.
    let flipped = magnitude ^ byte_mask(negative);
    return ((flipped & 0x7f7f7f7fu) + negative) ^ (flipped & 0x80808080u);
}
