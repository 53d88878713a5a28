// Rows that matrices read, normalized or gated: as f32, or quantized to signed bytes in groups of 32.
struct Params {
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
    eps: f32,
}

#import lib/source
@group(0) @binding(0) var<uniform> params: Params;
#if INT8
// rows x K/4
@group(0) @binding(4) var<storage, read_write> codes_out: array<u32>;
// rows x K/32: scale, scale * sum of the first and of the second 16 codes, 0
@group(0) @binding(5) var<storage, read_write> numbers_out: array<vec4<f32>>;
#else
// rows x K
@group(0) @binding(4) var<storage, read_write> values_out: array<f32>;
#endif

@compute @workgroup_size(WORKGROUP)
fn prepare(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = workgroup.x;
    read_row(row, t);
#if INT8
    for (var group = t; group < K / 32u; group += WORKGROUP) {
        quantize_group(row, group);
        let at = row * (K / 32u) + group;
        for (var i = 0u; i < 8u; i++) {
            codes_out[8u * at + i] = group_codes[i];
        }
        numbers_out[at] = vec4(group_scale, group_sums, 0.0);
    }
#else
    for (var i = t; i < K; i += WORKGROUP) {
        values_out[row * K + i] = value(row, i);
    }
#endif
}
