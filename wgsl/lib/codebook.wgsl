// The codebook of TurboQuant's values of BITS bits.
#import lib/tables

// Where it begins: behind those of fewer bits, of which 2^BITS numbers and what lies between them are stored. Those of 8
// bits come next after 5.
const ORDER: u32 = min(BITS, 6u);
const FIRST: u32 = (2u << ORDER) - ORDER - 6u;

fn centroid(code: u32) -> f32 {
    return bitcast<f32>(tables[FIRST + code]);
}

fn four_centroids(first: u32) -> vec4<f32> {
    return vec4(centroid(first), centroid(first + 1u), centroid(first + 2u), centroid(first + 3u));
}

// What four codes of 2 or 3 bits stand for, chosen of the first four centroids and, of 3 bits, of the last four.
fn chosen(codes: vec4<u32>, first: vec4<f32>, last: vec4<f32>) -> vec4<f32> {
    let odd = (codes & vec4(1u)) != vec4(0u);
    let high = (codes & vec4(2u)) != vec4(0u);
    let of_first = select(
        select(vec4(first.x), vec4(first.y), odd), select(vec4(first.z), vec4(first.w), odd), high,
    );
    if BITS == 2u {
        return of_first;
    }
    let of_last = select(select(vec4(last.x), vec4(last.y), odd), select(vec4(last.z), vec4(last.w), odd), high);
    return select(of_first, of_last, codes >= vec4(4u));
}

// Of the numbers between neighbours the one behind `code`.
fn boundary(code: u32) -> f32 {
    return bitcast<f32>(tables[FIRST + (1u << BITS) + code]);
}
