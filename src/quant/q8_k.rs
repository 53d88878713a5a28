//! Q8_K: 256 activations in 292 bytes: an f32 scale, 256 signed codes, and the sum of each 16 codes;
//! activation = code * scale. What the inputs of the formats with 256-weight blocks are quantized to.
//! (ggml: `d`, `qs`, `bsums`.)

use bytemuck::{Pod, Zeroable};

use super::Format;
use super::le::{F32, I16};

/// 256 activations.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// Step between codes; may be negative.
    pub scale: F32,
    /// -127..=127.
    pub codes: [i8; 256],
    /// Sums of 16 codes.
    pub sums: [I16; 16],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("q8_k", Some(15)).encoder::<Block>();

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 292;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (out, &code) in out.iter_mut().zip(&self.codes) {
            *out = f32::from(code) * scale;
        }
    }
}

impl super::Encode for Block {
    /// The signed value of the first largest magnitude maps to -127; codes round half to even.
    fn encode(values: &[f32]) -> Self {
        let mut extreme = 0.0f32;
        for &value in values {
            if value.abs() > extreme.abs() {
                extreme = value;
            }
        }
        if extreme == 0.0 {
            return Zeroable::zeroed();
        }
        let inverse = -127.0 / extreme;
        let mut codes = [0; 256];
        for (code, &value) in codes.iter_mut().zip(values) {
            *code = (inverse * value).round_ties_even().clamp(-127.0, 127.0) as i8;
        }
        let sums = std::array::from_fn(|g| {
            I16::new(codes[16 * g..][..16].iter().map(|&code| i16::from(code)).sum())
        });
        Block { scale: F32::new(1.0 / inverse), codes, sums }
    }
}
