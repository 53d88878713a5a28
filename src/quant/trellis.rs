//! Trellis codes: 256 weights in 32 k + 2 bytes, k of 1 to 4 bits a weight, then an f16 scale.
//!
//! All k-bit symbols of a block are one ring of bits, lowest first. Weight j has the state that the 12 bits from bit j k on
//! are (behind the last bit comes the first again), so that every weight is found at once and shares 12 - k bits with the next:
//! the encoder looks for the ring whose states, as a path through a trellis, are nearest to the weights (`viterbi`).
//! weight = (code(state) - 63) * scale. `code` turns a state into a number of 7 bits, all of which look like a Gaussian, without a table.
//!
//! The ring is QTIP's (Tseng et al. 2024, tail-biting, L = 12, V = 1, T = 256) read against the time of its trellis: the last
//! weight is coded first. The code is ours. QTIP's 1MAD adds the four bytes of a 32-bit product; here they are the bytes of two
//! 16-bit products, which takes 27 vector instructions for 32 weights instead of 38, and the sum is cut to 7 bits, which any kernel for bytes
//! multiplies. The two multipliers are the best of some hundred random pairs; distortion is that of 1MAD or less
//! (`docs/low-bits.md`). [`codec`] has 1MAD and the others.

use bytemuck::{Pod, Zeroable};

use super::le::F16;
use super::parts::{Codes, Parts, Scaled, Shuffle};
use super::{Format, arms, panel, q8_k};

#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod codec;
mod viterbi;

/// Weights of a block.
const LEN: usize = 256;
/// Bits of a state.
const STATE_BITS: usize = 12;
const STATES: usize = 1 << STATE_BITS;
/// What is taken off a code: about the mean of all.
const BIAS: u8 = 63;
/// Of the two products of a state.
const MULTIPLIERS: [u16; 2] = [48657, 53921];

/// The number of a state, 0..=127: the sum of the bytes of two products modulo 2^16, without its three lowest bits.
#[inline(always)]
const fn code(state: u16) -> u8 {
    let (a, b) = (state.wrapping_mul(MULTIPLIERS[0]), state.wrapping_mul(MULTIPLIERS[1]));
    (((a & 255) + (a >> 8) + (b & 255) + (b >> 8)) >> 3) as u8
}

/// 256 weights of `K` bits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Block<const K: usize> {
    symbols: [[u8; 32]; K],
    scale: F16,
}

// SAFETY: arrays of bytes and a pair of bytes, all of alignment 1, so there is no padding; any bytes are a block.
unsafe impl<const K: usize> Zeroable for Block<K> {}
// SAFETY: as above.
unsafe impl<const K: usize> Pod for Block<K> {}

impl<const K: usize> Block<K> {
    fn ring(&self) -> &[u8] {
        self.symbols.as_flattened()
    }

    /// Of weight `j`.
    fn state(&self, j: usize) -> u16 {
        let (ring, first) = (self.ring(), j * K / 8);
        let byte = |i: usize| u32::from(ring[(first + i) % (32 * K)]);
        let window = (byte(0) | byte(1) << 8 | byte(2) << 16) >> (j * K % 8);
        window as u16 & (STATES - 1) as u16
    }

    /// The codes of all weights less the bias.
    fn codes(&self) -> [i8; LEN] {
        std::array::from_fn(|j| (code(self.state(j)) as i8) - BIAS as i8)
    }

    /// The block of the weights whose states are known.
    fn new(states: &[u16; LEN], scale: F16) -> Self {
        let mut symbols = [[0; 32]; K];
        for (j, state) in states.iter().enumerate() {
            for bit in 0..K {
                let at = j * K + bit;
                symbols[at / 256][at / 8 % 32] |= (state >> bit & 1) as u8 * (1 << (at % 8));
            }
        }
        Block { symbols, scale }
    }
}

/// The block of `K` bits a weight; [`Block::BYTES`](super::Block::BYTES) is written out by each width.
macro_rules! width {
    ($module:ident, $k:literal, $bytes:literal, $name:literal, $wgsl:literal) => {
        #[doc = concat!("Trellis codes of ", $k, " bits a weight, and 2 bytes each 256.")]
        pub mod $module {
            use super::{Codes, F16, Format, LEN, Parts, STATES, Scaled, Shuffle, arms, code, panel, q8_k};

            pub(super) type Block = super::Block<$k>;

            /// The table row. Its id is of our own: no other program reads these blocks, see `docs/low-bits.md`.
            pub static FORMAT: Format = Format::new::<Block>($name, Some(super::ID + $k))
                .shader(include_str!($wgsl))
                .encoder::<Block>()
        .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; super::dot, avx2])
                .panel(panel::scaled::<Block>());

            impl crate::quant::Block for Block {
                const LEN: usize = LEN;
                const BYTES: usize = $bytes;

                fn decode(&self, out: &mut [f32]) {
                    let scale = self.scale.get();
                    for (out, code) in out.iter_mut().zip(self.codes()) {
                        *out = f32::from(code) * scale;
                    }
                }
            }

            impl crate::quant::Encode for Block {
                fn encode(values: &[f32]) -> Self {
                    let (states, scale) = super::viterbi::encode::<$k>(values);
                    Block::new(&states, F16::new(scale))
                }
            }

            impl Scaled for Block {
                const CODES: Codes = Codes::Unsigned { most: 127, bias: super::BIAS as i16 };
                const GROUP: usize = 32;

                /// Four states are in the 32 bits from a nibble on.
                #[inline(always)]
                fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
                    parts.scale = self.scale.get();
                    parts.multipliers = [1; 16];
                    let mut ring = [0; 32 * $k + 4];
                    ring[..32 * $k].copy_from_slice(self.ring());
                    ring[32 * $k..].copy_from_slice(&self.ring()[..4]);
                    let mut states = [0; LEN];
                    for (i, states) in states.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                        let at = i * $k / 2;
                        let bits = u32::from_le_bytes([ring[at], ring[at + 1], ring[at + 2], ring[at + 3]]);
                        for (j, state) in states.iter_mut().enumerate() {
                            *state = (bits >> (4 * (i * $k % 2) + j * $k)) as u16 & (STATES - 1) as u16;
                        }
                    }
                    for (out, state) in parts.codes.iter_mut().zip(states) {
                        *out = code(state);
                    }
                }
            }

            #[cfg(target_arch = "x86_64")]
            mod avx2 {
                use super::{Block, q8_k};
                use crate::quant::{k, trellis::avx2::integers};
                use crate::simd::x86::Products;

                #[target_feature(enable = "avx2,f16c")]
                pub fn dot<V: Products>(weights: &[Block], input: &[q8_k::Block]) -> f32 {
                    k::avx2::dot(weights, input, |w| w.scale.get(), |w, x| integers::<V, $k>(w, x))
                }

                #[target_feature(enable = "avx2,f16c")]
                pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_k::Block]) -> [f32; 4] {
                    k::avx2::rows4(rows, input, |w| w.scale.get(), |w, x| integers::<V, $k>(w, x))
                }
            }
        }
    };
}

/// GGUF's type ids of version 1 of these blocks: this, plus the bits a weight. ggml counts its own from 0; "HD" is ours.
const ID: u32 = 0x4844_0100;

width!(k1, 1, 34, "trellis_k1", "../../wgsl/quant/trellis_k1.wgsl");
width!(k2, 2, 66, "trellis_k2", "../../wgsl/quant/trellis_k2.wgsl");
width!(k3, 3, 98, "trellis_k3", "../../wgsl/quant/trellis_k3.wgsl");
width!(k4, 4, 130, "trellis_k4", "../../wgsl/quant/trellis_k4.wgsl");

/// Blocks in ascending order: sum += (scale_w * scale_x) * exact integer dot.
fn dot<const K: usize>(weights: &[Block<K>], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let products = w.codes().into_iter().zip(&x.codes);
        let integer: i32 = products.map(|(code, &x)| i32::from(code) * i32::from(x)).sum();
        sum += (w.scale.get() * x.scale.get()) * integer as f32;
    }
    sum
}
