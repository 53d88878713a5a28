// Q8_0: an f16 scale, then 32 signed bytes.
#import lib/divide
#import lib/encode

const BLOCK: u32 = 32u;
const HEADER: u32 = 2u;

fn measure(t: u32) {
    if t >= BLOCKS {
        return;
    }
    var largest = 0.0;
    for (var i = 0u; i < BLOCK; i++) {
        largest = max(largest, abs(turned[t * BLOCK + i]));
    }
    // Scales below the smallest normal number are 0 on some devices: numbers that would have one are.
    let scale = select(0.0, quotient(largest, 127.0), largest >= 1.5e-36);
    numbers[t] = vec2(select(0.0, quotient(1.0, scale), scale > 0.0), 0.0);
    headers[t] = to_half(scale);
}

// Rounded half away from zero: in integers, as compilers may contract a product with what is added to it.
fn code(value: f32, numbers: vec2<f32>) -> u32 {
    let doubled = i32(value * numbers.x * 2.0);
    return bitcast<u32>((doubled + sign(doubled)) / 2) & 0xffu;
}

fn code_byte(first: u32, at: u32) -> u32 {
    return codes[first + at];
}
