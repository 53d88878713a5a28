//! TurboQuant: how keys and values of a cache are stored in 2 to 8 bits an element (vllm-metal's variant of Zandieh et
//! al. 2025, "TurboQuant: Online vector quantization with near-optimal distortion rate").
//!
//! A row is one head of one token; each 32 of its elements are a block with scales of their own, so that tokens can be
//! taken off and put back anywhere. Keys are stored as they are, affine ([`keys`]). Values are turned first ([`rotate`]),
//! which makes their elements nearly normal whatever they were, and then take the nearest number of a fixed codebook
//! ([`values`]). Attention is linear in the values, so it sums turned ones and turns only the result back.
//!
//! These formats are no rows of `FORMATS`: caches hold them, files of weights don't.

use crate::math::hadamard;
use crate::simd::Isa;

mod bits;
pub mod keys;
pub(super) mod query;
mod tables;
pub mod values;

pub use tables::{DIMS, LARGEST_DIM, bytes as tables};

/// Turns a row: signs, then the Hadamard transform. A product of two turned rows is that of the rows.
///
/// # Panics
/// If [`DIMS`] lacks the row's length.
pub fn rotate(isa: Isa, row: &mut [f32]) {
    flip(row);
    hadamard::transform(isa, row);
}

/// Takes [`rotate`] back.
///
/// # Panics
/// If [`DIMS`] lacks the row's length.
pub fn rotate_back(isa: Isa, row: &mut [f32]) {
    hadamard::transform(isa, row);
    flip(row);
}

fn flip(row: &mut [f32]) {
    let signs = tables::signs(row.len()).expect("a head size with signs");
    for (eight, signs) in row.as_chunks_mut::<8>().0.iter_mut().zip(signs) {
        for (i, value) in eight.iter_mut().enumerate() {
            *value = f32::from_bits(value.to_bits() ^ u32::from(signs >> i & 1) << 31);
        }
    }
}
