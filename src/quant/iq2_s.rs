//! IQ2_S: 256 weights in 82 bytes: an f16 scale; for each 8 weights the low 8 bits of a codebook index; for each 8
//! weights a byte of signs; for each 8 weights the upper 2 bits of the index, four to a byte, lowest first; for each 16
//! weights a 4-bit multiplier, low nibble first.
//! Weight = scale / 8 * (2 * multiplier + 1) * signed codebook value.
//! (ggml: `d`, `qs` for both indices and signs, `qh`, `scales`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::search::{Choice, Freedom, searched};
use super::codebook::{self, Bits, Codebook, Fields, Grid};
use super::le::F16;
use super::{Format, arms, grids, panel, parts, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    indices: [[u8; 4]; 8],
    signs: [[u8; 4]; 8],
    high_bits: [u8; 8],
    multipliers: [u8; 8],
}

/// The table row. Measured (see [`panel`]): four rows 6, panels 68 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("iq2_s", Some(22))
    .shader(include_str!("../../wgsl/quant/iq2_s.wgsl"))
    .codebook(<Block as Codebook>::GRID)
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; codebook::dot, codebook::avx2])
    .panel(panel::scaled::<Block>());

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 82;

    fn decode(&self, out: &mut [f32]) {
        codebook::decode(self, out);
    }
}

impl Codebook for Block {
    const GRID: Grid = Grid::Eights(&grids::IQ2_S);
    const BITS: Bits = Bits::Sign;
    const LARGEST: u8 = 43;

    fn scale(&self) -> f32 {
        self.scale.get() * 0.125
    }

    #[inline(always)]
    fn fields(&self, fields: &mut Fields) {
        let mut high = [[0; 4]; 8];
        for g in 0..8 {
            high[g] = parts::BIT_PAIRS[usize::from(self.high_bits[g])];
        }
        let (low, high): (&[u8; 32], &[u8; 32]) =
            (bytemuck::cast_ref(&self.indices), bytemuck::cast_ref(&high));
        for i in 0..32 {
            fields.indices[i] = u16::from_le_bytes([low[i], high[i]]);
        }
        fields.bits = *bytemuck::cast_ref(&self.signs);
        fields.set_multipliers(&self.multipliers);
    }
}

searched! {
    impl Searched for Block {
        const LEVELS: &'static [i8] = &[8, 25, 43];
        const GROUP: usize = 16;
        const MOST: u8 = 31;
        const FREEDOM: Freedom = Freedom::Any;
        const STORED: f32 = 8.0;
        const ENERGY: f32 = 2.0;
        const RANGE: [f32; 2] = [1.5, 2.2];

        fn assemble(scale: F16, choice: &Choice) -> Self {
            let high = |g: usize| (0..4).fold(0, |byte, i| byte | (choice.indices[4 * g + i] >> 8) << (2 * i)) as u8;
            Block {
                scale,
                indices: std::array::from_fn(|g| std::array::from_fn(|i| choice.indices[4 * g + i] as u8)),
                signs: bytemuck::cast(choice.bits),
                high_bits: std::array::from_fn(high),
                multipliers: choice.multiplier_pairs(),
            }
        }
    }
}
