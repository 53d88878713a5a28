//! Trellis codes: 256 weights in 32 k + 2 bytes, k of 1 to 4 bits a weight, then an f16 scale.
//!
//! A path through a trellis visits the weights in pairs; a pair's 2 k bits are its symbol, and the symbols of a block are one ring
//! of bits, lowest first. Pair j has the state that the 14 bits from bit 2 j k on are (behind the last bit comes the first
//! again), so that every pair is found at once and shares 14 - 2 k bits with the next: the encoder looks for the ring whose
//! states are nearest to the weights (`viterbi`). weight = (code - 63) * scale; `codes` turns a state into two numbers of 7 bits,
//! all of which look like Gaussians.
//!
//! The ring is laid out for vectors: it is cut into 16 lanes of 16 k bits, and word w (16 bits) of lane i is word 16 w + i of the
//! block. Pair 8 i + g of the path is weights 32 g + 2 i and 32 g + 2 i + 1, so that the states of 32 neighbours are two words,
//! shifted and joined, of all lanes.
//!
//! The ring is QTIP's (Tseng et al. 2024, tail-biting, T = 256, but L = 14 and V = 2 for their 12 and 1) read against the time of
//! its trellis: the last pair is coded first. The code is ours. QTIP's 1MAD adds the four bytes of a 32-bit product; here a
//! state goes through a product modulo 2^16 and the upper half of another, whose two bytes are, but for their highest
//! bit, a number of 7 bits each; the mean of it and what a table of 16 has for its lowest four bits is about Gaussian. That takes eleven vector
//! instructions for 32 weights, from the load to the sum of products; 1MAD takes 38. Multipliers and table are the best of some
//! thousand random ones; `docs/low-bits.md` has the distortions. [`codec`] has 1MAD and the others.

use bytemuck::{Pod, Zeroable};

use super::le::{F16, U16};
use super::parts::{Codes, Parts, Scaled, Shuffle};
use super::{Format, arms, panel, q8_k};
use crate::simd::Isa;

#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod codec;
mod viterbi;

pub use viterbi::{Path, paths, scale};

/// Weights of a block.
const LEN: usize = 256;
/// Pairs of weights of a block.
const PAIRS: usize = LEN / 2;
/// Words beside each other.
const LANES: usize = 16;
/// Bits of a state.
const STATE_BITS: usize = 14;
const STATES: usize = 1 << STATE_BITS;
/// What is taken off a code: about the mean of all.
const BIAS: u8 = 63;
/// Of the product modulo 2^16, which the bits above a state do not reach, and of the product whose upper half is taken.
const MULTIPLIERS: [u16; 2] = [10889 << (16 - STATE_BITS), 60419];
/// The bits of a product's bytes that count.
const MASK: u16 = 0x7f7f;
/// What the numbers with these lowest four bits are averaged with.
const TABLE: [u8; 16] = [62, 85, 90, 61, 52, 65, 75, 88, 64, 33, 10, 65, 54, 38, 108, 63];

/// The two numbers of 7 bits of a state, in bytes. Bits above the state do not matter.
#[inline(always)]
const fn hash(state: u16) -> u16 {
    let product = state.wrapping_mul(MULTIPLIERS[0]);
    ((product as u32 * MULTIPLIERS[1] as u32) >> 16) as u16 & MASK
}

/// The codes of a state's two weights, at most 127.
#[inline(always)]
const fn codes(state: u16) -> [u8; 2] {
    let [a, b] = hash(state).to_le_bytes();
    [mean(a, TABLE[(a & 15) as usize]), mean(b, TABLE[(b & 15) as usize])]
}

/// Of two numbers below 128, rounded up.
#[inline(always)]
const fn mean(a: u8, b: u8) -> u8 {
    (a + b + 1) >> 1
}

/// What a folder's config.json says of the code, beside bits and group: bits of a state, weights of a symbol, and our name of
/// the code with the version that is in GGUF's ids.
pub(crate) fn settings() -> serde_json::Value {
    serde_json::json!({"L": STATE_BITS, "V": LEN / PAIRS, "code": "hadal-2"})
}

/// 256 weights of `K` bits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Block<const K: usize> {
    /// Word w of all lanes in row w.
    words: [[U16; LANES]; K],
    scale: F16,
}

// SAFETY: pairs of bytes of alignment 1, so there is no padding; any bytes are a block.
unsafe impl<const K: usize> Zeroable for Block<K> {}
// SAFETY: as above.
unsafe impl<const K: usize> Pod for Block<K> {}

impl<const K: usize> Block<K> {
    /// Of the pair of each lane in the 32 weights of `group`, with other bits above.
    #[inline(always)]
    fn states(&self, group: usize) -> [u16; LANES] {
        let (word, shift) = (2 * K * group / 16, 2 * K * group % 16);
        let mut states = [0; LANES];
        for lane in 0..LANES {
            states[lane] = self.words[word][lane].get() >> shift;
        }
        if shift + STATE_BITS <= 16 {
            return states;
        }
        // Behind a lane comes the next one's first word.
        let mut next = self.words[(word + 1) % K];
        if word + 1 == K {
            next.rotate_left(1);
        }
        for lane in 0..LANES {
            states[lane] |= next[lane].get() << (16 - shift);
        }
        states
    }

    /// The codes of all weights less the bias.
    fn codes(&self) -> [i8; LEN] {
        let mut all = [0; LEN];
        for (group, all) in all.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (pair, state) in all.as_chunks_mut::<2>().0.iter_mut().zip(self.states(group)) {
                *pair = codes(state).map(|code| code as i8 - BIAS as i8);
            }
        }
        all
    }

    /// The block of the pairs whose states are known, in the order of the path.
    fn new(states: &[u16; PAIRS], scale: F16) -> Self {
        let mut words = [[0; LANES]; K];
        for (j, state) in states.iter().enumerate() {
            for bit in 0..2 * K {
                let at = j % 8 * 2 * K + bit;
                words[at / 16][j / 8] |= (state >> bit & 1) << (at % 16);
            }
        }
        Block { words: words.map(|lanes| lanes.map(U16::new)), scale }
    }
}

/// The first of the two weights of pair `j` of the path.
const fn first_weight(j: usize) -> usize {
    j % 8 * 32 + j / 8 * 2
}

/// The block of `K` bits a weight; [`Block::BYTES`](super::Block::BYTES) is written out by each width.
macro_rules! width {
    ($module:ident, $k:literal, $bytes:literal, $name:literal, $wgsl:literal) => {
        #[doc = concat!("Trellis codes of ", $k, " bits a weight, and 2 bytes each 256.")]
        pub mod $module {
            use super::{
                Codes, F16, Format, Isa, LEN, Parts, Scaled, Shuffle, TABLE, arms, hash, mean, panel, paths,
                q8_k,
            };

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
                    let mut block = [bytemuck::Zeroable::zeroed()];
                    Self::encode_all(values, &mut block);
                    block[0]
                }

                fn encode_all(values: &[f32], out: &mut [Self]) {
                    let isa = Isa::detect().unwrap_or(Isa::Scalar);
                    for (block, path) in out.iter_mut().zip(paths::<$k>(isa, values)) {
                        *block = Block::new(&path.states, F16::new(path.scale));
                    }
                }
            }

            impl Scaled for Block {
                const CODES: Codes = Codes::Unsigned { most: 127, bias: super::BIAS as i16 };
                const GROUP: usize = 32;

                #[inline(always)]
                fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
                    parts.scale = self.scale.get();
                    parts.multipliers = [1; 16];
                    for group in 0..8 {
                        let mut hashes = self.states(group);
                        for state in &mut hashes {
                            *state = hash(*state).to_le();
                        }
                        let hashes: [[u8; 16]; 2] = bytemuck::cast(hashes);
                        for half in 0..2 {
                            let out = &mut parts.codes[32 * group + 16 * half..][..16];
                            let mut numbers = hashes[half];
                            for number in &mut numbers {
                                *number &= 15;
                            }
                            let others = S::lookup16(&TABLE, &numbers);
                            for i in 0..16 {
                                out[i] = mean(hashes[half][i], others[i]);
                            }
                        }
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

/// GGUF's type ids of version 2 of these blocks: this, plus the bits a weight. ggml counts its own from 0; "HD" is ours. (Version
/// 1, of single weights and 12 bits a state, was never released.)
const ID: u32 = 0x4844_0200;

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
