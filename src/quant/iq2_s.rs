//! IQ2_S: 256 weights in 82 bytes: an f16 scale; for each 8 weights the low 8 bits of a codebook index; for each 8
//! weights a byte of signs; for each 8 weights the upper 2 bits of the index, four to a byte, lowest first; for each 16
//! weights a 4-bit multiplier, low nibble first.
//! Weight = scale / 8 * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs` for both indices and signs, `qh`, `scales`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::{self, Bits, Codebook, Fields};
use super::le::F16;
use super::{Format, arms, grids, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    indices: [[u8; 4]; 8],
    signs: [[u8; 4]; 8],
    high_bits: [u8; 8],
    multipliers: [u8; 8],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("iq2_s", Some(22))
    .dot(
        &q8_k::FORMAT,
        arms![
            Block, q8_k::Block;
            Scalar: codebook::dot,
            #[cfg(target_arch = "x86_64")] Avx2: codebook::avx2::dot | codebook::avx2::rows4,
        ],
    )
    .panel(panel::scaled::<Block>());

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 82;

    fn decode(&self, out: &mut [f32]) {
        codebook::decode(self, out);
    }
}

impl Codebook for Block {
    const BITS: Bits = Bits::Sign;
    const LARGEST: u8 = 43;

    fn scale(&self) -> f32 {
        self.scale.get() * 0.125
    }

    #[inline(always)]
    fn fields(&self) -> Fields {
        let mut fields = Fields::ZERO;
        for (g, &high) in self.high_bits.iter().enumerate() {
            for i in 0..4 {
                fields.indices[4 * g + i] =
                    u16::from(self.indices[g][i]) | u16::from(high >> (2 * i) & 3) << 8;
            }
        }
        fields.bits.copy_from_slice(self.signs.as_flattened());
        fields.set_multipliers(&self.multipliers);
        fields
    }

    #[inline(always)]
    fn entry(indices: &[u16; 64], i: usize) -> u64 {
        grids::IQ2_S[usize::from(indices[i]) & 1023]
    }
}
