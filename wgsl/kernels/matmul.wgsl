// Y = W X + bias for several rows X, prepared by `prepare`. A workgroup of 8 x 8 invocations computes a tile of 32 rows
// of W and TOKENS rows of X, 32 columns at a time: codes (INT8), by cooperative matrices too, or numbers.
struct Params {
    rows: u32,
    // Of workgroup 0.
    first_row: u32,
    tokens: u32,
    out_offset: u32,
    // Between rows of Y.
    out_stride: u32,
    x_offset: u32,
    x_stride: u32,
}

#import quant
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
#if INT8
@group(0) @binding(2) var<storage, read> x_codes: array<u32>;
@group(0) @binding(3) var<storage, read> x_numbers: array<vec4<f32>>;
#else
@group(0) @binding(2) var<storage, read> x: array<f32>;
#endif
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
#if BIAS
@group(0) @binding(5) var<storage, read> bias: array<f32>;
#endif

const GROUPS: u32 = K / 32u;
const ROW_BYTES: u32 = K / BLOCK * BLOCK_BYTES;
const TILE_ROWS: u32 = 32u;
// Of an invocation.
const T: u32 = TOKENS / 8u;

#if INT8
#if COOPERATIVE
#import lib/cooperative
#else
#import lib/dots
#endif
var<workgroup> w_scales: array<vec2<f32>, TILE_ROWS>;
var<workgroup> w_offsets: array<vec2<f32>, TILE_ROWS>;
var<workgroup> tile_numbers: array<vec4<f32>, TOKENS>;
#else
var<workgroup> w_values: array<vec4<f32>, TILE_ROWS * 8u>;
var<workgroup> tile_values: array<vec4<f32>, TOKENS * 8u>;
#endif

fn load_weights(slot: u32, row: u32, group: u32) {
    if row < params.rows {
        unpack(row * ROW_BYTES + group / (BLOCK / 32u) * BLOCK_BYTES, group % (BLOCK / 32u));
    }
    for (var i = 0u; i < 8u; i++) {
#if INT8
        keep_weights(slot, i, codes[i]);
#else
        w_values[8u * slot + i] = four(i);
#endif
    }
#if INT8
    w_scales[slot] = scales;
    w_offsets[slot] = offsets;
#endif
}

fn load_tokens(slot: u32, token: u32, group: u32) {
    // Past the end: the last one again, whose sums are not written.
    let row = min(token, params.tokens - 1u);
#if INT8
    let at = row * GROUPS + group;
    for (var i = 0u; i < 8u; i++) {
        keep_tokens(slot, i, x_codes[8u * at + i]);
    }
    tile_numbers[slot] = x_numbers[at];
#else
    let at = params.x_offset + row * params.x_stride + 32u * group;
    for (var i = 0u; i < 8u; i++) {
        let first = at + 4u * i;
        tile_values[8u * slot + i] = vec4(x[first], x[first + 1u], x[first + 2u], x[first + 3u]);
    }
#endif
}

// Of weights in slot `r` and a token in slot `t`.
fn dot_group(r: u32, t: u32) -> f32 {
#if INT8
    let numbers = tile_numbers[t];
    let products = w_scales[r] * sums_of(r, t) * numbers.x;
    let shifted = w_offsets[r] * numbers.yz;
    return products.x + products.y + shifted.x + shifted.y;
#else
    var sum = vec4(0.0);
    for (var i = 0u; i < 8u; i++) {
        sum += w_values[8u * r + i] * tile_values[8u * t + i];
    }
    return sum.x + sum.y + sum.z + sum.w;
#endif
}

@compute @workgroup_size(64)
fn matmul(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) t: u32,
#if COOPERATIVE
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
#endif
) {
    let first_row = params.first_row + workgroup.x * TILE_ROWS;
    let first_token = workgroup.y * TOKENS;
    // Rows and tokens of an invocation are 8 apart.
    let r = t / 8u;
    let c = t % 8u;
    var sums: array<f32, 4u * T>;
    for (var group = 0u; group < GROUPS; group++) {
        if t < TILE_ROWS {
            load_weights(t, first_row + t, group);
        } else if t - TILE_ROWS < TOKENS {
            load_tokens(t - TILE_ROWS, first_token + t - TILE_ROWS, group);
        }
        workgroupBarrier();
#if COOPERATIVE
        multiply(subgroup, subgroups);
        workgroupBarrier();
#endif
        for (var i = 0u; i < 4u; i++) {
            for (var j = 0u; j < T; j++) {
                sums[i * T + j] += dot_group(r + 8u * i, c + 8u * j);
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        let row = first_row + r + 8u * i;
        for (var j = 0u; j < T; j++) {
            let token = first_token + c + 8u * j;
            if row < params.rows && token < params.tokens {
                var value = sums[i * T + j];
#if BIAS
                value += bias[row];
#endif
                let at = params.out_offset + token * params.out_stride + row;
#if ADD
                y[at] += value;
#else
                y[at] = value;
#endif
            }
        }
    }
}
