//! IQ3_S: 256 weights in 110 bytes: an f16 scale; for each 4 weights the low 8 bits of a codebook index; for each 4
//! weights the ninth bit, eight to a byte, lowest first; for each 8 weights a byte of signs; for each 32 weights a 4-bit
//! multiplier, low nibble first.
//! Weight = scale * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs`, `qh`, `signs`, `scales`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::search::{Choice, Freedom, searched};
use super::codebook::{self, Bits, Codebook, Fields, Grid};
use super::le::F16;
use super::{Format, arms, grids, panel, parts, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Block {
    scale: F16,
    indices: [[u8; 8]; 8],
    high_bits: [u8; 8],
    signs: [[u8; 4]; 8],
    multipliers: [u8; 4],
}

/// The table row. Measured (see [`panel`]): four rows 7, panels 88 GMAC/s; 2.6 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("iq3_s", Some(21))
    .shader(include_str!("../../wgsl/quant/iq3_s.wgsl"))
    .codebook(<Block as Codebook>::GRID)
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; codebook::dot, codebook::avx2])
    .panel(panel::scaled::<Block>());

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 110;

    fn decode(&self, out: &mut [f32]) {
        codebook::decode(self, out);
    }
}

impl Codebook for Block {
    const GRID: Grid = Grid::Fours(&grids::IQ3_S);
    const BITS: Bits = Bits::Sign;
    const LARGEST: u8 = 15;

    fn scale(&self) -> f32 {
        self.scale.get()
    }

    #[inline(always)]
    fn fields(&self, fields: &mut Fields) {
        let mut high = [[0; 8]; 8];
        for g in 0..8 {
            high[g] = parts::BITS[usize::from(self.high_bits[g])];
        }
        let (low, high): (&[u8; 64], &[u8; 64]) =
            (bytemuck::cast_ref(&self.indices), bytemuck::cast_ref(&high));
        for i in 0..64 {
            fields.indices[i] = u16::from_le_bytes([low[i], high[i] & 1]);
        }
        for g in 0..8 {
            fields.set_multiplier(g, self.multipliers[g / 2] >> (4 * (g % 2)) & 15);
        }
        fields.bits = *bytemuck::cast_ref(&self.signs);
    }
}

searched! {
    impl Searched for Block {
        const LEVELS: &'static [i8] = &[1, 3, 5, 7, 9, 11, 13, 15];
        const GROUP: usize = 32;
        const MOST: u8 = 31;
        const FREEDOM: Freedom = Freedom::Any;
        const STORED: f32 = 1.0;
        const ENERGY: f32 = 2.0;
        const RANGE: [f32; 2] = [1.8, 2.8];

        fn assemble(scale: F16, choice: &Choice) -> Self {
            let high = |g: usize| (0..8).fold(0, |byte, i| byte | (choice.indices[8 * g + i] >> 8) << i) as u8;
            Block {
                scale,
                indices: bytemuck::cast(choice.indices.map(|index| index as u8)),
                high_bits: std::array::from_fn(high),
                signs: bytemuck::cast(choice.bits),
                multipliers: std::array::from_fn(|i| choice.multipliers[4 * i] | choice.multipliers[4 * i + 2] << 4),
            }
        }
    }
}
