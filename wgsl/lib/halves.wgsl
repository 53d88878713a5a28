// IEEE halves as bits, by integers: what is stored in the cache on devices without f16.

// The number.
fn half(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let magnitude = bits & 0x7fffu;
    if magnitude < 0x400u {
        return bitcast<f32>(sign | bitcast<u32>(f32(magnitude) * 5.9604645e-8));
    }
    if magnitude >= 0x7c00u {
        return bitcast<f32>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13u));
    }
    return bitcast<f32>(sign | ((magnitude << 13u) + 0x38000000u));
}

// The bits of the nearest half, ties to even.
fn to_half(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return sign | 0x7e00u;
    }
    if magnitude >= 0x477ff000u {
        return sign | 0x7c00u;
    }
    if magnitude < 0x38800000u {
        // Subnormal: that many times 2^-24.
        return sign | u32(round(bitcast<f32>(magnitude) * 16777216.0));
    }
    let odd = (magnitude >> 13u) & 1u;
    return sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13u);
}
