// Rows that matrices read, normalized or gated: as f32, or quantized to signed bytes.
struct Params {
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
    eps: f32,
}

#import lib/source
@group(0) @binding(0) var<uniform> params: Params;
#if CODES
// rows x K/4
@group(0) @binding(4) var<storage, read_write> codes_out: array<u32>;
// rows x K/32: scale, scale * sum of the first and of the second 16 codes, 0
@group(0) @binding(5) var<storage, read_write> numbers_out: array<vec4<f32>>;
#else
// rows x K
@group(0) @binding(4) var<storage, read_write> values_out: array<f32>;
#endif

#if CODES
fn store_word(row: u32, word: u32, codes: u32) {
    codes_out[row * (K / 4u) + word] = codes;
}

fn store_group(row: u32, group: u32, scale: f32, sums: vec2<f32>) {
    numbers_out[row * (K / 32u) + group] = vec4(scale, sums, 0.0);
}
#endif

@compute @workgroup_size(WORKGROUP)
fn prepare(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = workgroup.x;
    read_row(row, t);
#if CODES
    quantize_row(row, t);
#else
    for (var i = t; i < K; i += WORKGROUP) {
        values_out[row * K + i] = value(row, i);
    }
#endif
}
