// Affine groups of MLX: an f32 scale, an f32 bias, then codes of BITS bits, lowest first. The user declares BITS.
#import lib/unpacked
#import lib/words

// Of four codes, a byte each.
const MOST: u32 = (1u << BITS) - 1u;

fn unpack(at: u32, group: u32) {
    let scale = bitcast<f32>(whole_at(at));
    let bias = bitcast<f32>(whole_at(at + 4u));
    scales = vec2(scale);
    // Codes are signed bytes, so that those of 8 bits are taken as 128 less.
    offsets = vec2(select(bias, bias + 128.0 * scale, BITS == 8u));
    // 32 codes are as many words as a code has bits.
    let first = (at >> 2u) + 2u + BITS * group;
    for (var i = 0u; i < 8u; i++) {
        let word = first + ((4u * BITS * i) >> 5u);
        let shift = (4u * BITS * i) & 31u;
        var bits = weights[word] >> shift;
        if shift + 4u * BITS > 32u {
            bits |= weights[word + 1u] << (32u - shift);
        }
        codes[i] = four_codes(bits);
    }
}

// The lowest four codes, a byte each.
fn four_codes(bits: u32) -> u32 {
    if BITS == 8u {
        return bits ^ 0x80808080u;
    }
    return (bits & MOST)
        | ((bits << (8u - BITS)) & (MOST << 8u))
        | ((bits << (16u - 2u * BITS)) & (MOST << 16u))
        | ((bits << (24u - 3u * BITS)) & (MOST << 24u));
}
