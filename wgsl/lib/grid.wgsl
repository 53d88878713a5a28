// Codebooks of the IQ1, IQ2 and IQ3 formats: a byte a weight, the first one lowest. Entry i of eight weights is the
// words 2 i and 2 i + 1, of four weights it is word i.
#import lib/unpacked
#import lib/words
#import lib/bytes

@group(0) @binding(7) var<storage, read> grid: array<u32>;

// Four magnitudes, none of them 0, negated where the lowest 4 bits of `signs` are set.
fn with_signs(magnitudes: u32, signs: u32) -> u32 {
    let negative = spread_bits(signs);
    return (magnitudes ^ byte_mask(negative)) + negative;
}

// Eight signs of which the lowest 7 bits of `v` are stored: an even number is set.
fn even_signs(v: u32) -> u32 {
    let bits = v & 127u;
    return bits | ((countOneBits(bits) & 1u) << 7u);
}

// Weights 8 i to 8 i + 7 of the group: an entry with signs.
fn eight(i: u32, entry: u32, signs: u32) {
    codes[2u * i] = with_signs(grid[2u * entry], signs);
    codes[2u * i + 1u] = with_signs(grid[2u * entry + 1u], signs >> 4u);
}

// Likewise of two entries of four.
fn two_fours(i: u32, first: u32, second: u32, signs: u32) {
    codes[2u * i] = with_signs(grid[first], signs);
    codes[2u * i + 1u] = with_signs(grid[second], signs >> 4u);
}

// Likewise of an entry of IQ1, in eighths: each plus 1, or minus 1 where `minus` is 1.
fn eight_eighths(i: u32, entry: u32, minus: u32) {
    let delta = select(0x01010101u, 0xffffffffu, minus == 1u);
    codes[2u * i] = add_bytes(grid[2u * entry], delta);
    codes[2u * i + 1u] = add_bytes(grid[2u * entry + 1u], delta);
}

// What a stored multiplier means.
fn odd_multiplier(stored: u32) -> f32 {
    return f32(2u * stored + 1u);
}

// Of a byte: the low nibble is that of the first 16 weights.
fn odd_multipliers(stored: u32) -> vec2<f32> {
    return vec2(odd_multiplier(stored & 15u), odd_multiplier((stored >> 4u) & 15u));
}
