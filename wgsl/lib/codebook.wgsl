// The codebook of TurboQuant's values of BITS bits.
#import lib/tables

// Where it begins: behind those of fewer bits, of which 2^BITS numbers and what lies between them are stored. Those of 8
// bits come next after 5.
const ORDER: u32 = min(BITS, 6u);
const FIRST: u32 = (2u << ORDER) - ORDER - 6u;

fn centroid(code: u32) -> f32 {
    return bitcast<f32>(tables[FIRST + code]);
}

// Of the numbers between neighbours the one behind `code`.
fn boundary(code: u32) -> f32 {
    return bitcast<f32>(tables[FIRST + (1u << BITS) + code]);
}
