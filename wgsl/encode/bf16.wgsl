// BF16: two numbers a word.
fn encode(t: u32) {}

fn word(i: u32) -> u32 {
    return upper_half(turned[2u * i]) | (upper_half(turned[2u * i + 1u]) << 16u);
}

// To nearest, ties to even; a NaN stays one.
fn upper_half(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return (bits >> 16u) | 0x40u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
