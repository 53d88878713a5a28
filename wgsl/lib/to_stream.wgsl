// Codes of BITS bits as a bit stream, see `lib/stream`.
fn code_byte(first: u32, at: u32) -> u32 {
    let bit = 8u * at;
    var bits = 0u;
    for (var i = bit / BITS; i * BITS < bit + 8u; i++) {
        // A code may begin up to 7 bits before the byte.
        bits |= codes[first + i] << (i * BITS + 8u - bit);
    }
    return (bits >> 8u) & 0xffu;
}
