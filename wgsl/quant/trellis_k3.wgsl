// Trellis codes of 3 bits: 96 bytes of symbols, a ring of bits, then an f16 scale. See lib/trellis.
#import lib/trellis

const BLOCK: u32 = 256u;
const BLOCK_BYTES: u32 = 98u;

fn unpack(at: u32, group: u32) {
    trellis(at, group, 3u);
}
