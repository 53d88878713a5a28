// TurboQuant's values, turned; see `quant/turbo_values`.
#import lib/divide
#import lib/encode
#import lib/to_stream
#import lib/codebook

const BLOCK: u32 = 32u;
const HEADER: u32 = 2u;
const BITS: u32 = BYTES / 4u;

// Squares are laid down before they are added up, in order: compilers may contract a product with what it is added to.
fn measure(t: u32) {
    for (var i = t; i < DIM; i += WORKGROUP) {
        codes[i] = bitcast<u32>(turned[i] * turned[i]);
    }
    workgroupBarrier();
    if t < BLOCKS {
        var squares = 0.0;
        for (var i = 0u; i < BLOCK; i++) {
            squares += bitcast<f32>(codes[t * BLOCK + i]);
        }
        let scale = root(squares * 0.03125);
        numbers[t] = vec2(scale + 1e-8, 0.0);
        headers[t] = to_half(scale);
    }
}

// How many of the numbers between neighbours lie below.
fn code(value: f32, numbers: vec2<f32>) -> u32 {
    let normal = quotient(value, numbers.x);
    var found = 0u;
    for (var step = 1u << (BITS - 1u); step > 0u; step >>= 1u) {
        found += select(0u, step, normal > boundary(found + step - 1u));
    }
    return found;
}
