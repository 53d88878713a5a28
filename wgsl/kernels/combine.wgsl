// Joins what the workgroups of `attention` found in their segments of the keys, and turns sums of turned values back: once
// a row. One workgroup a head of a row.
struct Params {
    segments: u32,
    // Of `out`.
    first_row: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// rows x heads x segments x (DIM sums, highest score, total weight, 0, 0)
@group(0) @binding(1) var<storage, read> found: array<vec4<f32>>;
// rows x heads x DIM
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;
#if SINKS
@group(0) @binding(5) var<storage, read> sinks: array<f32>;
#endif

const FOURS: u32 = DIM / 4u;

#if TURNED
var<workgroup> turned: array<f32, DIM>;
#import lib/turn
#endif

@compute @workgroup_size(WORKGROUP)
fn combine(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let index = workgroup.y * HEADS + workgroup.x;
    let place = (params.first_row * HEADS + index) * FOURS;
    let first = index * params.segments * (FOURS + 1u);
    var highest = -3.0e38;
#if SINKS
    highest = sinks[workgroup.x];
#endif
    for (var i = 0u; i < params.segments; i++) {
        highest = max(highest, found[first + i * (FOURS + 1u) + FOURS].x);
    }
    var total = 0.0;
#if SINKS
    total = exp(sinks[workgroup.x] - highest);
#endif
    for (var i = 0u; i < params.segments; i++) {
        let numbers = found[first + i * (FOURS + 1u) + FOURS];
        total += exp(numbers.x - highest) * numbers.y;
    }
    for (var dimension = t; dimension < FOURS; dimension += WORKGROUP) {
        var sum = vec4(0.0);
        for (var i = 0u; i < params.segments; i++) {
            let at = first + i * (FOURS + 1u);
            sum += exp(found[at + FOURS].x - highest) * found[at + dimension];
        }
#if TURNED
        let four = sum / total;
        for (var i = 0u; i < 4u; i++) {
            turned[4u * dimension + i] = four[i];
        }
    }
    turn_back(t);
    for (var dimension = t; dimension < FOURS; dimension += WORKGROUP) {
        let at = 4u * dimension;
        out[place + dimension] = vec4(turned[at], turned[at + 1u], turned[at + 2u], turned[at + 3u]);
    }
#else
        out[place + dimension] = sum / total;
    }
#endif
}
