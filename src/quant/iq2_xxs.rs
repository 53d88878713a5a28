//! IQ2_XXS: 256 weights in 66 bytes: an f16 scale, then 8 groups of 32 weights: four codebook indices of a byte, and a
//! u32 of four 7-bit sign patterns (lowest first) with a 4-bit multiplier on top.
//! Weight = scale / 8 * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::{self, Codebook, Unpacked, put};
use super::le::{F16, U32};
use super::{Format, arms, grids, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    groups: [Group; 8],
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Group {
    indices: [u8; 4],
    signs: U32,
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("iq2_xxs", Some(16))
    .dot(&q8_k::FORMAT, arms![Block, q8_k::Block; Scalar: codebook::dot]);

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 66;

    fn decode(&self, out: &mut [f32]) {
        self.unpack().decode(out);
    }
}

impl Codebook for Block {
    fn unpack(&self) -> Unpacked {
        let mut multipliers = [0; 16];
        let mut codes = [0; 256];
        for (g, group) in self.groups.iter().enumerate() {
            let signs = group.signs.get();
            multipliers[2 * g..2 * g + 2].fill((2 * (signs >> 28) + 1) as i16);
            for (i, &index) in group.indices.iter().enumerate() {
                let entry = &grids::IQ2_XXS[usize::from(index)];
                put(&mut codes[32 * g + 8 * i..][..8], entry, grids::even_signs(signs >> (7 * i)));
            }
        }
        Unpacked { scale: self.scale.get() * 0.125, multipliers, codes }
    }
}
