// What a nibble of IQ4_NL and IQ4_XS stands for.
#import lib/nibbles
#import lib/bytes

// Bits of `one` where `bits` are set, of `zero` elsewhere.
fn pick(bits: u32, zero: u32, one: u32) -> u32 {
    return zero ^ ((zero ^ one) & bits);
}

// Of four nibbles, a byte each: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113. All 16 in all bytes, and
// each bit of the nibbles halves what is left: fewer steps than to shift a packed table for each byte.
fn iq4_values(v: u32) -> u32 {
    let a = byte_mask(v & 0x01010101u);
    let b = byte_mask((v >> 1u) & 0x01010101u);
    let c = byte_mask((v >> 2u) & 0x01010101u);
    let d = byte_mask((v >> 3u) & 0x01010101u);
    let v0 = pick(b, pick(a, 0x81818181u, 0x98989898u), pick(a, 0xadadadadu, 0xbfbfbfbfu));
    let v4 = pick(b, pick(a, 0xcfcfcfcfu, 0xddddddddu), pick(a, 0xeaeaeaeau, 0xf6f6f6f6u));
    let v8 = pick(b, pick(a, 0x01010101u, 0x0d0d0d0du), pick(a, 0x19191919u, 0x26262626u));
    let v12 = pick(b, pick(a, 0x35353535u, 0x45454545u), pick(a, 0x59595959u, 0x71717171u));
    return pick(d, pick(c, v0, v4), pick(c, v8, v12));
}

// The values of the 32 nibbles at `at`, to `codes`.
fn iq4(at: u32) {
    nibbles(at);
    for (var i = 0u; i < 8u; i++) {
        codes[i] = iq4_values(codes[i]);
    }
}
