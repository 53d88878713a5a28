// What `unpack` of a format of plain numbers fills: 32 weights.
#import lib/words

var<private> values: array<vec4<f32>, 8>;

// Weights 4 i to 4 i + 3.
fn four(i: u32) -> vec4<f32> {
    return values[i];
}
