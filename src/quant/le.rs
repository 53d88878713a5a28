//! Little-endian numbers of alignment 1: the fields of block structs. A block can then be read in place from a
//! memory-mapped file at any offset, on any machine.

use bytemuck::{Pod, Zeroable};
use half::f16;

macro_rules! little_endian {
    ($name:ident, $value:ty, $bytes:literal) => {
        #[doc = concat!("A little-endian `", stringify!($value), "`.")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Stores `value`.
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(value.to_le_bytes())
            }

            /// The stored value.
            #[inline]
            pub const fn get(self) -> $value {
                <$value>::from_le_bytes(self.0)
            }
        }
    };
}

little_endian!(U16, u16, 2);
little_endian!(I16, i16, 2);
little_endian!(U32, u32, 4);
little_endian!(F32, f32, 4);

/// A little-endian IEEE half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct F16([u8; 2]);

impl F16 {
    /// Rounds `value` to the nearest half, ties to even; overflow gives an infinity.
    #[inline]
    pub fn new(value: f32) -> Self {
        Self(f16::from_f32(value).to_le_bytes())
    }

    /// The stored value, exactly.
    #[inline]
    #[cfg(not(target_arch = "aarch64"))]
    pub fn get(self) -> f32 {
        let bits = u16::from_le_bytes(self.0);
        // Exponent and mantissa land in f32's fields, where the exponent lacks 112. A subnormal half becomes the mantissa of
        // a number from 2^-14 on, which is then taken off: exact, and unlike a product with 2^112 it has no subnormal
        // operand, on which CPUs spend more than a hundred cycles. Scales of K and IQ formats are often subnormal.
        let magnitude = u32::from(bits & 0x7fff) << 13;
        let normal = magnitude + (112 << 23);
        let subnormal = (f32::from_bits(magnitude + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
        let finite = match bits & 0x7c00 {
            0 => subnormal,
            0x7c00 => magnitude | 0x7f80_0000,
            _ => normal,
        };
        f32::from_bits(finite | u32::from(bits & 0x8000) << 16)
    }

    /// The stored value, exactly.
    #[inline]
    #[cfg(target_arch = "aarch64")]
    pub fn get(self) -> f32 {
        crate::simd::aarch64::widen_half(u16::from_le_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_converts_exactly() {
        for bits in 0..=u16::MAX {
            let expected = f16::from_bits(bits);
            let found = F16(bits.to_le_bytes()).get();
            // A quiet NaN may differ in payload only.
            assert!(found.to_bits() == expected.to_f32().to_bits() || (found.is_nan() && expected.is_nan()));
        }
    }
}
