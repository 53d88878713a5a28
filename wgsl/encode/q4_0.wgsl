// Q4_0: an f16 scale, then 16 bytes: byte j holds codes j and j + 16, each plus 8. The first number of the largest
// magnitude has the code 0.
#import lib/divide
#import lib/encode

const BLOCK: u32 = 32u;
const HEADER: u32 = 2u;

fn measure(t: u32) {
    if t >= BLOCKS {
        return;
    }
    var extreme = 0.0;
    for (var i = 0u; i < BLOCK; i++) {
        let value = turned[t * BLOCK + i];
        extreme = select(extreme, value, abs(value) > abs(extreme));
    }
    let scale = extreme * -0.125;
    numbers[t] = vec2(select(0.0, quotient(1.0, scale), abs(scale) >= 1.2e-38), 0.0);
    headers[t] = to_half(scale);
}

// The whole part of value / scale + 8.5, a sum that is rounded as f32 are: 24 bits. In integers, as compilers may contract
// a product with what is added to it; 8.5 is an even number of last digits, so that ties go where the sum's would.
fn code(value: f32, numbers: vec2<f32>) -> u32 {
    let scaled = value * numbers.x;
    var digits = 20u;
    digits += u32(scaled < -0.5) + u32(scaled < -4.5) + u32(scaled < -6.5) + u32(scaled < -7.5);
    let sum = i32(round(scaled * f32(1u << digits))) + i32(17u << (digits - 1u));
    return u32(clamp(sum >> digits, 0, 15));
}

fn code_byte(first: u32, at: u32) -> u32 {
    return codes[first + at] | (codes[first + at + 16u] << 4u);
}
