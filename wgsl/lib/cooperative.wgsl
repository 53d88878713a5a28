// Tiles of codes in the workgroup's memory, and their products by cooperative matrices of SIDE x SIDE, which the invocations
// of a subgroup hold together. Exact: halves hold whole numbers up to 2048, of which codes are at most 128; products are
// below 2^15 and sums of 16 below 2^19, which f32 holds in any order. The user declares TILE_ROWS and TOKENS.
enable f16;
enable wgpu_cooperative_matrix;

#if SIXTEEN
const SIDE: u32 = 16u;
alias Left = coop_mat16x16<f16, A>;
alias Right = coop_mat16x16<f16, B>;
alias Sums = coop_mat16x16<f32, C>;
#else
const SIDE: u32 = 8u;
alias Left = coop_mat8x8<f16, A>;
alias Right = coop_mat8x8<f16, B>;
alias Sums = coop_mat8x8<f32, C>;
#endif

const COLUMNS: u32 = 32u;
// Of sums of 16 columns.
const MATRICES: u32 = TILE_ROWS / SIDE * (TOKENS / SIDE);

var<workgroup> w_halves: array<f16, TILE_ROWS * COLUMNS>;
var<workgroup> x_halves: array<f16, TOKENS * COLUMNS>;
// Of the first and of the second 16 columns: TILE_ROWS x TOKENS.
var<workgroup> sums_of_tile: array<f32, 2u * TILE_ROWS * TOKENS>;

// Codes 4 i to 4 i + 3 of the weights in a slot.
fn keep_weights(slot: u32, i: u32, codes: u32) {
    let four = vec4<f16>(unpack4xI8(codes));
    let at = COLUMNS * slot + 4u * i;
    for (var j = 0u; j < 4u; j++) {
        w_halves[at + j] = four[j];
    }
}

// Of the token in a slot.
fn keep_tokens(slot: u32, i: u32, codes: u32) {
    let four = vec4<f16>(unpack4xI8(codes));
    let at = COLUMNS * slot + 4u * i;
    for (var j = 0u; j < 4u; j++) {
        x_halves[at + j] = four[j];
    }
}

// By all invocations; barriers before and after it are the caller's. Subgroups take turns.
fn multiply(subgroup: u32, subgroups: u32) {
    for (var i = subgroup; i < 2u * MATRICES; i += subgroups) {
        let half = i / MATRICES;
        let row = i % MATRICES / (TOKENS / SIDE) * SIDE;
        let token = i % (TOKENS / SIDE) * SIDE;
        var found: Sums;
        for (var column = 16u * half; column < 16u * half + 16u; column += SIDE) {
            let left = coopLoadT<Left>(&w_halves[COLUMNS * row + column], COLUMNS);
            // A token's codes are a column of the right matrix.
            let right = coopLoad<Right>(&x_halves[COLUMNS * token + column], COLUMNS);
            found = coopMultiplyAdd(left, right, found);
        }
        coopStoreT(found, &sums_of_tile[(half * TILE_ROWS + row) * TOKENS + token], TOKENS);
    }
}

// Of the first and of the second 16 columns, for weights in slot `r` and a token in slot `t`.
fn sums_of(r: u32, t: u32) -> vec2<f32> {
    return vec2(sums_of_tile[r * TOKENS + t], sums_of_tile[(TILE_ROWS + r) * TOKENS + t]);
}
