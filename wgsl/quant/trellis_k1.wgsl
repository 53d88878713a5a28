// Trellis codes of 1 bits: 32 bytes of symbols, a ring of bits, then an f16 scale. See lib/trellis.
#import lib/trellis

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 34u;

fn unpack(at: u32, group: u32) {
    trellis(at, group, 1u);
}
