// Trellis codes: the ring of bits is cut into 16 lanes, of which word w (16 bits) is word 16 w + lane of the block; the 32 weights
// of `group` have the states that the 14 bits from bit 2 k group of each lane on are, two weights a state. Bits above a state
// do not reach the products.
#import lib/unpacked
#import lib/words
#import lib/bytes

fn trellis(at: u32, group: u32, k: u32) {
    scales = vec2(even_half_at(at + 32u * k));
    offsets = vec2(0.0);
    let word = 2u * k * group / 16u;
    let shift = 2u * k * group % 16u;
    let last = word + 1u == k;
    var lows = words_at(at + 32u * word);
    // Behind a lane's last word comes the first one of the next lane.
    let start = at + select(32u * (word + 1u), 0u, last);
    var highs = words_at(start);
    var high = next_word(&highs);
    for (var i = 0u; i < 8u; i++) {
        let low = next_word(&lows);
        var next = 0u;
        if i < 7u {
            next = next_word(&highs);
        } else {
            next = even_pair_at(start);
        }
        let both = select(high, (high >> 16u) | (next << 16u), last);
        high = next;
        let a = hash(((low & 0xffffu) >> shift) | (both << (16u - shift)));
        let b = hash(((low >> 16u) >> shift) | ((both >> 16u) << (16u - shift)));
        let hashes = a | (b << 16u);
        // Each byte is below 128: sums take no carry, and the bit that halving brings from the next byte is cut off.
        let means = ((hashes + table_of(hashes) + 0x01010101u) >> 1u) & 0x7f7f7f7fu;
        codes[i] = less_bytes(means, 0x3f3f3f3fu);
    }
}

// Two numbers of 7 bits, a byte each.
fn hash(state: u32) -> u32 {
    return ((((state * 43556u) & 0xffffu) * 60419u) >> 16u) & 0x7f7fu;
}

// For the lowest 4 bits of four bytes: 62 85 90 61 52 65 75 88 64 33 10 65 54 38 108 63.
fn table_of(numbers: u32) -> u32 {
    var all = 0u;
    for (var i = 0u; i < 32u; i += 8u) {
        let n = (numbers >> i) & 15u;
        let low = select(0x3d5a553eu, 0x584b4134u, n > 3u);
        let high = select(0x410a2140u, 0x3f6c2636u, n > 11u);
        all |= ((select(low, high, n > 7u) >> ((n & 3u) * 8u)) & 0xffu) << i;
    }
    return all;
}
