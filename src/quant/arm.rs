//! What a format has one of for each instruction set: dots of its rows, and quantizers.

use super::Format;
use crate::simd::Isa;

/// How rows of a format are multiplied with an input vector.
#[derive(Debug)]
pub struct Dot {
    /// What the input is quantized to first; a plain float format means "not at all".
    pub input: &'static Format,
    /// One function an instruction set, the scalar one first. All give the same bits.
    pub arms: &'static [Arm],
    /// Those that this machine cannot run, in plain Rust.
    #[cfg(test)]
    pub(super) emulated: &'static [Arm],
}

impl Dot {
    pub(super) const fn new(input: &'static Format, arms: &Arms) -> Self {
        Dot {
            input,
            arms: arms.listed,
            #[cfg(test)]
            emulated: arms.emulated,
        }
    }

    /// The fastest one that `isa` and this CPU allow.
    pub(super) fn row_dot(&self, isa: Isa) -> Option<RowDot> {
        self.arms.iter().rev().find(|arm| arm.isa <= isa && arm.isa.is_available()).copied().map(RowDot)
    }
}

/// What the macro `arms` makes.
pub(super) struct Arms {
    pub listed: &'static [Arm],
    /// The generic ones, emulated.
    #[cfg(test)]
    pub emulated: &'static [Arm],
}

/// The dot product of one row of weights with one input row, for one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// The instruction set that `call` needs.
    pub isa: Isa,
    /// Weights and input as bytes, whole blocks, covering the same number of elements.
    ///
    /// # Safety
    /// The CPU must have `isa`.
    pub call: unsafe fn(&[u8], &[u8]) -> f32,
    /// Four rows of weights with the same input, of which each takes a lane of the sums. The bits are those of `call`.
    ///
    /// # Safety
    /// The CPU must have `isa`.
    pub rows4: Option<Rows4>,
}

/// The dots of four rows of weights with one input row.
pub type Rows4 = unsafe fn([&[u8]; 4], &[u8]) -> [f32; 4];

/// Makes blocks from numbers, for one instruction set, with the bytes of the scalar encoder.
#[derive(Clone, Copy, Debug)]
pub struct Quantizer {
    /// The instruction set that `call` needs.
    pub isa: Isa,
    /// Values, and the bytes of the blocks that they fill.
    ///
    /// # Safety
    /// The CPU must have `isa`.
    pub call: unsafe fn(&[f32], &mut [u8]),
}

/// The dot of one format on this machine, picked once per matrix. See [`Format::row_dot`].
#[derive(Clone, Copy, Debug)]
pub struct RowDot(Arm);

impl RowDot {
    /// Sum over k of `weights[k] * input[k]` in the format's pinned order.
    #[inline]
    pub fn call(self, weights: &[u8], input: &[u8]) -> f32 {
        // SAFETY: `Dot::row_dot` is the only maker and takes only arms whose Isa is available.
        unsafe { (self.0.call)(weights, input) }
    }

    /// [`RowDot::call`] for four rows of weights.
    #[inline]
    pub fn rows4(self, weights: [&[u8]; 4], input: &[u8]) -> [f32; 4] {
        match self.0.rows4 {
            // SAFETY: as in `call`.
            Some(rows4) => unsafe { rows4(weights, input) },
            None => weights.map(|weights| self.call(weights, input)),
        }
    }

    /// The instruction set it runs on.
    pub fn isa(self) -> Isa {
        self.0.isa
    }
}

/// The arms of a [`Dot`] from typed functions. `arms![terms; Block, q8_0::Block; dot, avx2]` are those of a format of a
/// family of [`super::parts`], for all instruction sets: its scalar `dot`, its module `avx2`, whose `dot` and `rows4` are
/// generic over [`Products`](crate::simd::x86::Products), and for the others the family's module in [`super::dots`].
/// `arms![Block, Input; Scalar: dot, Avx2: dot_avx2]` lists every one; an entry may carry a `#[cfg]`, and what follows a bar
/// takes four rows.
macro_rules! arms {
    ($family:ident; $weights:ty, $input:ty; $scalar:path, $($avx2:ident)::+) => {
        &$crate::quant::arm::Arms {
            listed: $crate::quant::arm::list![
                $weights, $input;
                Scalar: $scalar,
                #[cfg(target_arch = "x86_64")]
                Avx2: $($avx2)::+::dot::<$crate::simd::x86::Avx2>
                    | $($avx2)::+::rows4::<$crate::simd::x86::Avx2>,
                #[cfg(target_arch = "x86_64")]
                AvxVnni: $($avx2)::+::dot::<$crate::simd::x86::vnni::AvxVnni>
                    | $($avx2)::+::rows4::<$crate::simd::x86::vnni::AvxVnni>,
                #[cfg(target_arch = "x86_64")]
                Avx512: $($avx2)::+::dot::<$crate::simd::x86::vnni::Avx512>
                    | $($avx2)::+::rows4::<$crate::simd::x86::vnni::Avx512>,
                #[cfg(target_arch = "aarch64")]
                Neon: $crate::quant::dots::$family::dot::<$weights, $crate::simd::aarch64::Neon>
                    | $crate::quant::dots::$family::rows4::<$weights, $crate::simd::aarch64::Neon>,
                #[cfg(target_arch = "aarch64")]
                Dotprod: $crate::quant::dots::$family::dot::<$weights, $crate::simd::aarch64::Dotprod>
                    | $crate::quant::dots::$family::rows4::<$weights, $crate::simd::aarch64::Dotprod>,
                #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
                Simd128: $crate::quant::dots::$family::dot::<$weights, $crate::simd::wasm32::Simd128>
                    | $crate::quant::dots::$family::rows4::<$weights, $crate::simd::wasm32::Simd128>,
            ],
            #[cfg(test)]
            emulated: $crate::quant::arm::list![
                $weights, $input;
                Scalar: $crate::quant::dots::$family::dot::<$weights, $crate::simd::vector::Emulated<4, false>>
                    | $crate::quant::dots::$family::rows4::<$weights, $crate::simd::vector::Emulated<4, false>>,
                #[cfg(target_arch = "x86_64")]
                Avx2: $($avx2)::+::dot::<$crate::simd::x86::products::EmulatedVnni>
                    | $($avx2)::+::rows4::<$crate::simd::x86::products::EmulatedVnni>,
            ],
        }
    };
    ($weights:ty, $input:ty; $($list:tt)+) => {
        &$crate::quant::arm::Arms {
            listed: $crate::quant::arm::list![$weights, $input; $($list)+],
            #[cfg(test)]
            emulated: &[],
        }
    };
}
pub(super) use arms;

/// [`Arm`]s of blocks, from typed functions.
macro_rules! list {
    ($weights:ty, $input:ty; $($(#[$attribute:meta])* $isa:ident: $dot:path $(| $rows4:path)?),+ $(,)?) => {
        &[$($(#[$attribute])* $crate::quant::Arm {
            isa: $crate::simd::Isa::$isa,
            call: {
                #[allow(unused_unsafe, reason = "the scalar arm is safe to call")]
                unsafe fn erased(weights: &[u8], input: &[u8]) -> f32 {
                    let weights: &[$weights] = bytemuck::cast_slice(weights);
                    let input: &[$input] = bytemuck::cast_slice(input);
                    // SAFETY: the caller promises the instruction set that the arm is listed under.
                    unsafe { $dot(weights, input) }
                }
                erased
            },
            rows4: $crate::quant::arm::rows4!($weights, $input; $($rows4)?),
        }),+]
    };
}
pub(super) use list;

/// The `rows4` of an [`Arm`], from a typed function or from nothing.
macro_rules! rows4 {
    ($weights:ty, $input:ty;) => {
        None
    };
    ($weights:ty, $input:ty; $rows4:path) => {{
        #[allow(unused_unsafe, reason = "what every CPU of a target has is safe to call")]
        unsafe fn erased([a, b, c, d]: [&[u8]; 4], input: &[u8]) -> [f32; 4] {
            let (a, b): (&[$weights], &[$weights]) = (bytemuck::cast_slice(a), bytemuck::cast_slice(b));
            let (c, d): (&[$weights], &[$weights]) = (bytemuck::cast_slice(c), bytemuck::cast_slice(d));
            let input: &[$input] = bytemuck::cast_slice(input);
            // SAFETY: the caller promises the instruction set that the arm is listed under.
            unsafe { $rows4([a, b, c, d], input) }
        }
        Some(erased as $crate::quant::Rows4)
    }};
}
pub(super) use rows4;

/// [`Quantizer`]s from typed functions: `quantizers![Block; Avx2: avx2::quantize]`. An entry may carry a `#[cfg]`.
macro_rules! quantizers {
    ($block:ty; $($(#[$attribute:meta])* $isa:ident: $quantize:path),+ $(,)?) => {
        &[$($(#[$attribute])* $crate::quant::Quantizer {
            isa: $crate::simd::Isa::$isa,
            call: {
                #[allow(unused_unsafe, reason = "what every CPU of a target has is safe to call")]
                unsafe fn erased(values: &[f32], out: &mut [u8]) {
                    let out: &mut [$block] = bytemuck::cast_slice_mut(out);
                    // SAFETY: the caller promises the instruction set that the entry is listed under.
                    unsafe { $quantize(values, out) }
                }
                erased
            },
        }),+]
    };
}
pub(super) use quantizers;

/// [`Decoder`]s from typed functions, like [`quantizers!`].
macro_rules! decoders {
    ($block:ty; $($(#[$attribute:meta])* $isa:ident: $decode:path),+ $(,)?) => {
        &[$($(#[$attribute])* $crate::quant::Decoder {
            isa: $crate::simd::Isa::$isa,
            call: {
                #[allow(unused_unsafe, reason = "what every CPU of a target has is safe to call")]
                unsafe fn erased(bytes: &[u8], out: &mut [f32]) {
                    let blocks: &[$block] = bytemuck::cast_slice(bytes);
                    // SAFETY: the caller promises the instruction set that the entry is listed under.
                    unsafe { $decode(blocks, out) }
                }
                erased
            },
        }),+]
    };
}
pub(super) use decoders;
