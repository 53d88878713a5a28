//! IQ2_XXS: 256 weights in 66 bytes: an f16 scale, then 8 groups of 32 weights: four codebook indices of a byte, and a
//! u32 of four 7-bit sign patterns (lowest first) with a 4-bit multiplier on top.
//! Weight = scale / 8 * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::search::{Choice, Freedom, searched};
use super::codebook::{self, Bits, Codebook, Fields, Grid};
use super::le::{F16, U32};
use super::{Format, arms, grids, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    groups: [Indices; 8],
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Indices {
    entries: [u8; 4],
    signs: U32,
}

/// The table row. Measured (see [`panel`]): four rows 8, panels 67 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("iq2_xxs", Some(16))
    .shader(include_str!("../../wgsl/quant/iq2_xxs.wgsl"))
    .codebook(<Block as Codebook>::GRID)
    .encoder::<Block>()
    .weighted::<Block>()
    .needs_importance()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; codebook::dot, codebook::avx2])
    .panel(panel::scaled::<Block>());

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 66;

    fn decode(&self, out: &mut [f32]) {
        codebook::decode(self, out);
    }
}

impl Codebook for Block {
    const GRID: Grid = Grid::Eights(&grids::IQ2_XXS);
    const BITS: Bits = Bits::Sign;
    const LARGEST: u8 = 43;

    fn scale(&self) -> f32 {
        self.scale.get() * 0.125
    }

    #[inline(always)]
    fn fields(&self, fields: &mut Fields) {
        for g in 0..8 {
            for i in 0..4 {
                fields.indices[4 * g + i] = u16::from(self.groups[g].entries[i]);
            }
        }
        for g in 0..8 {
            fields.set_even_signs(g, self.groups[g].signs.get());
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn index(&self, _: &Fields, i: usize) -> usize {
        usize::from(self.groups[i / 4].entries[i % 4])
    }
}

searched! {
    impl Searched for Block {
        const LEVELS: &'static [i8] = &[8, 25, 43];
        const GROUP: usize = 32;
        const MOST: u8 = 31;
        const FREEDOM: Freedom = Freedom::Even;
        const STORED: f32 = 8.0;
        const ENERGY: f32 = 1.0;
        const RANGE: [f32; 2] = [1.4, 2.4];

        fn assemble(scale: F16, choice: &Choice) -> Self {
            let group = |g: usize| Indices {
                entries: std::array::from_fn(|i| choice.indices[4 * g + i] as u8),
                signs: choice.even_signs(g),
            };
            Block { scale, groups: std::array::from_fn(group) }
        }
    }
}
