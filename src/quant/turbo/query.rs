//! What queries are rounded to before they meet packed keys: 32 elements in 40 bytes, an f32 scale, the f32 sum of the
//! rounded elements, then 32 signed codes. Q8_1 with full floats: keys may lie far from zero, and then the sum counts.

use bytemuck::{Pod, Zeroable};

use crate::quant::dots::Input;
use crate::quant::le::F32;
use crate::quant::{Format, q8_0};

/// 32 elements of a query.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// Step between codes.
    pub scale: F32,
    /// scale · the sum of the codes.
    pub sum: F32,
    /// -127..=127.
    pub codes: [i8; 32],
}

/// The row of a query.
pub static FORMAT: Format = Format::new::<Block>("turbo_query", None).encoder::<Block>();

impl crate::quant::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 40;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (out, &code) in out.iter_mut().zip(&self.codes) {
            *out = f32::from(code) * scale;
        }
    }
}

impl crate::quant::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        let (scale, codes) = q8_0::encode_codes(values);
        let sum: i32 = codes.iter().map(|&code| i32::from(code)).sum();
        Block { scale: F32::new(scale), sum: F32::new(sum as f32 * scale), codes }
    }
}

impl Input for Block {
    #[inline(always)]
    fn codes(&self) -> &[i8; 32] {
        &self.codes
    }
    #[inline(always)]
    fn scale(&self) -> f32 {
        self.scale.get()
    }
    #[inline(always)]
    fn sum(&self) -> f32 {
        self.sum.get()
    }
}
