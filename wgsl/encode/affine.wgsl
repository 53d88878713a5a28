// MLX's affine blocks, see `quant/affine`. The extreme of larger magnitude is a whole number of steps from zero; codes are
// chosen by the scale and bias before they are rounded.
#import lib/divide
#import lib/encode
#import lib/to_stream

const BLOCK: u32 = 64u;
const HEADER: u32 = 4u;
const BITS: u32 = BYTES / 8u;
const MOST: f32 = f32((1u << BITS) - 1u);

fn measure(t: u32) {
    if t >= BLOCKS {
        return;
    }
    let ends = extremes(t);
    let least = ends.x;
    let most = ends.y;
    let width = max(quotient(most - least, MOST), 1e-7);
    let low = abs(least) > abs(most);
    let edge = select(most, least, low);
    var scale = select(-width, width, low);
    var bias = 0.0;
    let steps = round(quotient(edge, scale));
    if steps != 0.0 {
        scale = quotient(edge, steps);
        bias = edge;
    }
    numbers[t] = vec2(scale, bias);
    headers[t] = to_half(scale) | (to_half(bias) << 16u);
}

fn code(value: f32, numbers: vec2<f32>) -> u32 {
    return u32(clamp(round(quotient(value - numbers.y, numbers.x)), 0.0, MOST));
}
