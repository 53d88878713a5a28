//! IQ3_XXS: 256 weights in 98 bytes: an f16 scale; a codebook index of a byte for each 4 weights; for each 32 weights a
//! u32 of four 7-bit sign patterns (8 weights each, lowest first) with a 4-bit multiplier on top.
//! Weight = scale / 4 * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs` for both indices and signs.)

use bytemuck::{Pod, Zeroable};

use super::codebook::{self, Codebook, Unpacked, put};
use super::le::{F16, U32};
use super::{Format, arms, grids, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    indices: [u8; 64],
    signs: [U32; 8],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("iq3_xxs", Some(18))
    .dot(&q8_k::FORMAT, arms![Block, q8_k::Block; Scalar: codebook::dot]);

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 98;

    fn decode(&self, out: &mut [f32]) {
        self.unpack().decode(out);
    }
}

impl Codebook for Block {
    fn unpack(&self) -> Unpacked {
        let mut codes = [0; 256];
        for (i, (codes, pair)) in codes.chunks_exact_mut(8).zip(self.indices.chunks_exact(2)).enumerate() {
            let signs = grids::even_signs(self.signs[i / 4].get() >> (7 * (i % 4)));
            put(&mut codes[..4], &grids::IQ3_XXS[usize::from(pair[0])], signs);
            put(&mut codes[4..], &grids::IQ3_XXS[usize::from(pair[1])], signs >> 4);
        }
        let multipliers = std::array::from_fn(|g| (2 * (self.signs[g / 2].get() >> 28) + 1) as i16);
        Unpacked { scale: self.scale.get() * 0.25, multipliers, codes }
    }
}
