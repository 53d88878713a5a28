// IEEE halves as bits. Where a device is not known to convert them (flag HALVES), by integers.

// The number in the lower 16 bits, of which the upper ones are 0.
fn half(bits: u32) -> f32 {
#if HALVES
    return unpack2x16float(bits).x;
#else
    let magnitude = bits & 0x7fffu;
    // The exponent's distance of the two formats; twice that where it stands for infinity.
    let normal = (magnitude << 13u) + select(0x38000000u, 0x70000000u, magnitude >= 0x7c00u);
    let subnormal = f32(magnitude) * 5.9604645e-8;
    let value = select(subnormal, bitcast<f32>(normal), magnitude >= 0x400u);
    return select(value, -value, bits >= 0x8000u);
#endif
}

// Two numbers, the lower one first.
fn two_halves(bits: u32) -> vec2<f32> {
#if HALVES
    return unpack2x16float(bits);
#else
    return vec2(half(bits & 0xffffu), half(bits >> 16u));
#endif
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
