// Sums over LANES neighbouring invocations, for the first of them.
#if SUBGROUPS
fn sum_of_lanes(value: f32, t: u32) -> f32 {
    var sum = value;
    for (var distance = LANES / 2u; distance > 0u; distance >>= 1u) {
        sum += subgroupShuffleXor(sum, distance);
    }
    return sum;
}
#else
var<workgroup> lane_values: array<f32, WORKGROUP>;

// All invocations of the workgroup.
fn sum_of_lanes(value: f32, t: u32) -> f32 {
    workgroupBarrier();
    lane_values[t] = value;
    workgroupBarrier();
    var sum = value;
    if t % LANES == 0u {
        for (var i = 1u; i < LANES; i++) {
            sum += lane_values[t + i];
        }
    }
    return sum;
}
#endif
