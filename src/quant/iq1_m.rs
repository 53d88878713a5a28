//! IQ1_M: 256 weights in 56 bytes: for each 8 weights the low 8 bits of a codebook index; for each 8 weights a nibble,
//! low one first: the upper 3 bits of the index and above them the sign of the offset; then four u16 of four 3-bit
//! multipliers (16 weights each, lowest first) whose top nibbles together are the bits of an f16 scale, lowest first.
//! Weight = scale * (2 * multiplier + 1) * (codebook value ± 1/8), in integers as in [`super::iq1_s`]; the offset's
//! sign changes every 8 weights, so its integer comes from the inputs and not from their sums of 16.
//! (ggml: `qs`, `qh`, `scales`.)

use bytemuck::{Pod, Zeroable};
use half::f16;

use super::codebook::{self, Codebook, Unpacked};
use super::iq1_s::put_with_offset;
use super::le::U16;
use super::{Format, arms, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    indices: [u8; 32],
    high_bits: [u8; 16],
    scales: [U16; 4],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("iq1_m", Some(29))
    .dot(&q8_k::FORMAT, arms![Block, q8_k::Block; Scalar: codebook::dot]);

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 56;

    fn decode(&self, out: &mut [f32]) {
        self.unpack().decode(out);
    }
}

impl Block {
    fn scale(&self) -> f32 {
        let bits = self.scales.iter().enumerate().map(|(i, word)| (word.get() >> 12) << (4 * i)).sum();
        f16::from_bits(bits).to_f32()
    }
}

impl Codebook for Block {
    fn unpack(&self) -> Unpacked {
        let mut codes = [0; 256];
        for (i, codes) in codes.chunks_exact_mut(8).enumerate() {
            let nibble = self.high_bits[i / 2] >> (4 * (i % 2)) & 15;
            let index = usize::from(self.indices[i]) | usize::from(nibble & 7) << 8;
            put_with_offset(codes, index, nibble & 8 != 0);
        }
        let multipliers =
            std::array::from_fn(|g| 2 * (self.scales[g / 4].get() >> (3 * (g % 4)) & 7) as i16 + 1);
        Unpacked { scale: self.scale() * 0.125, multipliers, codes }
    }
}
