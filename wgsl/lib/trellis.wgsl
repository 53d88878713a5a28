// Trellis codes: weight j of a block has the state that the 12 bits from bit j k on are; behind the last bit of the ring comes
// the first again. The sum of the bytes of two 16-bit products of the state, over 8 and less 63, is its code.
#import lib/unpacked
#import lib/words
#import lib/bytes

fn trellis(at: u32, group: u32, k: u32) {
    scales = vec2(even_half_at(at + 32u * k));
    offsets = vec2(0.0);
    // 32 weights are k words, and their last state reaches into the next one: of the last 32 it is the first of the ring.
    let start = at + 4u * k * group;
    var words = words_at(start);
    var low = next_word(&words);
    var left = k - 1u;
    var high = next_or_first(&words, at, group, left);
    var shift = 0u;
    for (var i = 0u; i < 8u; i++) {
        var four = 0u;
        for (var j = 0u; j < 4u; j++) {
            // In two steps, as a shift by 32 is none.
            let state = ((low >> shift) | ((high << 1u) << (31u - shift))) & 0xfffu;
            let products = ((state * 48657u) & 0xffffu) | ((state * 53921u) << 16u);
            four |= (dot4U8Packed(products, 0x01010101u) >> 3u) << (8u * j);
            shift += k;
            if shift >= 32u {
                shift -= 32u;
                low = high;
                left -= 1u;
                high = next_or_first(&words, at, group, left);
            }
        }
        codes[i] = less_bytes(four, 0x3f3f3f3fu);
    }
}

// The next word of the 32 weights, of which `left` are left, or what follows them.
fn next_or_first(words: ptr<function, Words>, at: u32, group: u32, left: u32) -> u32 {
    if left == 0u && group == 7u {
        return word_at(at);
    }
    return next_word(words);
}
