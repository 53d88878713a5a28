// Causal attention, one workgroup a head of a query row: softmax over tiles of WORKGROUP keys with a running maximum.
struct Params {
    query: u32,
    stride: u32,
    // Position of row 0.
    start: u32,
    // Positions that a query sees, itself included.
    window: u32,
    scale: f32,
    // 0: none.
    softcap: f32,
}

#import lib/cache
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> rows: array<f32>;
@group(0) @binding(2) var<storage, read> keys: array<u32>;
@group(0) @binding(3) var<storage, read> values: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
#if SINKS
@group(0) @binding(5) var<storage, read> sinks: array<f32>;
#endif

var<workgroup> q: array<f32, DIM>;
var<workgroup> weights: array<f32, WORKGROUP>;
var<workgroup> folded: array<f32, WORKGROUP>;

fn score(at: u32) -> f32 {
    var sum = 0.0;
#if F16
    for (var i = 0u; i < DIM / 2u; i++) {
        let pair = keys[at * (DIM / 2u) + i];
        sum += q[2u * i] * half(pair & 0xffffu) + q[2u * i + 1u] * half(pair >> 16u);
    }
#else
    for (var i = 0u; i < DIM; i++) {
        sum += q[i] * bitcast<f32>(keys[at * DIM + i]);
    }
#endif
    sum *= params.scale;
    if params.softcap != 0.0 {
        sum = params.softcap * tanh(clamp(sum / params.softcap, -15.0, 15.0));
    }
    return sum;
}

fn value_at(at: u32, i: u32) -> f32 {
#if F16
    let pair = values[at * (DIM / 2u) + i / 2u];
    return half(select(pair & 0xffffu, pair >> 16u, i % 2u == 1u));
#else
    return bitcast<f32>(values[at * DIM + i]);
#endif
}

@compute @workgroup_size(WORKGROUP)
fn attention(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let head = workgroup.x;
    let row = workgroup.y;
    let kv_head = head / (HEADS / KV_HEADS);
    for (var i = t; i < DIM; i += WORKGROUP) {
        q[i] = rows[params.query + row * params.stride + head * DIM + i];
    }
    workgroupBarrier();
    let position = params.start + row;
    let first = position + 1u - min(position + 1u, params.window);
    var highest = -3.0e38;
    var total = 0.0;
    var sums: array<f32, DIM / WORKGROUP + 1u>;
    for (var begin = first; begin <= position; begin += WORKGROUP) {
        let key = begin + t;
        var s = -3.0e38;
        if key <= position {
            s = score(row_index(kv_head, key));
        }
        folded[t] = s;
        workgroupBarrier();
        for (var half = WORKGROUP / 2u; half > 0u; half >>= 1u) {
            if t < half {
                folded[t] = max(folded[t], folded[t + half]);
            }
            workgroupBarrier();
        }
        let raised = max(highest, folded[0]);
        let factor = exp(highest - raised);
        highest = raised;
        let weight = select(0.0, exp(s - raised), key <= position);
        workgroupBarrier();
        weights[t] = weight;
        folded[t] = weight;
        workgroupBarrier();
        for (var half = WORKGROUP / 2u; half > 0u; half >>= 1u) {
            if t < half {
                folded[t] += folded[t + half];
            }
            workgroupBarrier();
        }
        total = total * factor + folded[0];
        let count = min(WORKGROUP, position + 1u - begin);
        for (var slot = 0u; slot * WORKGROUP + t < DIM; slot++) {
            var sum = sums[slot] * factor;
            for (var j = 0u; j < count; j++) {
                sum += weights[j] * value_at(row_index(kv_head, begin + j), slot * WORKGROUP + t);
            }
            sums[slot] = sum;
        }
        workgroupBarrier();
    }
#if SINKS
    let raised = max(highest, sinks[head]);
    let factor = exp(highest - raised);
    total = total * factor + exp(sinks[head] - raised);
#else
    let factor = 1.0;
#endif
    for (var slot = 0u; slot * WORKGROUP + t < DIM; slot++) {
        out[(row * HEADS + head) * DIM + slot * WORKGROUP + t] = sums[slot] * factor / total;
    }
}
