// y = W x + bias for one row x, added to y or replacing it. Each workgroup quantizes the whole of x for itself, which is
// cheaper than a dispatch of its own, and takes ROWS rows of W, LANES invocations a row.
struct Params {
    rows: u32,
    // Of y: where the first row of W goes.
    out_offset: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
    eps: f32,
}

#import lib/source
#import quant
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
#if BIAS
@group(0) @binding(5) var<storage, read> bias: array<f32>;
#endif

const GROUPS: u32 = K / 32u;
const ROW_BYTES: u32 = K / BLOCK * BLOCK_BYTES;

var<workgroup> x_codes: array<u32, K / 4u>;
var<workgroup> x_scales: array<f32, GROUPS>;
var<workgroup> x_sums: array<vec2<f32>, GROUPS>;
var<workgroup> partial: array<f32, WORKGROUP>;

fn dot_group(row: u32, group: u32) -> f32 {
    unpack(row * ROW_BYTES + group / (BLOCK / 32u) * BLOCK_BYTES, group % (BLOCK / 32u));
    var first = 0;
    var second = 0;
    for (var i = 0u; i < 4u; i++) {
        first += dot4I8Packed(codes[i], x_codes[8u * group + i]);
        second += dot4I8Packed(codes[i + 4u], x_codes[8u * group + i + 4u]);
    }
    let products = scales * vec2<f32>(f32(first), f32(second)) * x_scales[group];
    let shifted = offsets * x_sums[group];
    return products.x + products.y + shifted.x + shifted.y;
}

@compute @workgroup_size(WORKGROUP)
fn matvec(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) t: u32,
) {
    read_row(0u, t);
    for (var group = t; group < GROUPS; group += WORKGROUP) {
        quantize_group(0u, group);
        for (var i = 0u; i < 8u; i++) {
            x_codes[8u * group + i] = group_codes[i];
        }
        x_scales[group] = group_scale;
        x_sums[group] = group_sums;
    }
    workgroupBarrier();
    let first = (workgroup.y * workgroups.x + workgroup.x) * ROWS;
    let at_once = WORKGROUP / LANES;
    for (var step = 0u; step < ROWS; step += at_once) {
        let row = first + step + t / LANES;
        var sum = 0.0;
        if row < params.rows {
            for (var group = t % LANES; group < GROUPS; group += LANES) {
                sum += dot_group(row, group);
            }
        }
        partial[t] = sum;
        workgroupBarrier();
        for (var half = LANES / 2u; half > 0u; half >>= 1u) {
            if t % LANES < half {
                partial[t] += partial[t + half];
            }
            workgroupBarrier();
        }
        if t % LANES == 0u && row < params.rows {
            var value = partial[t];
#if BIAS
            value += bias[row];
#endif
#if ADD
            y[params.out_offset + row] += value;
#else
            y[params.out_offset + row] = value;
#endif
        }
        workgroupBarrier();
    }
}
