//! IQ2_S: 256 weights in 82 bytes: an f16 scale; for each 8 weights the low 8 bits of a codebook index; for each 8
//! weights a byte of signs; for each 8 weights the upper 2 bits of the index, four to a byte, lowest first; for each 16
//! weights a 4-bit multiplier, low nibble first.
//! Weight = scale / 8 * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs` for both indices and signs, `qh`, `scales`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::{self, Codebook, Unpacked, put};
use super::iq2_xs::odd_nibbles;
use super::le::F16;
use super::{Format, arms, grids, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    indices: [u8; 32],
    signs: [u8; 32],
    high_bits: [u8; 8],
    multipliers: [u8; 8],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("iq2_s", Some(22))
    .dot(&q8_k::FORMAT, arms![Block, q8_k::Block; Scalar: codebook::dot]);

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 82;

    fn decode(&self, out: &mut [f32]) {
        self.unpack().decode(out);
    }
}

impl Codebook for Block {
    fn unpack(&self) -> Unpacked {
        let mut codes = [0; 256];
        for (i, codes) in codes.chunks_exact_mut(8).enumerate() {
            let high = usize::from(self.high_bits[i / 4] >> (2 * (i % 4)) & 3);
            put(codes, &grids::IQ2_S[usize::from(self.indices[i]) | high << 8], self.signs[i]);
        }
        Unpacked { scale: self.scale.get() * 0.125, multipliers: odd_nibbles(&self.multipliers), codes }
    }
}
