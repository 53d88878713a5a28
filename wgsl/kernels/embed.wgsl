// Rows of an embedding table, times a factor.
struct Params {
    scale: f32,
    // Rows of the table before the ones that are here, and those that are here.
    first_row: u32,
    rows: u32,
}

#import quant
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read> tokens: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn embed(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = tokens[workgroup.x] - params.first_row;
    if row >= params.rows {
        return;
    }
    for (var group = t; group < K / 32u; group += WORKGROUP) {
        let block = group / (BLOCK / 32u);
        unpack(row * (K / BLOCK * BLOCK_BYTES) + block * BLOCK_BYTES, group % (BLOCK / 32u));
        for (var i = 0u; i < 8u; i++) {
            let at = workgroup.x * K + 32u * group + 4u * i;
            let values = four(i) * params.scale;
            y[at] = values.x;
            y[at + 1u] = values.y;
            y[at + 2u] = values.z;
            y[at + 3u] = values.w;
        }
    }
}
