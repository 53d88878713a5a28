// Four codes at a time, a byte each.

// Each byte of `v`, at most 127, less that of `n`, at most 128.
fn less_bytes(v: u32, n: u32) -> u32 {
    return ((v | 0x80808080u) - n) ^ 0x80808080u;
}

// The lowest 4 bits, each as a byte: 0 or 1.
fn spread_bits(v: u32) -> u32 {
    return ((v & 15u) * 0x00204081u) & 0x01010101u;
}

// The lowest 4 bit pairs, each as a byte.
fn spread_pairs(v: u32) -> u32 {
    let halves = ((v & 0xffu) | (v << 12u)) & 0x000f000fu;
    return (halves | (halves << 6u)) & 0x03030303u;
}

// 0xff for each byte that is 1, 0 for each that is 0.
fn byte_mask(ones: u32) -> u32 {
    return (ones << 8u) - ones;
}
