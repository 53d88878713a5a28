//! IQ3_S: 256 weights in 110 bytes: an f16 scale; for each 4 weights the low 8 bits of a codebook index; for each 4
//! weights the ninth bit, eight to a byte, lowest first; for each 8 weights a byte of signs; for each 32 weights a 4-bit
//! multiplier, low nibble first.
//! Weight = scale * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs`, `qh`, `signs`, `scales`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::{self, Codebook, Unpacked, put};
use super::le::F16;
use super::{Format, arms, grids, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    indices: [u8; 64],
    high_bits: [u8; 8],
    signs: [u8; 32],
    multipliers: [u8; 4],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("iq3_s", Some(21))
    .dot(&q8_k::FORMAT, arms![Block, q8_k::Block; Scalar: codebook::dot]);

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 110;

    fn decode(&self, out: &mut [f32]) {
        self.unpack().decode(out);
    }
}

impl Codebook for Block {
    fn unpack(&self) -> Unpacked {
        let mut codes = [0; 256];
        for (i, codes) in codes.chunks_exact_mut(4).enumerate() {
            let high = usize::from(self.high_bits[i / 8] >> (i % 8) & 1);
            let entry = &grids::IQ3_S[usize::from(self.indices[i]) | high << 8];
            put(codes, entry, self.signs[i / 2] >> (4 * (i % 2)));
        }
        let multipliers =
            std::array::from_fn(|g| 2 * i16::from(self.multipliers[g / 4] >> (4 * (g / 2 % 2)) & 15) + 1);
        Unpacked { scale: self.scale.get(), multipliers, codes }
    }
}
