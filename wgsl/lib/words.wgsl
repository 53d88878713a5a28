// Reads of what lies at known places. Tensors begin at whole words, so that a block of even size begins at an even
// byte, and one whose size is a multiple of 4 at a word.
#import lib/weights

// The word at `at`, a multiple of 4.
fn whole_at(at: u32) -> u32 {
    return weights[at >> 2u];
}

// 16 bits from the even byte `at` on.
fn even_pair_at(at: u32) -> u32 {
    return (weights[at >> 2u] >> ((at & 2u) * 8u)) & 0xffffu;
}

fn even_half_at(at: u32) -> f32 {
    return half(even_pair_at(at));
}

// Words that follow each other, from any byte on: each stored word is read once.
struct Words {
    next: u32,
    shift: u32,
    low: u32,
}

fn words_at(at: u32) -> Words {
    let word = at >> 2u;
    return Words(word + 1u, (at & 3u) * 8u, weights[word]);
}

fn next_word(words: ptr<function, Words>) -> u32 {
    let high = weights[(*words).next];
    let shift = (*words).shift;
    // In two steps, as a shift by 32 is none.
    let word = ((*words).low >> shift) | ((high << 1u) << (31u - shift));
    (*words).low = high;
    (*words).next += 1u;
    return word;
}
