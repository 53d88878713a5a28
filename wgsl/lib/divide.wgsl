// Division as the CPU's: WGSL's own may be off by 2.5 ulp.

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
