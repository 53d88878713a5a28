//! Affine groups of MLX: a scale, a bias, then codes of b bits, lowest first, without padding; weight = code · scale + bias.
//!
//! MLX keeps codes, scales and biases in three tensors, of which a row here is made: each group stands behind its two
//! numbers. They are f32, whatever the folder has (f16, bf16 or f32), so that nothing of it is lost: 64 / group bits a
//! weight where MLX spends 32 / group in halves. The sum of a product and a bias is not rounded to the folder's type.
//!
//! [`A4`] and [`A8`], whose two numbers are halves, are what `--kv affine4` and `affine8` hold; they are no rows of
//! `FORMATS`. Keys of them meet queries that keep the sums of their groups in full: keys may lie far from zero.

use bytemuck::{Pod, Zeroable};

use super::dots::Input;
use super::le::{F16, F32};
use super::parts::{Codes, Shuffle, Terms};
use super::turbo::query;
use super::{Format, arms, panel, q8_1};

/// What scale and bias are stored as.
trait Number: Pod {
    fn new(value: f32) -> Self;
    fn get(self) -> f32;
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn new(value: f32) -> Self {
                $number::new(value)
            }
            #[inline(always)]
            fn get(self) -> f32 {
                $number::get(self)
            }
        }
    )*};
}
numbers!(F16 F32);

/// `GROUP` weights in `BYTES` bytes of codes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Block<S, const GROUP: usize, const BYTES: usize> {
    scale: S,
    bias: S,
    codes: [u8; BYTES],
}

// SAFETY: all fields are plain bytes of alignment 1, so zeros are a value and there is no padding.
unsafe impl<S: Number, const GROUP: usize, const BYTES: usize> Zeroable for Block<S, GROUP, BYTES> {}
// SAFETY: as above; any bytes are a value.
unsafe impl<S: Number, const GROUP: usize, const BYTES: usize> Pod for Block<S, GROUP, BYTES> {}

/// A cache's rows of `$bytes` bytes of codes.
macro_rules! cache_row {
    ($name:literal, $bytes:literal) => {
        Format::new::<Block<F16, 64, $bytes>>($name, None)
            .shader(include_str!("../../wgsl/quant/affine.wgsl"))
            .encode_shader(include_str!("../../wgsl/encode/affine.wgsl"))
            .encoder::<Block<F16, 64, $bytes>>()
            .dot(&query::FORMAT, arms![terms; Block<F16, 64, $bytes>, query::Block; dot, avx2])
            .panel(panel::terms::<Block<F16, 64, $bytes>>())
    };
}

/// A cache's rows of 4 bits.
pub static A4: Format = cache_row!("affine4", 32);
/// A cache's rows of 8 bits.
pub static A8: Format = cache_row!("affine8", 64);

/// The rows of weights: name, bits and group of each.
macro_rules! rows {
    ($($name:ident: $bits:literal $group:literal;)+) => {
        $(
            #[doc = concat!("Groups of ", $group, ", ", $bits, " bits a code.")]
            pub static $name: Format =
                Format::new::<Block<F32, $group, { $group / 8 * $bits }>>(concat!("affine", $bits, "_g", $group), None)
                    .shader(concat!(
                        "const BITS: u32 = ", $bits, "u;\n",
                        "const BLOCK: u32 = ", $group, "u;\n",
                        "const BLOCK_BYTES: u32 = 8u + BLOCK / 8u * BITS;\n",
                        "#import lib/affine\n",
                    ))
                    .encoder::<Block<F32, $group, { $group / 8 * $bits }>>()
                    .dot(
                        &q8_1::FORMAT,
                        arms![terms; Block<F32, $group, { $group / 8 * $bits }>, q8_1::Block; dot, avx2],
                    )
                    .panel(panel::terms::<Block<F32, $group, { $group / 8 * $bits }>>());
        )+
    };
}

rows! {
    B2_G32: 2 32;
    B2_G64: 2 64;
    B2_G128: 2 128;
    B3_G32: 3 32;
    B3_G64: 3 64;
    B3_G128: 3 128;
    B4_G32: 4 32;
    B4_G64: 4 64;
    B4_G128: 4 128;
    B5_G32: 5 32;
    B5_G64: 5 64;
    B5_G128: 5 128;
    B6_G32: 6 32;
    B6_G64: 6 64;
    B6_G128: 6 128;
    B8_G32: 8 32;
    B8_G64: 8 64;
    B8_G128: 8 128;
}

impl<S: Number, const GROUP: usize, const BYTES: usize> Block<S, GROUP, BYTES> {
    const BITS: usize = 8 * BYTES / GROUP;
    /// The largest code.
    const MOST: u8 = (0xff >> (8 - Self::BITS)) as u8;

    /// The codes of `out.len()` weights, a multiple of 8, from weight `first` on, another one.
    #[inline(always)]
    fn read(&self, first: usize, out: &mut [u8]) {
        if Self::BITS == 8 {
            return out.copy_from_slice(&self.codes[first..first + out.len()]);
        }
        if Self::BITS == 4 {
            let bytes = &self.codes[first / 2..(first + out.len()) / 2];
            for i in 0..bytes.len() {
                (out[2 * i], out[2 * i + 1]) = (bytes[i] & 15, bytes[i] >> 4);
            }
            return;
        }
        // Eight codes are as many bytes as a code has bits.
        let bytes = self.codes[first / 8 * Self::BITS..].chunks_exact(Self::BITS);
        for (out, bytes) in out.chunks_exact_mut(8).zip(bytes) {
            let mut word = [0; 8];
            word[..Self::BITS].copy_from_slice(bytes);
            let word = u64::from_le_bytes(word);
            for (i, out) in out.iter_mut().enumerate() {
                *out = (word >> (i * Self::BITS)) as u8 & Self::MOST;
            }
        }
    }

    fn write(&mut self, codes: &[u8; GROUP]) {
        for (codes, bytes) in codes.chunks_exact(8).zip(self.codes.chunks_exact_mut(Self::BITS)) {
            let word = codes.iter().rev().fold(0u64, |word, &code| word << Self::BITS | u64::from(code));
            bytes.copy_from_slice(&word.to_le_bytes()[..Self::BITS]);
        }
    }
}

impl<S: Number, const GROUP: usize, const BYTES: usize> super::Block for Block<S, GROUP, BYTES> {
    const LEN: usize = GROUP;
    const BYTES: usize = 2 * size_of::<S>() + BYTES;

    #[inline(always)]
    fn decode(&self, out: &mut [f32]) {
        let (scale, bias) = (self.scale.get(), self.bias.get());
        let mut codes = [0; GROUP];
        self.read(0, &mut codes);
        for (out, code) in out.iter_mut().zip(codes) {
            *out = f32::from(code) * scale + bias;
        }
    }
}

impl<S: Number, const GROUP: usize, const BYTES: usize> super::Encode for Block<S, GROUP, BYTES> {
    /// The extreme of larger magnitude is a whole number of steps from zero, so that it and zero are exact; codes are
    /// chosen by the unrounded scale and bias. (MLX on CPUs.)
    fn encode(values: &[f32]) -> Self {
        let most = f32::from(Self::MOST);
        let min = values.iter().copied().fold(f32::INFINITY, f32::min);
        let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let width = ((max - min) / most).max(1e-7);
        let (scale, edge) = if min.abs() > max.abs() { (width, min) } else { (-width, max) };
        let steps = (edge / scale).round_ties_even();
        let (scale, bias) = if steps == 0.0 { (scale, 0.0) } else { (edge / steps, edge) };
        let codes =
            std::array::from_fn(|i| ((values[i] - bias) / scale).round_ties_even().clamp(0.0, most) as u8);
        let mut block = Block { scale: S::new(scale), bias: S::new(bias), codes: [0; BYTES] };
        block.write(&codes);
        block
    }
}

/// A group of weights as it is multiplied: codes of 8 bits are taken as signed, 128 less.
trait Group: Pod {
    const BITS: usize;
    /// Bytes before the codes.
    #[cfg(target_arch = "x86_64")]
    const HEAD: usize;

    fn scale(&self) -> f32;
    /// What the sum of the inputs is multiplied with.
    fn offset(&self) -> f32;
    /// The codes of weights `32 * term` to `32 * term + 31`, as stored.
    fn codes(&self, term: usize, out: &mut [u8; 32]);
}

impl<S: Number, const GROUP: usize, const BYTES: usize> Group for Block<S, GROUP, BYTES> {
    const BITS: usize = Self::BITS;
    #[cfg(target_arch = "x86_64")]
    const HEAD: usize = 2 * size_of::<S>();

    #[inline(always)]
    fn scale(&self) -> f32 {
        self.scale.get()
    }

    #[inline(always)]
    fn offset(&self) -> f32 {
        let bias = self.bias.get();
        if Self::BITS == 8 { bias + 128.0 * self.scale.get() } else { bias }
    }

    #[inline(always)]
    fn codes(&self, term: usize, out: &mut [u8; 32]) {
        self.read(32 * term, out);
    }
}

impl<N: Number, const GROUP: usize, const BYTES: usize> Terms for Block<N, GROUP, BYTES> {
    const CODES: Codes = match Self::BITS {
        8 => Codes::Signed,
        _ => Codes::Unsigned { most: Self::MOST as usize, bias: 0 },
    };
    const MIN: bool = true;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
        scales.fill(self.scale());
        mins.fill(self.offset());
        self.read(0, codes);
        if Self::BITS == 8 {
            for code in codes {
                *code ^= 0x80;
            }
        }
    }
}

/// 32 weights after the other: sum += (scale_w * scale_x) * exact integer dot + offset_w * sum_x.
fn dot(weights: &[impl Group], input: &[impl Input]) -> f32 {
    let mut sum = 0.0;
    let terms = input.len() / weights.len().max(1);
    for (w, x) in weights.iter().zip(input.chunks_exact(terms.max(1))) {
        for (term, x) in x.iter().enumerate() {
            sum += (w.scale() * x.scale()) * integer_dot(w, term, x.codes()) as f32 + w.offset() * x.sum();
        }
    }
    sum
}

fn integer_dot<W: Group>(w: &W, term: usize, x: &[i8; 32]) -> i32 {
    let mut codes = [0; 32];
    w.codes(term, &mut codes);
    let less = if W::BITS == 8 { 128 } else { 0 };
    codes.iter().zip(x).map(|(&code, &x)| (i32::from(code) - less) * i32::from(x)).sum()
}

#[cfg(target_arch = "x86_64")]
mod avx2;
