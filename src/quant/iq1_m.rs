//! IQ1_M: 256 weights in 56 bytes: for each 8 weights the low 8 bits of a codebook index; for each 8 weights a nibble,
//! low one first: the upper 3 bits of the index and above them the sign of the offset; then four u16 of four 3-bit
//! multipliers (16 weights each, lowest first) whose top nibbles together are the bits of an f16 scale, lowest first.
//! Weight = scale * (2 * multiplier + 1) * (codebook value ± 1/8), in integers as in [`super::iq1_s`]; the offset's
//! sign changes every 8 weights, so its integer comes from the inputs and not from their sums of 16.
//! (ggml: `qs`, `qh`, `scales`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::search::{Choice, Freedom, searched};
use super::codebook::{self, Bits, Codebook, Fields, Grid};
use super::le::{F16, U16};
use super::{Format, arms, grids, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Block {
    indices: [[u8; 4]; 8],
    high_bits: [[u8; 2]; 8],
    scales: [U16; 4],
}

/// The table row. Measured (see [`panel`]): four rows 5, panels 80 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("iq1_m", Some(29))
    .shader(include_str!("../../wgsl/quant/iq1_m.wgsl"))
    .codebook(<Block as Codebook>::GRID)
    .encoder::<Block>()
    .weighted::<Block>()
    .needs_importance()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; codebook::dot, codebook::avx2])
    .panel(panel::scaled::<Block>());

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 56;

    fn decode(&self, out: &mut [f32]) {
        codebook::decode(self, out);
    }
}

impl Codebook for Block {
    const GRID: Grid = Grid::Eights(&grids::IQ1);
    const BITS: Bits = Bits::Offset;
    const LARGEST: u8 = 9;

    fn scale(&self) -> f32 {
        let [a, b, c, d] = self.scales.each_ref().map(|word| word.get() >> 12);
        let bits = a | b << 4 | c << 8 | d << 12;
        bytemuck::cast::<_, F16>(U16::new(bits)).get() * 0.125
    }

    #[inline(always)]
    fn fields(&self, fields: &mut Fields) {
        let high_bits: &[u8; 16] = bytemuck::cast_ref(&self.high_bits);
        let indices: &[u8; 32] = bytemuck::cast_ref(&self.indices);
        for i in 0..16 {
            let [low, high] = [high_bits[i] & 7, high_bits[i] >> 4 & 7];
            fields.indices[2 * i] = u16::from_le_bytes([indices[2 * i], low]);
            fields.indices[2 * i + 1] = u16::from_le_bytes([indices[2 * i + 1], high]);
        }
        for i in 0..16 {
            fields.bits[2 * i] = ((high_bits[i] << 4).cast_signed() >> 7).cast_unsigned();
            fields.bits[2 * i + 1] = (high_bits[i].cast_signed() >> 7).cast_unsigned();
        }
        for g in 0..8 {
            let multipliers = self.scales[g / 2].get() >> (6 * (g % 2));
            fields.multipliers[0][g] = 2 * (multipliers & 7) as i16 + 1;
            fields.multipliers[1][g] = 2 * (multipliers >> 3 & 7) as i16 + 1;
        }
    }
}

searched! {
    impl Searched for Block {
        const LEVELS: &'static [i8] = &[-8, 0, 8];
        const GROUP: usize = 16;
        const MOST: u8 = 15;
        const FREEDOM: Freedom = Freedom::OneARun;
        const STORED: f32 = 8.0;
        const ENERGY: f32 = 2.0;
        const RANGE: [f32; 2] = [1.25, 1.6];

        fn assemble(scale: F16, choice: &Choice) -> Self {
            let nibble = |i: usize| (choice.indices[i] >> 8) as u8 | (choice.bits[i] & 1) << 3;
            let nibbles = |i: usize| nibble(2 * i) | nibble(2 * i + 1) << 4;
            let bits = bytemuck::cast::<_, U16>(scale).get();
            let word = |k: usize| {
                let multipliers = (0..4).fold(0, |word, i| word | u16::from(choice.multipliers[4 * k + i]) << (3 * i));
                U16::new(multipliers | (bits >> (4 * k) & 15) << 12)
            };
            Block {
                indices: std::array::from_fn(|g| std::array::from_fn(|i| choice.indices[4 * g + i] as u8)),
                high_bits: std::array::from_fn(|g| [nibbles(2 * g), nibbles(2 * g + 1)]),
                scales: std::array::from_fn(word),
            }
        }
    }
}
