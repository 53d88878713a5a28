// F16: two numbers a word.
#import lib/halves

fn encode(t: u32) {}

fn word(i: u32) -> u32 {
    return to_half(turned[2u * i]) | (to_half(turned[2u * i + 1u]) << 16u);
}
