// New rows of queries, keys and values (in one buffer, row by row): normalizes the heads of queries and keys, rotates
// them, and stores keys and values in the cache as their formats say. Where keys are turned, so are queries, which
// nothing but attention reads. One workgroup a head of a row.
struct Params {
    // In `rows`: where queries, keys and values begin, and the distance of rows.
    query: u32,
    key: u32,
    value: u32,
    stride: u32,
    // Position of row 0.
    start: u32,
    // First row of this part of the cache.
    first: u32,
    query_eps: f32,
    key_eps: f32,
}

#import lib/cache
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> rows: array<f32>;
// rows x (PAIRS cosines, PAIRS sines)
@group(0) @binding(2) var<storage, read> turns: array<f32>;
@group(0) @binding(3) var<storage, read_write> keys: array<u32>;
@group(0) @binding(4) var<storage, read_write> values: array<u32>;
#if NORMED
// Of queries, then of keys.
@group(0) @binding(5) var<storage, read> norms: array<f32>;
#endif

var<workgroup> head_values: array<f32, DIM>;
var<workgroup> turned: array<f32, DIM>;
var<workgroup> squares: array<f32, WORKGROUP>;

#if TURNED
#import lib/turn
#endif
#import encode as keys
#import encode as values

@compute @workgroup_size(WORKGROUP)
fn append(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = params.first + workgroup.y;
    let index = workgroup.x;
    let is_query = index < HEADS;
    let is_value = index >= HEADS + KV_HEADS;
    var begin = params.query + index * DIM;
    var head = index - HEADS;
    if is_value {
        head -= KV_HEADS;
        begin = params.value + head * DIM;
    } else if !is_query {
        begin = params.key + head * DIM;
    }
    begin += row * params.stride;

    var sum = 0.0;
    for (var i = t; i < DIM; i += WORKGROUP) {
        let value = rows[begin + i];
        head_values[i] = value;
        sum += value * value;
    }
    squares[t] = sum;
    workgroupBarrier();
#if NORMED
    for (var half = WORKGROUP / 2u; half > 0u; half >>= 1u) {
        if t < half {
            squares[t] += squares[t + half];
        }
        workgroupBarrier();
    }
    if !is_value {
        let eps = select(params.key_eps, params.query_eps, is_query);
        let inverse = inverseSqrt(squares[0] / f32(DIM) + eps);
        let first = select(DIM, 0u, is_query);
        for (var i = t; i < DIM; i += WORKGROUP) {
            head_values[i] *= inverse * norms[first + i];
        }
    }
    workgroupBarrier();
#endif
    for (var i = t; i < DIM; i += WORKGROUP) {
        var value = head_values[i];
        if !is_value && i < 2u * PAIRS {
#if INTERLEAVED
            let pair = i / 2u;
            let second = i % 2u == 1u;
            let other = head_values[i ^ 1u];
#else
            let second = i >= PAIRS;
            let pair = select(i, i - PAIRS, second);
            let other = head_values[select(i + PAIRS, i - PAIRS, second)];
#endif
            let cosine = turns[row * 2u * PAIRS + pair];
            let sine = turns[row * 2u * PAIRS + PAIRS + pair];
            value = value * cosine + select(-other, other, second) * sine;
        }
        turned[i] = value;
    }
    workgroupBarrier();
#if KEYS_TURNED
    if !is_value {
        turn(t);
    }
#endif
#if VALUES_TURNED
    if is_value {
        turn(t);
    }
#endif
    if is_query {
        for (var i = t; i < DIM; i += WORKGROUP) {
            rows[begin + i] = turned[i];
        }
        return;
    }
    let at = row_index(head, params.start + row);
    if is_value {
        values_encode(t);
        for (var i = t; i < values_WORDS; i += WORKGROUP) {
            values[at * values_WORDS + i] = values_word(i);
        }
    } else {
        keys_encode(t);
        for (var i = t; i < keys_WORDS; i += WORKGROUP) {
            keys[at * keys_WORDS + i] = keys_word(i);
        }
    }
}
