//! IQ1_S: 256 weights in 50 bytes: an f16 scale; for each 8 weights the low 8 bits of a codebook index; for each 32
//! weights a u16: four 3-bit upper parts of the indices (lowest first), a 3-bit multiplier, and on top the sign of the
//! offset. Weight = scale * (2 * multiplier + 1) * (codebook value ± 1/8).
//! In integers: scale / 8 * (2 * multiplier + 1) * (8 * codebook value ± 1); with an input block the offsets come to an
//! exact integer of their own, ± the sum of the inputs, which a vector version may take from `sums`.
//! (ggml: `d`, `qs`, `qh`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::search::{Choice, Freedom, searched};
use super::codebook::{self, Bits, Codebook, Fields, Grid};
use super::le::{F16, U16};
use super::{Format, arms, grids, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    indices: [[u8; 4]; 8],
    groups: [U16; 8],
}

/// The table row. Measured (see [`panel`]): four rows 6, panels 81 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("iq1_s", Some(19))
    .shader(include_str!("../../wgsl/quant/iq1_s.wgsl"))
    .codebook(<Block as Codebook>::GRID)
    .encoder::<Block>()
    .weighted::<Block>()
    .needs_importance()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; codebook::dot, codebook::avx2])
    .panel(panel::scaled::<Block>());

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 50;

    fn decode(&self, out: &mut [f32]) {
        codebook::decode(self, out);
    }
}

impl Codebook for Block {
    const GRID: Grid = Grid::Eights(&grids::IQ1);
    const BITS: Bits = Bits::Offset;
    const LARGEST: u8 = 9;

    fn scale(&self) -> f32 {
        self.scale.get() * 0.125
    }

    #[inline(always)]
    fn fields(&self, fields: &mut Fields) {
        for g in 0..8 {
            let group = u32::from(self.groups[g].get());
            for i in 0..4 {
                let high = (group >> (3 * i) & 7) as u8;
                fields.indices[4 * g + i] = u16::from_le_bytes([self.indices[g][i], high]);
            }
        }
        for g in 0..8 {
            let group = self.groups[g].get();
            let sign = (group.cast_signed() >> 15) as u8;
            for i in 0..4 {
                fields.bits[4 * g + i] = sign;
            }
            fields.set_multiplier(g, (group >> 12 & 7) as u8);
        }
    }
}

searched! {
    impl Searched for Block {
        const LEVELS: &'static [i8] = &[-8, 0, 8];
        const GROUP: usize = 32;
        const MOST: u8 = 15;
        const FREEDOM: Freedom = Freedom::OneAGroup;
        const STORED: f32 = 8.0;
        const ENERGY: f32 = 2.0;
        const RANGE: [f32; 2] = [1.25, 1.6];

        fn assemble(scale: F16, choice: &Choice) -> Self {
            let group = |g: usize| {
                let high = (0..4).fold(0, |word, i| word | (choice.indices[4 * g + i] >> 8) << (3 * i));
                let multiplier = u16::from(choice.multipliers[2 * g]);
                U16::new(high | multiplier << 12 | u16::from(choice.bits[4 * g] & 1) << 15)
            };
            Block {
                scale,
                indices: std::array::from_fn(|g| std::array::from_fn(|i| choice.indices[4 * g + i] as u8)),
                groups: std::array::from_fn(group),
            }
        }
    }
}
