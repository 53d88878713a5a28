// The 12 bytes of Q4_K and Q5_K at `at`: the 6-bit scale and minimum of group `g`.
fn scale_and_min(at: u32, g: u32) -> vec2<u32> {
    if g < 4u {
        return vec2(byte_at(at + g) & 63u, byte_at(at + g + 4u) & 63u);
    }
    let low = byte_at(at + g + 4u);
    let scale = (low & 15u) | ((byte_at(at + g - 4u) >> 6u) << 4u);
    let minimum = (low >> 4u) | ((byte_at(at + g) >> 6u) << 4u);
    return vec2(scale, minimum);
}
