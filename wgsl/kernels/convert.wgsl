// Stored rows of keys or values as another format stores them: read, turned back if they were turned, turned if they are to
// be, encoded. One workgroup a row of a head.
struct Params {
    // Rows of a head in the part that is read, and in the one that is written: position p is in row p % rows.
    from_rows: u32,
    to_rows: u32,
    // Of workgroup row 0.
    position: u32,
}

#import lib/halves
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> from_weights: array<u32>;
@group(0) @binding(4) var<storage, read_write> to_stored: array<u32>;

var<workgroup> turned: array<f32, DIM>;

#if TURNED
#import lib/turn
#endif
#import quant as from
#import encode as to

@compute @workgroup_size(WORKGROUP)
fn convert(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let head = workgroup.x;
    let position = params.position + workgroup.y;
    let source = (head * params.from_rows + position % params.from_rows) * from_WORDS;
    for (var first = 32u * t; first < DIM; first += 32u * WORKGROUP) {
        from_unpack(4u * source + first / from_BLOCK * from_BLOCK_BYTES, first % from_BLOCK / 32u);
        for (var i = 0u; i < 8u; i++) {
            let four = from_four(i);
            // A dense row may end within 32 numbers.
            for (var j = 0u; j < 4u && first + 4u * i + j < DIM; j++) {
                turned[first + 4u * i + j] = four[j];
            }
        }
    }
    workgroupBarrier();
#if FROM_TURNED
    turn_back(t);
#endif
#if TO_TURNED
    turn(t);
#endif
    to_encode(t);
    let place = (head * params.to_rows + position % params.to_rows) * to_WORDS;
    for (var i = t; i < to_WORDS; i += WORKGROUP) {
        to_stored[place + i] = to_word(i);
    }
}
