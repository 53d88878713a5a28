//! IQ3_S: 256 weights in 110 bytes: an f16 scale; for each 4 weights the low 8 bits of a codebook index; for each 4
//! weights the ninth bit, eight to a byte, lowest first; for each 8 weights a byte of signs; for each 32 weights a 4-bit
//! multiplier, low nibble first.
//! Weight = scale * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs`, `qh`, `signs`, `scales`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::{self, Bits, Codebook, Fields};
use super::le::F16;
use super::{Format, arms, grids, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    indices: [[u8; 8]; 8],
    high_bits: [u8; 8],
    signs: [[u8; 4]; 8],
    multipliers: [u8; 4],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("iq3_s", Some(21))
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
    const BYTES: usize = 110;

    fn decode(&self, out: &mut [f32]) {
        codebook::decode(self, out);
    }
}

impl Codebook for Block {
    const BITS: Bits = Bits::Sign;
    const LARGEST: u8 = 15;

    fn scale(&self) -> f32 {
        self.scale.get()
    }

    #[inline(always)]
    fn fields(&self) -> Fields {
        let mut fields = Fields::ZERO;
        for (g, &high) in self.high_bits.iter().enumerate() {
            for i in 0..8 {
                fields.indices[8 * g + i] = u16::from(self.indices[g][i]) | u16::from(high >> i & 1) << 8;
            }
            fields.set_multiplier(g, self.multipliers[g / 2] >> (4 * (g % 2)) & 15);
        }
        fields.bits.copy_from_slice(self.signs.as_flattened());
        fields
    }

    #[inline(always)]
    fn entry(indices: &[u16; 64], i: usize) -> u64 {
        let four = |index: u16| grids::IQ3_S[usize::from(index) & 511];
        grids::join(four(indices[2 * i]), four(indices[2 * i + 1]))
    }
}
