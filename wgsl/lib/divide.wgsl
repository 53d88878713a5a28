// Division and square roots as the CPU's: WGSL's own may be off by 2.5 ulp.

// a / b rounded to nearest: of two normal numbers above 0 whose quotient is a normal number.
fn divide(a: f32, b: f32) -> f32 {
    let a_bits = bitcast<u32>(a);
    let b_bits = bitcast<u32>(b);
    let a_part = (a_bits & 0x7fffffu) | 0x800000u;
    let b_part = (b_bits & 0x7fffffu) | 0x800000u;
    // So that the quotient has 24 bits.
    let shift = select(23u, 24u, a_part < b_part);
    var quotient = i32(f32(a_part) / f32(b_part) * f32(1u << shift));
    // What is left is small, so that it is right modulo 2^32.
    var rest = bitcast<i32>(a_part << shift) - quotient * i32(b_part);
    let more = i32(round(f32(rest) / f32(b_part)));
    quotient += more;
    rest -= more * i32(b_part);
    quotient += select(0, 1, 2 * rest > i32(b_part)) - select(0, 1, 2 * rest < -i32(b_part));
    let exponent = (a_bits >> 23u) + 150u - (b_bits >> 23u) - shift;
    return bitcast<f32>((exponent << 23u) + u32(quotient) - 0x800000u);
}

// a / b rounded to nearest, where b is a normal number: what is smaller than those is 0.
fn quotient(a: f32, b: f32) -> f32 {
    let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u;
    let exponent = (bitcast<u32>(a) >> 23u) & 255u;
    let distance = i32(exponent) - i32((bitcast<u32>(b) >> 23u) & 255u);
    if exponent == 0u || distance < -125 {
        return bitcast<f32>(sign);
    }
    if distance > 126 {
        return bitcast<f32>(sign | 0x7f800000u);
    }
    return bitcast<f32>(sign | bitcast<u32>(divide(abs(a), abs(b))));
}

// The square root, rounded to nearest, of a number above 0 that is normal; else 0.
fn root(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let exponent = bits >> 23u;
    if exponent == 0u {
        return 0.0;
    }
    let part = (bits & 0x7fffffu) | 0x800000u;
    // So that the root has 24 bits, and half of the exponent is whole.
    let shift = 24u - (exponent & 1u);
    var found = i32(sqrt(f32(part) * f32(1u << shift)));
    // What is left is small, so that it is right modulo 2^32.
    var rest = bitcast<i32>(part << shift) - found * found;
    for (var i = 0u; i < 4u; i++) {
        if rest > found {
            rest -= 2 * found + 1;
            found += 1;
        } else if rest <= -found {
            rest += 2 * found - 1;
            found -= 1;
        }
    }
    return bitcast<f32>((((exponent + 150u - shift) / 2u) << 23u) + u32(found) - 0x800000u);
}
