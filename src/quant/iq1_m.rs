//! IQ1_M: 256 weights in 56 bytes: for each 8 weights the low 8 bits of a codebook index; for each 8 weights a nibble,
//! low one first: the upper 3 bits of the index and above them the sign of the offset; then four u16 of four 3-bit
//! multipliers (16 weights each, lowest first) whose top nibbles together are the bits of an f16 scale, lowest first.
//! Weight = scale * (2 * multiplier + 1) * (codebook value ± 1/8), in integers as in [`super::iq1_s`]; the offset's
//! sign changes every 8 weights, so its integer comes from the inputs and not from their sums of 16.
//! (ggml: `qs`, `qh`, `scales`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::{self, Bits, Codebook, Group};
use super::le::{F16, U16};
use super::{Format, arms, grids, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    indices: [[u8; 4]; 8],
    high_bits: [[u8; 2]; 8],
    scales: [U16; 4],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("iq1_m", Some(29))
    .dot(
        &q8_k::FORMAT,
        arms![
            Block, q8_k::Block;
            Scalar: codebook::dot,
            #[cfg(target_arch = "x86_64")] Avx2: codebook::avx2::dot,
        ],
    )
    .panel(panel::scaled::<Block>());

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 56;

    fn decode(&self, out: &mut [f32]) {
        codebook::decode(self, out);
    }
}

impl Codebook for Block {
    const BITS: Bits = Bits::Offset;
    const LARGEST: u8 = 9;

    fn scale(&self) -> f32 {
        let bits = self.scales.iter().enumerate().map(|(i, word)| (word.get() >> 12) << (4 * i)).sum();
        bytemuck::cast::<_, F16>(U16::new(bits)).get() * 0.125
    }

    #[inline]
    fn group(&self, g: usize) -> Group {
        let high_bits = u16::from_le_bytes(self.high_bits[g]);
        let nibbles: [_; 4] = std::array::from_fn(|i| usize::from(high_bits >> (4 * i) & 15));
        let multipliers = self.scales[g / 2].get() >> (6 * (g % 2));
        Group {
            multipliers: [multipliers & 7, multipliers >> 3 & 7].map(|bits| 2 * bits as i16 + 1),
            entries: std::array::from_fn(|i| {
                grids::IQ1[usize::from(self.indices[g][i]) | (nibbles[i] & 7) << 8]
            }),
            bits: nibbles.map(|nibble| if nibble & 8 != 0 { 255 } else { 0 }),
        }
    }
}
