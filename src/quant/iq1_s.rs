//! IQ1_S: 256 weights in 50 bytes: an f16 scale; for each 8 weights the low 8 bits of a codebook index; for each 32
//! weights a u16: four 3-bit upper parts of the indices (lowest first), a 3-bit multiplier, and on top the sign of the
//! offset. Weight = scale * (2 * multiplier + 1) * (codebook value ± 1/8).
//! In integers: scale / 8 * (2 * multiplier + 1) * (8 * codebook value ± 1); with an input block the offsets come to an
//! exact integer of their own, ± the sum of the inputs, which a vector version may take from `sums`.
//! (ggml: `d`, `qs`, `qh`.)

use bytemuck::{Pod, Zeroable};

use super::codebook::{self, Codebook, Unpacked};
use super::le::{F16, U16};
use super::{Format, arms, grids, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    indices: [u8; 32],
    groups: [U16; 8],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("iq1_s", Some(19))
    .dot(&q8_k::FORMAT, arms![Block, q8_k::Block; Scalar: codebook::dot]);

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 50;

    fn decode(&self, out: &mut [f32]) {
        self.unpack().decode(out);
    }
}

impl Codebook for Block {
    fn unpack(&self) -> Unpacked {
        let mut codes = [0; 256];
        for (i, codes) in codes.chunks_exact_mut(8).enumerate() {
            let group = self.groups[i / 4].get();
            let high = usize::from(group >> (3 * (i % 4)) & 7);
            put_with_offset(codes, usize::from(self.indices[i]) | high << 8, group >> 15 == 1);
        }
        let multipliers = std::array::from_fn(|g| 2 * (self.groups[g / 2].get() >> 12 & 7) as i16 + 1);
        Unpacked { scale: self.scale.get() * 0.125, multipliers, codes }
    }
}

/// Eight codes: `8 * value + 1` of the codebook entry at `index`, or minus 1.
pub(super) fn put_with_offset(codes: &mut [i8], index: usize, negative: bool) {
    let offset = if negative { -1 } else { 1 };
    for (code, &value) in codes.iter_mut().zip(&grids::IQ1[index]) {
        *code = 8 * value + offset;
    }
}
