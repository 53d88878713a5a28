// What a matrix reads: rows of f32, normalized or gated on the way. The user declares `params` with x_offset,
// x_stride, y_offset (of the gate's second operand) and eps.
@group(0) @binding(2) var<storage, read> x: array<f32>;
#if NORMED
@group(0) @binding(3) var<storage, read> norm: array<f32>;
#endif

var<workgroup> squares: array<f32, WORKGROUP>;
// 1 / sqrt(mean(x²) + eps) of the row.
var<private> inverse_rms: f32;

// All invocations of the workgroup: before `value` of row `row`.
fn read_row(row: u32, t: u32) {
#if NORMED
    var sum = 0.0;
    for (var i = t; i < K; i += WORKGROUP) {
        let value = x[params.x_offset + row * params.x_stride + i];
        sum += value * value;
    }
    squares[t] = sum;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half >>= 1u) {
        if t < half {
            squares[t] += squares[t + half];
        }
        workgroupBarrier();
    }
    inverse_rms = inverseSqrt(squares[0] / f32(K) + params.eps);
#endif
}

// Element `i` of row `row`.
fn value(row: u32, i: u32) -> f32 {
    let a = x[params.x_offset + row * params.x_stride + i];
#if NORMED
    return a * inverse_rms * norm[i];
#else
#if SILU
    return a / (1.0 + exp(-a)) * x[params.y_offset + row * params.x_stride + i];
#else
#if GELU
    // tanh overflows for large arguments on some devices, where it has long reached 1.
    let inner = clamp(0.7978846 * (a + 0.044715 * a * a * a), -15.0, 15.0);
    return 0.5 * a * (1.0 + tanh(inner)) * x[params.y_offset + row * params.x_stride + i];
#else
    return a;
#endif
#endif
#endif
}

// 32 elements from `32 * group` on as signed bytes: code = round(value / scale), scale = largest magnitude / 127.
var<private> group_codes: array<u32, 8>;
var<private> group_scale: f32;
// scale * sum of the first and the second 16 codes.
var<private> group_sums: vec2<f32>;

fn quantize_group(row: u32, group: u32) {
    var values: array<vec4<f32>, 8>;
    var largest = 0.0;
    for (var i = 0u; i < 8u; i++) {
        let at = 32u * group + 4u * i;
        let four = vec4(value(row, at), value(row, at + 1u), value(row, at + 2u), value(row, at + 3u));
        values[i] = four;
        let magnitudes = abs(four);
        largest = max(largest, max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w)));
    }
    group_scale = largest / 127.0;
    let inverse = select(127.0 / largest, 0.0, largest == 0.0);
    var sums = vec2<i32>(0);
    for (var i = 0u; i < 8u; i++) {
        let four = vec4<i32>(round(clamp(values[i] * inverse, vec4(-127.0), vec4(127.0))));
        let bytes = bitcast<vec4<u32>>(four) & vec4(0xffu);
        group_codes[i] = bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
        sums[i >> 2u] += four.x + four.y + four.z + four.w;
    }
    group_sums = vec2<f32>(sums) * group_scale;
}
