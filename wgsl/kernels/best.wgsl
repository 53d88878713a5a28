// The highest elements of each slice of a row: descending, equal ones in order. One workgroup a slice. Each invocation
// knows the best of its own elements; the best of those is taken `count` times, and only its owner has to look again.
struct Params {
    // Of the row: first element, and elements.
    offset: u32,
    len: u32,
    // Taken from each slice.
    count: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
#if PAIRS
// What an earlier run of this kernel took, slice by slice: equal elements are still in order.
@group(0) @binding(2) var<storage, read> row: array<vec2<u32>>;
#else
@group(0) @binding(2) var<storage, read> row: array<u32>;
#endif
// slices x count: bits of the value, and its column.
@group(0) @binding(4) var<storage, read_write> y: array<vec2<u32>>;

// Rank of what is taken already or behind the end, and its column.
const NOTHING: u32 = 0xffffffffu;
const SLICE: u32 = EACH * WORKGROUP;

var<workgroup> ranks: array<u32, SLICE>;
// Rank and place in the slice.
var<workgroup> folded: array<vec2<u32>, WORKGROUP>;

// Less is better. Floats of one sign are ordered like their bits. NaN and +infinity are the best, so that they are seen.
fn rank(bits: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    if bits == 0x7f800000u || magnitude > 0x7f800000u {
        return 0u;
    }
    return select(0x7fffffffu - magnitude, bits, bits > 0x80000000u);
}

fn pair(i: u32) -> vec2<u32> {
#if PAIRS
    return row[params.offset + i];
#else
    return vec2(row[params.offset + i], i);
#endif
}

fn is_better(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x < b.x || (a.x == b.x && a.y < b.y);
}

// Of the elements of invocation `t`.
fn own_best(t: u32) -> vec2<u32> {
    var found = vec2(NOTHING);
    for (var i = t; i < SLICE; i += WORKGROUP) {
        let candidate = vec2(ranks[i], i);
        if is_better(candidate, found) {
            found = candidate;
        }
    }
    return found;
}

@compute @workgroup_size(WORKGROUP)
fn best(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let first = workgroup.x * SLICE;
    for (var i = t; i < SLICE; i += WORKGROUP) {
        var found = NOTHING;
        if first + i < params.len {
            let element = pair(first + i);
            if element.y != NOTHING {
                found = rank(element.x);
            }
        }
        ranks[i] = found;
    }
    var own = own_best(t);
    for (var n = 0u; n < params.count; n++) {
        folded[t] = own;
        workgroupBarrier();
        for (var half = WORKGROUP / 2u; half > 0u; half >>= 1u) {
            if t < half && is_better(folded[t + half], folded[t]) {
                folded[t] = folded[t + half];
            }
            workgroupBarrier();
        }
        let taken = folded[0];
        workgroupBarrier();
        let at = workgroup.x * params.count + n;
        if taken.y % WORKGROUP == t {
            if taken.x == NOTHING {
                y[at] = vec2(NOTHING);
            } else {
                y[at] = pair(first + taken.y);
                ranks[taken.y] = NOTHING;
                own = own_best(t);
            }
        }
    }
}
