// y = W x + bias for one row x, added to y or replacing it. Each workgroup takes ROWS rows of W, LANES invocations a row.
// With CODES it quantizes the whole of x for itself, which is cheaper than a dispatch of its own; with PREPARED, where x
// doesn't fit its memory, `prepare` did.
struct Params {
    rows: u32,
    // Of y: where the first row of W goes.
    out_offset: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
    eps: f32,
}

#if PREPARED
@group(0) @binding(2) var<storage, read> x_codes: array<u32>;
@group(0) @binding(3) var<storage, read> x_numbers: array<vec4<f32>>;
#else
#import lib/source
#endif
#import quant
#import lib/lanes
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
#if BIAS
@group(0) @binding(5) var<storage, read> bias: array<f32>;
#endif

const GROUPS: u32 = K / 32u;
const ROW_BYTES: u32 = K / BLOCK * BLOCK_BYTES;

#if CODES
// Word i of every group, then word i + 1: neighbours read neighbours. An odd distance, to meet all banks in writing.
const STRIDE: u32 = GROUPS | 1u;
var<workgroup> x_codes: array<u32, 8u * STRIDE>;
var<workgroup> x_scales: array<f32, GROUPS>;
var<workgroup> x_sums: array<vec2<f32>, GROUPS>;

fn store_word(row: u32, word: u32, codes: u32) {
    x_codes[word % 8u * STRIDE + word / 8u] = codes;
}

fn store_group(row: u32, group: u32, scale: f32, sums: vec2<f32>) {
    x_scales[group] = scale;
    x_sums[group] = sums;
}

fn dot_group(row: u32, group: u32) -> f32 {
    unpack(row * ROW_BYTES + group / (BLOCK / 32u) * BLOCK_BYTES, group % (BLOCK / 32u));
    var first = 0;
    var second = 0;
    for (var i = 0u; i < 4u; i++) {
        first += dot4I8Packed(codes[i], x_codes[i * STRIDE + group]);
        second += dot4I8Packed(codes[i + 4u], x_codes[(i + 4u) * STRIDE + group]);
    }
    let products = scales * vec2<f32>(vec2(first, second)) * x_scales[group];
    let shifted = offsets * x_sums[group];
    return products.x + products.y + shifted.x + shifted.y;
}

#else
#if PREPARED
fn dot_group(row: u32, group: u32) -> f32 {
    unpack(row * ROW_BYTES + group / (BLOCK / 32u) * BLOCK_BYTES, group % (BLOCK / 32u));
    var first = 0;
    var second = 0;
    for (var i = 0u; i < 4u; i++) {
        first += dot4I8Packed(codes[i], x_codes[8u * group + i]);
        second += dot4I8Packed(codes[i + 4u], x_codes[8u * group + i + 4u]);
    }
    let numbers = x_numbers[group];
    let products = scales * vec2<f32>(vec2(first, second)) * numbers.x;
    let shifted = offsets * numbers.yz;
    return products.x + products.y + shifted.x + shifted.y;
}

#else
fn dot_group(row: u32, group: u32) -> f32 {
    unpack(row * ROW_BYTES + group / (BLOCK / 32u) * BLOCK_BYTES, group % (BLOCK / 32u));
    var sum = vec4(0.0);
    for (var i = 0u; i < 8u; i++) {
        let at = 32u * group + 4u * i;
        sum += four(i) * vec4(value(0u, at), value(0u, at + 1u), value(0u, at + 2u), value(0u, at + 3u));
    }
    return sum.x + sum.y + sum.z + sum.w;
}
#endif
#endif

@compute @workgroup_size(WORKGROUP)
fn matvec(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
#if SUBGROUPS
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
#else
    @builtin(local_invocation_index) t: u32,
#endif
) {
#if SUBGROUPS
    // So that the lanes of a row are neighbours in a subgroup however a device forms them.
    let t = subgroup * subgroup_size + lane;
#endif
#if PREPARED
#else
    read_row(0u, t);
#endif
#if CODES
    quantize_row(0u, t);
    workgroupBarrier();
#endif
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
        var value = sum_of_lanes(sum, t);
        if t % LANES == 0u && row < params.rows {
#if BIAS
            value += bias[row];
#endif
#if ADD
            y[params.out_offset + row] += value;
#else
            y[params.out_offset + row] = value;
#endif
        }
    }
}
