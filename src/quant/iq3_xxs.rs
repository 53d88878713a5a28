//! IQ3_XXS: 256 weights in 98 bytes: an f16 scale; a codebook index of a byte for each 4 weights; for each 32 weights a
//! u32 of four 7-bit sign patterns (8 weights each, lowest first) with a 4-bit multiplier on top.
//! Weight = scale / 4 * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs` for both indices and signs.)

use bytemuck::{Pod, Zeroable};

use super::codebook::search::{Choice, Freedom, searched};
use super::codebook::{self, Bits, Codebook, Fields, Grid};
use super::le::{F16, U32};
use super::{Format, arms, grids, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    indices: [[[u8; 2]; 4]; 8],
    signs: [U32; 8],
}

/// The table row. Measured (see [`panel`]): four rows 7, panels 66 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("iq3_xxs", Some(18))
    .shader(include_str!("../../wgsl/quant/iq3_xxs.wgsl"))
    .codebook(<Block as Codebook>::GRID)
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; codebook::dot, codebook::avx2])
    .panel(panel::scaled::<Block>());

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 98;

    fn decode(&self, out: &mut [f32]) {
        codebook::decode(self, out);
    }
}

impl Codebook for Block {
    const GRID: Grid = Grid::Fours(&grids::IQ3_XXS);
    const BITS: Bits = Bits::Sign;
    const LARGEST: u8 = 62;

    fn scale(&self) -> f32 {
        self.scale.get() * 0.25
    }

    #[inline(always)]
    fn fields(&self, fields: &mut Fields) {
        let indices: &[u8; 64] = bytemuck::cast_ref(&self.indices);
        for i in 0..64 {
            fields.indices[i] = u16::from(indices[i]);
        }
        for g in 0..8 {
            fields.set_even_signs(g, self.signs[g].get());
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn index(&self, _: &Fields, i: usize) -> usize {
        usize::from(self.indices[i / 8][i % 8 / 2][i % 2])
    }
}

searched! {
    impl Searched for Block {
        const LEVELS: &'static [i8] = &[4, 12, 20, 28, 36, 44, 52, 62];
        const GROUP: usize = 32;
        const MOST: u8 = 31;
        const FREEDOM: Freedom = Freedom::Even;
        const STORED: f32 = 4.0;
        const ENERGY: f32 = 2.0;
        const RANGE: [f32; 2] = [1.8, 2.8];

        fn assemble(scale: F16, choice: &Choice) -> Self {
            Block {
                scale,
                indices: bytemuck::cast(choice.indices.map(|index| index as u8)),
                signs: std::array::from_fn(|g| choice.even_signs(g)),
            }
        }
    }
}
