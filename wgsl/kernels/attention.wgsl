// Causal attention with an online softmax. Query rows of all heads that share a head of keys are counted together, row by
// row; a workgroup takes QUERIES of them and goes over tiles of KEYS keys. With SPLIT, several workgroups share the keys
// and `combine` joins what they found. Keys of packed formats are taken apart by the invocation that multiplies them, which
// takes all queries; such values become numbers in the workgroup's memory, LOADED keys' at once.
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
    rows: u32,
    // Row 0 in `out`.
    first_row: u32,
    // Positions of keys that are bound.
    first_key: u32,
    end_key: u32,
    // Keys of a workgroup.
    segment: u32,
    // Of workgroup 0 among all, which are bound one after the other.
    first_segment: u32,
    segments: u32,
}

#import lib/cache
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> rows: array<f32>;
#if KEYS_PACKED
@group(0) @binding(2) var<storage, read> keys_weights: array<u32>;
#import quant as keys
#else
#if KEYS_F32
@group(0) @binding(2) var<storage, read> keys: array<vec4<f32>>;
#else
@group(0) @binding(2) var<storage, read> keys: array<vec2<u32>>;
#endif
#endif
#if VALUES_PACKED
@group(0) @binding(3) var<storage, read> values_weights: array<u32>;
#import quant as values
#else
#if VALUES_F32
@group(0) @binding(3) var<storage, read> values: array<vec4<f32>>;
#else
@group(0) @binding(3) var<storage, read> values: array<vec2<u32>>;
#endif
#endif
// rows x heads x DIM; with SPLIT rows x heads x segments x (DIM sums, highest score, total weight, 0, 0)
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;
#if SINKS
@group(0) @binding(5) var<storage, read> sinks: array<f32>;
#endif

const SHARE: u32 = HEADS / KV_HEADS;
const FOURS: u32 = DIM / 4u;
// Of 32 numbers each, as packed ones are read.
const GROUPS: u32 = DIM / 32u;
// Rows of scores, apart so that invocations of different queries meet different banks.
const STRIDE: u32 = KEYS + 1u;
// Queries whose scores are computed at once, and how often, for all queries.
const SCORED: u32 = WORKGROUP / KEYS;
const SCORE_STEPS: u32 = (QUERIES + SCORED - 1u) / SCORED;
// Invocations that share the keys among whose values they sum four dimensions, of all queries.
const SLICES: u32 = WORKGROUP / FOURS;
// Invocations that share the weights of a query, and of how many keys each.
const WEIGHERS: u32 = min(KEYS / 4u, WORKGROUP / QUERIES);
const WEIGHED: u32 = KEYS / WEIGHERS;
// Less than any score: a key that a query does not see.
const UNSEEN: f32 = -3.0e38;
// Fours of dense keys, whose rows are apart as those of scores are; then of packed values; last of sums.
#if KEYS_PACKED
const KEY_FOURS: u32 = 0u;
#else
const KEY_FOURS: u32 = FOURS * (KEYS + 1u);
#endif
#if VALUES_PACKED
const VALUE_FOURS: u32 = FOURS * LOADED;
#else
const VALUE_FOURS: u32 = 0u;
#endif

var<workgroup> queries: array<vec4<f32>, QUERIES * FOURS>;
var<workgroup> tile: array<vec4<f32>, max(WORKGROUP, max(KEY_FOURS, VALUE_FOURS))>;
var<workgroup> scores: array<f32, QUERIES * STRIDE>;
var<workgroup> weights: array<f32, QUERIES * STRIDE>;
var<workgroup> factors: array<f32, QUERIES>;
var<workgroup> highest_scores: array<f32, QUERIES>;
var<workgroup> raised_scores: array<f32, QUERIES * WEIGHERS>;
var<workgroup> totals: array<f32, QUERIES * WEIGHERS>;

// Numbers 4 i to 4 i + 3 of all that are stored.
#if KEYS_PACKED
#else
fn keys_four(i: u32) -> vec4<f32> {
#if KEYS_F32
    return keys[i];
#else
    let pairs = keys[i];
#if KEYS_BF16
    return bitcast<vec4<f32>>(vec4(pairs.x << 16u, pairs.x & 0xffff0000u, pairs.y << 16u, pairs.y & 0xffff0000u));
#else
    return vec4(two_halves(pairs.x), two_halves(pairs.y));
#endif
#endif
}
#endif

#if VALUES_PACKED
#else
fn values_four(i: u32) -> vec4<f32> {
#if VALUES_F32
    return values[i];
#else
    let pairs = values[i];
#if VALUES_BF16
    return bitcast<vec4<f32>>(vec4(pairs.x << 16u, pairs.x & 0xffff0000u, pairs.y << 16u, pairs.y & 0xffff0000u));
#else
    return vec4(two_halves(pairs.x), two_halves(pairs.y));
#endif
#endif
}
#endif

// Of a query: its row may lie behind the last one.
fn row_of(query: u32) -> u32 {
    return query / SHARE;
}

fn load_queries(first: u32, kv_head: u32, t: u32) {
    for (var i = t; i < QUERIES * FOURS; i += WORKGROUP) {
        let query = first + i / FOURS;
        let row = min(row_of(query), params.rows - 1u);
        let head = kv_head * SHARE + query % SHARE;
        let at = params.query + row * params.stride + head * DIM + 4u * (i % FOURS);
        queries[i] = vec4(rows[at], rows[at + 1u], rows[at + 2u], rows[at + 3u]);
    }
}

// Which of the queries an invocation scores next: all of them where there is a key for each invocation.
fn scored(step: u32, t: u32) -> u32 {
    if SCORED == 1u {
        return step;
    }
    return t / KEYS + step * SCORED;
}

#if KEYS_PACKED
// Sums of products of the invocation's key and the queries it scores.
fn multiply_key(kv_head: u32, begin: u32, end: u32, t: u32) -> array<f32, SCORE_STEPS> {
    var sums: array<f32, SCORE_STEPS>;
    let row = row_index(kv_head, min(begin + t % KEYS, end - 1u)) * 4u * keys_WORDS;
    for (var group = 0u; group < GROUPS; group++) {
        let first = 32u * group;
        keys_unpack(row + first / keys_BLOCK * keys_BLOCK_BYTES, first % keys_BLOCK / 32u);
        for (var i = 0u; i < 8u; i++) {
            let key = keys_four(i);
            for (var step = 0u; step < SCORE_STEPS; step++) {
                sums[step] += dot(key, queries[min(scored(step, t), QUERIES - 1u) * FOURS + 8u * group + i]);
            }
        }
    }
    return sums;
}
#else
fn load_keys(kv_head: u32, begin: u32, end: u32, t: u32) {
    for (var i = t; i < KEYS * FOURS; i += WORKGROUP) {
        let key = min(begin + i / FOURS, end - 1u);
        tile[(i % FOURS) * (KEYS + 1u) + i / FOURS] = keys_four(row_index(kv_head, key) * FOURS + i % FOURS);
    }
}

fn multiply_key(kv_head: u32, begin: u32, end: u32, t: u32) -> array<f32, SCORE_STEPS> {
    load_keys(kv_head, begin, end, t);
    workgroupBarrier();
    var sums: array<f32, SCORE_STEPS>;
    for (var i = 0u; i < FOURS; i++) {
        let key = tile[i * (KEYS + 1u) + t % KEYS];
        for (var step = 0u; step < SCORE_STEPS; step++) {
            sums[step] += dot(key, queries[min(scored(step, t), QUERIES - 1u) * FOURS + i]);
        }
    }
    return sums;
}
#endif

#if VALUES_PACKED
// Those of LOADED keys from `begin` on.
fn load_values(kv_head: u32, begin: u32, end: u32, t: u32) {
    for (var i = t; i < LOADED * GROUPS; i += WORKGROUP) {
        let slot = i / GROUPS;
        let first = 32u * (i % GROUPS);
        let row = row_index(kv_head, min(begin + slot, end - 1u));
        let at = row * 4u * values_WORDS + first / values_BLOCK * values_BLOCK_BYTES;
        values_unpack(at, first % values_BLOCK / 32u);
        for (var j = 0u; j < 8u; j++) {
            tile[slot * FOURS + first / 4u + j] = values_four(j);
        }
    }
}
#endif

fn score_keys(kv_head: u32, first: u32, begin: u32, end: u32, t: u32) {
    let slot = t % KEYS;
    let sums = multiply_key(kv_head, begin, end, t);
    for (var step = 0u; step < SCORE_STEPS; step++) {
        let query = scored(step, t);
        var score = sums[step] * params.scale;
        if params.softcap != 0.0 {
            score = params.softcap * tanh(clamp(score / params.softcap, -15.0, 15.0));
        }
        let key = begin + slot;
        let position = params.start + row_of(first + query);
        let seen = key < end && key <= position && position - key < params.window;
        if query < QUERIES {
            scores[query * STRIDE + slot] = select(UNSEEN, score, seen);
        }
    }
}

// Four dimensions of what was found for a query: `index` counts rows and heads.
fn store(query: u32, index: u32, segment: u32, dimension: u32, sum: vec4<f32>) {
    var total = 0.0;
    for (var i = 0u; i < WEIGHERS; i++) {
        total += totals[query * WEIGHERS + i];
    }
    let highest = highest_scores[query];
#if SPLIT
    let place = (index * params.segments + params.first_segment + segment) * (FOURS + 1u);
    out[place + dimension] = sum;
    if dimension == 0u {
        out[place + FOURS] = vec4(highest, total, 0.0, 0.0);
    }
#else
#if SINKS
    let sink = sinks[index % HEADS];
    let raised = max(highest, sink);
    let factor = exp(highest - raised);
    out[index * FOURS + dimension] = sum * (factor / (total * factor + exp(sink - raised)));
#else
    out[index * FOURS + dimension] = sum / total;
#endif
#endif
}

@compute @workgroup_size(WORKGROUP)
fn attention(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) t: u32,
) {
    let kv_head = workgroup.x;
    let first = workgroup.y * QUERIES;
    load_queries(first, kv_head, t);
    workgroupBarrier();
    // What the first and the last row of the workgroup see.
    let lowest = params.start + row_of(first) + 1u;
    let last = min(row_of(first + QUERIES - 1u), params.rows - 1u);
    let visible = max(lowest - min(lowest, params.window), params.first_key);
    let begin = visible + workgroup.z * params.segment;
    let end = min(min(params.start + last + 1u, params.end_key), begin + params.segment);

    // Of the query that this invocation weighs keys for.
    let weighed = t / WEIGHERS;
    let own_slot = weighed * STRIDE + WEIGHED * (t % WEIGHERS);
    var highest = UNSEEN;
    var total = 0.0;
    let dimension = t % FOURS;
    var sums: array<vec4<f32>, QUERIES>;
    for (var at = begin; at < end; at += KEYS) {
        score_keys(kv_head, first, at, end, t);
        workgroupBarrier();
        var own: array<f32, WEIGHED>;
        if weighed < QUERIES {
            var raised = highest;
            for (var i = 0u; i < WEIGHED; i++) {
                own[i] = scores[own_slot + i];
                raised = max(raised, own[i]);
            }
            raised_scores[t] = raised;
        }
        workgroupBarrier();
        if weighed < QUERIES {
            var raised = highest;
            for (var i = 0u; i < WEIGHERS; i++) {
                raised = max(raised, raised_scores[weighed * WEIGHERS + i]);
            }
            let factor = exp(highest - raised);
            total *= factor;
            for (var i = 0u; i < WEIGHED; i++) {
                let weight = select(0.0, exp(own[i] - raised), own[i] > UNSEEN);
                weights[own_slot + i] = weight;
                total += weight;
            }
            highest = raised;
            if t % WEIGHERS == 0u {
                factors[weighed] = factor;
            }
        }
        // Values that are loaded are so before others read them; dense ones are read where they are.
        for (var some = at; some < min(at + KEYS, end); some += LOADED) {
#if VALUES_PACKED
            load_values(kv_head, some, end, t);
#endif
            workgroupBarrier();
            if some == at {
                for (var query = 0u; query < QUERIES; query++) {
                    sums[query] *= factors[query];
                }
            }
            for (var i = t / FOURS; i < min(LOADED, end - some); i += SLICES) {
#if VALUES_PACKED
                let value = tile[i * FOURS + dimension];
#else
                let value = values_four(row_index(kv_head, some + i) * FOURS + dimension);
#endif
                for (var query = 0u; query < QUERIES; query++) {
                    sums[query] += weights[query * STRIDE + some - at + i] * value;
                }
            }
#if VALUES_PACKED
            workgroupBarrier();
#endif
        }
    }
    if weighed < QUERIES {
        totals[t] = total;
        if t % WEIGHERS == 0u {
            highest_scores[weighed] = highest;
        }
    }
    for (var query = 0u; query < QUERIES; query++) {
        workgroupBarrier();
        tile[t] = sums[query];
        workgroupBarrier();
        let row = row_of(first + query);
        if t < FOURS && row < params.rows {
            let head = kv_head * SHARE + (first + query) % SHARE;
            var sum = tile[t];
            for (var i = 1u; i < SLICES; i++) {
                sum += tile[i * FOURS + t];
            }
            store(query, (params.first_row + row) * HEADS + head, workgroup.z, t, sum);
        }
    }
}
