// x = cap * tanh(x / cap).
struct Params {
    len: u32,
    cap: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn softcap(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
) {
    for (var i = id.x; i < params.len; i += WORKGROUP * workgroups.x) {
        y[i] = params.cap * tanh(clamp(y[i] / params.cap, -15.0, 15.0));
    }
}
