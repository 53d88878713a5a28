// What `unpack` of a format's shader fills: 32 weights of a block.
#import lib/weights

// Four signed bytes each, the first one lowest.
var<private> codes: array<u32, 8>;
// weight = scale * code + offset: of the first and the second 16 weights.
var<private> scales: vec2<f32>;
var<private> offsets: vec2<f32>;

// `n` to each of the four bytes of `v`, without carries between them.
fn add_bytes(v: u32, n: u32) -> u32 {
    let low = (v & 0x7f7f7f7fu) + (n & 0x7f7f7f7fu);
    return low ^ ((v ^ n) & 0x80808080u);
}

// Weights 4 i to 4 i + 3.
fn four(i: u32) -> vec4<f32> {
    let half = i >> 2u;
    return vec4<f32>(unpack4xI8(codes[i])) * scales[half] + offsets[half];
}
