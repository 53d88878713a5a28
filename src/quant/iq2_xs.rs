//! IQ2_XS: 256 weights in 74 bytes: an f16 scale, then a u16 for each 8 weights (9-bit codebook index, 7-bit sign
//! pattern above it), then a 4-bit multiplier for each 16 weights, low nibble first.
//! Weight = scale / 8 * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs`, `scales`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::{self, Codebook, Unpacked, put};
use super::le::{F16, U16};
use super::{Format, arms, grids, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    entries: [U16; 32],
    multipliers: [u8; 8],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("iq2_xs", Some(17))
    .dot(&q8_k::FORMAT, arms![Block, q8_k::Block; Scalar: codebook::dot]);

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 74;

    fn decode(&self, out: &mut [f32]) {
        self.unpack().decode(out);
    }
}

impl Codebook for Block {
    fn unpack(&self) -> Unpacked {
        let mut codes = [0; 256];
        for (codes, entry) in codes.chunks_exact_mut(8).zip(&self.entries) {
            let entry = entry.get();
            put(codes, &grids::IQ2_XS[usize::from(entry & 511)], grids::even_signs(u32::from(entry >> 9)));
        }
        Unpacked { scale: self.scale.get() * 0.125, multipliers: odd_nibbles(&self.multipliers), codes }
    }
}

/// `2 * nibble + 1` of the 16 nibbles, low ones first.
pub(super) fn odd_nibbles(bytes: &[u8; 8]) -> [i16; 16] {
    std::array::from_fn(|i| 2 * i16::from(bytes[i / 2] >> (4 * (i % 2)) & 15) + 1)
}
