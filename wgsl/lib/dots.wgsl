// Tiles of codes in the workgroup's memory, and their products four at a time. The user declares TILE_ROWS and TOKENS.
var<workgroup> w_codes: array<u32, TILE_ROWS * 8u>;
var<workgroup> x_codes_of_tile: array<u32, TOKENS * 8u>;

// Codes 4 i to 4 i + 3 of the weights in a slot.
fn keep_weights(slot: u32, i: u32, codes: u32) {
    w_codes[8u * slot + i] = codes;
}

// Of the token in a slot.
fn keep_tokens(slot: u32, i: u32, codes: u32) {
    x_codes_of_tile[8u * slot + i] = codes;
}

// Of the first and of the second 16 columns, for weights in slot `r` and a token in slot `t`.
fn sums_of(r: u32, t: u32) -> vec2<f32> {
    var first = 0;
    var second = 0;
    for (var i = 0u; i < 4u; i++) {
        first += dot4I8Packed(w_codes[8u * r + i], x_codes_of_tile[8u * t + i]);
        second += dot4I8Packed(w_codes[8u * r + i + 4u], x_codes_of_tile[8u * t + i + 4u]);
    }
    return vec2<f32>(f32(first), f32(second));
}
