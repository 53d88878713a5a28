// x += norm(y), row by row.
struct Params {
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
    eps: f32,
    out_offset: u32,
    out_stride: u32,
}

#import lib/source
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn norm_add(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = workgroup.x;
    read_row(row, t);
    for (var i = t; i < K; i += WORKGROUP) {
        y[params.out_offset + row * params.out_stride + i] += value(row, i);
    }
}
