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

#if CODES
// Codes are those that the CPU makes of a row: INPUT elements share a scale, 32 as in Q8_0 or 256 as in Q8_K. Neighbouring
// invocations take four neighbouring elements each. The user declares `store_word(row, word, codes)`, and
// `store_group(row, group, scale, sums)` with the sums of the first and the second 16 elements that 32 codes stand for.
#import lib/divide

// Of four elements each.
var<workgroup> extremes: array<f32, WORKGROUP>;
var<workgroup> code_sums: array<i32, WORKGROUP>;
// Of 32 each.
var<workgroup> wide_extremes: array<f32, WORKGROUP / 8u>;

// The value of the larger magnitude, the first of two that are equal.
fn larger(a: f32, b: f32) -> f32 {
    return select(a, b, abs(b) > abs(a));
}

// Of elements that share a scale, of which `four` are this invocation's: the first value of the largest magnitude.
fn extreme_of_group(four: vec4<f32>, t: u32) -> f32 {
    extremes[t] = larger(larger(four.x, four.y), larger(four.z, four.w));
    workgroupBarrier();
    var extreme = 0.0;
    for (var i = 0u; i < 8u; i++) {
        extreme = larger(extreme, extremes[(t & ~7u) + i]);
    }
    if INPUT == 256u {
        if t % 8u == 0u {
            wide_extremes[t / 8u] = extreme;
        }
        workgroupBarrier();
        extreme = 0.0;
        for (var i = 0u; i < 8u; i++) {
            extreme = larger(extreme, wide_extremes[(t / 64u) * 8u + i]);
        }
    }
    return extreme;
}

// The scale of elements, and what they are multiplied with. Scales below the smallest normal number are 0 on some
// devices: elements that would have one are.
fn scale_and_factor(extreme: f32) -> vec2<f32> {
    let magnitude = abs(extreme);
    if magnitude < 1.5e-36 {
        return vec2(0.0);
    }
    if INPUT == 256u {
        let factor = -sign(extreme) * divide(127.0, magnitude);
        return vec2(1.0 / factor, factor);
    }
    let scale = divide(magnitude, 127.0);
    return vec2(scale, divide(1.0, scale));
}

// To nearest: halves to even in 256, away from zero in 32.
fn rounded(values: vec4<f32>) -> vec4<i32> {
    if INPUT == 256u {
        return vec4<i32>(round(values));
    }
    // In integers, as compilers may contract a product with what is added to it.
    let doubled = vec4<i32>(values * 2.0);
    return (doubled + vec4<i32>(sign(values))) / 2;
}

// All invocations of the workgroup.
fn quantize_row(row: u32, t: u32) {
    for (var begin = 0u; begin < K / 4u; begin += WORKGROUP) {
        let word = begin + t;
        var four = vec4(0.0);
        if word < K / 4u {
            let at = 4u * word;
            four = vec4(value(row, at), value(row, at + 1u), value(row, at + 2u), value(row, at + 3u));
        }
        let numbers = scale_and_factor(extreme_of_group(four, t));
        let codes = rounded(four * numbers.y);
        code_sums[t] = codes.x + codes.y + codes.z + codes.w;
        if word < K / 4u {
            let bytes = bitcast<vec4<u32>>(codes) & vec4(0xffu);
            store_word(row, word, bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u));
        }
        workgroupBarrier();
        if t % 8u == 0u && word < K / 4u {
            let first = code_sums[t] + code_sums[t + 1u] + code_sums[t + 2u] + code_sums[t + 3u];
            let second = code_sums[t + 4u] + code_sums[t + 5u] + code_sums[t + 6u] + code_sums[t + 7u];
            store_group(row, word / 8u, numbers.x, vec2(f32(first), f32(second)) * numbers.x);
        }
    }
}
#endif
