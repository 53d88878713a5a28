//! IQ2_XS: 256 weights in 74 bytes: an f16 scale, then a u16 for each 8 weights (9-bit codebook index, 7-bit sign
//! pattern above it), then a 4-bit multiplier for each 16 weights, low nibble first.
//! Weight = scale / 8 * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs`, `scales`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::search::{Choice, Freedom, searched};
use super::codebook::{self, Bits, Codebook, Fields, Grid};
use super::le::{F16, U16};
use super::{Format, arms, grids, panel, q8_k};
#[cfg(target_arch = "x86_64")]
use crate::simd::x86::opaque_index;

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Block {
    scale: F16,
    entries: [[U16; 4]; 8],
    multipliers: [u8; 8],
}

/// The table row. Measured (see [`panel`]): four rows 11, panels 73 GMAC/s; 2.0 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("iq2_xs", Some(17))
    .shader(include_str!("../../wgsl/quant/iq2_xs.wgsl"))
    .codebook(<Block as Codebook>::GRID)
    .encoder::<Block>()
    .weighted::<Block>()
    .needs_importance()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; codebook::dot, codebook::avx2])
    .panel(panel::scaled::<Block>());

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 74;

    fn decode(&self, out: &mut [f32]) {
        codebook::decode(self, out);
    }
}

impl Codebook for Block {
    const GRID: Grid = Grid::Eights(&grids::IQ2_XS);
    const BITS: Bits = Bits::Sign;
    const LARGEST: u8 = 43;

    fn scale(&self) -> f32 {
        self.scale.get() * 0.125
    }

    #[inline(always)]
    fn fields(&self, fields: &mut Fields) {
        let entries: &[U16; 32] = bytemuck::cast_ref(&self.entries);
        for i in 0..32 {
            fields.indices[i] = entries[i].get() & 511;
        }
        for i in 0..32 {
            fields.bits[i] = grids::even_signs(u32::from(entries[i].get() >> 9));
        }
        fields.set_multipliers(&self.multipliers);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn index(&self, _: &Fields, i: usize) -> usize {
        opaque_index(usize::from(self.entries[i / 4][i % 4].get())) & 511
    }
}

searched! {
    impl Searched for Block {
        const LEVELS: &'static [i8] = &[8, 25, 43];
        const GROUP: usize = 16;
        const MOST: u8 = 31;
        const FREEDOM: Freedom = Freedom::Even;
        const STORED: f32 = 8.0;
        const ENERGY: f32 = 1.0;
        const RANGE: [f32; 2] = [1.4, 2.4];

        fn assemble(scale: F16, choice: &Choice) -> Self {
            let entry = |i: usize| U16::new(choice.indices[i] | u16::from(choice.bits[i] & 127) << 9);
            Block {
                scale,
                entries: std::array::from_fn(|g| std::array::from_fn(|i| entry(4 * g + i))),
                multipliers: choice.multiplier_pairs(),
            }
        }
    }
}
