// Stored weights as bytes. The user declares `weights`, an array of words. Blocks have any size, so words are read at any
// byte; a word behind the last one is there.
#import lib/halves

// 32 bits from byte `at` on.
fn word_at(at: u32) -> u32 {
    let word = at >> 2u;
    let shift = (at & 3u) * 8u;
    let low = weights[word] >> shift;
    // A shift by 32 is none in WGSL.
    let high = select(weights[word + 1u] << (32u - shift), 0u, shift == 0u);
    return low | high;
}

// 16 bits from byte `at` on.
fn pair_at(at: u32) -> u32 {
    return word_at(at) & 0xffffu;
}

fn byte_at(at: u32) -> u32 {
    return (weights[at >> 2u] >> ((at & 3u) * 8u)) & 0xffu;
}

fn half_at(at: u32) -> f32 {
    return half(pair_at(at));
}
