// TurboQuant's keys, see `quant/turbo_keys`.
#import lib/divide
#import lib/encode
#import lib/to_stream

const BLOCK: u32 = 32u;
const HEADER: u32 = 4u;
const BITS: u32 = BYTES / 4u - 1u;
const LEAST: f32 = select(0.0, -127.0, BITS == 8u);
const MOST: f32 = select(f32((1u << BITS) - 1u), 127.0, BITS == 8u);

fn measure(t: u32) {
    if t >= BLOCKS {
        return;
    }
    let ends = extremes(t);
    let least = ends.x;
    let most = ends.y;
    let scale = quotient(most - least, MOST - LEAST);
    let divisor = scale + 1e-8;
    let zero = round(select(quotient(least, divisor), quotient(most + least, 2.0 * divisor), BITS == 8u));
    numbers[t] = vec2(divisor, zero);
    headers[t] = to_half(scale) | (to_half(zero) << 16u);
}

fn code(value: f32, numbers: vec2<f32>) -> u32 {
    let nearest = round(quotient(value, numbers.x) - numbers.y);
    return bitcast<u32>(i32(clamp(nearest, LEAST, MOST))) & 0xffu;
}
