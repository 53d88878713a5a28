// A row of a cache in blocks of codes, made by all invocations of a workgroup. The user declares `turned`, DIM numbers,
// and BYTES of a block. A format's file declares
// - BLOCK, the numbers of a block, and HEADER, the bytes before its codes;
// - `measure(t)`, by all invocations, which fills `numbers` and `headers`;
// - `code(value, numbers)`;
// - `code_byte(first, at)`: byte `at` of the codes of a block of which number `first` is the first.
const BLOCKS: u32 = DIM / BLOCK;

// Of each block: what its codes are made with, and what is stored before them.
var<workgroup> numbers: array<vec2<f32>, BLOCKS>;
var<workgroup> headers: array<u32, BLOCKS>;
var<workgroup> codes: array<u32, DIM>;

fn encode(t: u32) {
    measure(t);
    workgroupBarrier();
    for (var i = t; i < DIM; i += WORKGROUP) {
        codes[i] = code(turned[i], numbers[i / BLOCK]);
    }
    workgroupBarrier();
}

// The least and the most of the numbers of block `t`.
fn extremes(t: u32) -> vec2<f32> {
    var least = turned[t * BLOCK];
    var most = least;
    for (var i = 1u; i < BLOCK; i++) {
        least = min(least, turned[t * BLOCK + i]);
        most = max(most, turned[t * BLOCK + i]);
    }
    return vec2(least, most);
}

// Word `i` of the row as it is stored; behind its last byte 0.
fn word(i: u32) -> u32 {
    return byte(4u * i) | (byte(4u * i + 1u) << 8u) | (byte(4u * i + 2u) << 16u) | (byte(4u * i + 3u) << 24u);
}

fn byte(at: u32) -> u32 {
    let block = at / BYTES;
    let place = at % BYTES;
    if block >= BLOCKS {
        return 0u;
    }
    if place < HEADER {
        return (headers[block] >> (8u * place)) & 0xffu;
    }
    return code_byte(block * BLOCK, place - HEADER);
}
