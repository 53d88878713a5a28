// TurboQuant's tables as `quant/turbo/tables.rs` has them: for codes of 2, 3, 4, 5 and 8 bits the codebook and what lies
// between its neighbours, as f32; then for rows of 64, 128, 256 and 512 elements a sign bit each.
@group(0) @binding(7) var<storage, read> tables: array<u32>;
