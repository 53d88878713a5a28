//! Trellis codes as published, plainly: what the fast encoder is measured against, and the storage of MLX's trellis files.
//!
//! The trellis has 2^L states; the next state is `(state << k | symbol) mod 2^L`, and each state has a number, its code
//! (Tseng et al., "QTIP", 2024). Blocks bite their tail: the state before the first symbol is the last one.

use crate::error::{Error, Result};
use crate::math::splitmix::SplitMix32;

/// The number of each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// QTIP's 1MAD: the bytes of `34038481 s + 76625530`, added up, less 510, over 147.800537109375.
    OneMad,
    /// QTIP's 2MAD: the same of a product that is hashed once more.
    TwoMad,
    /// QTIP's 3INST: two halves cut out of `89226354 s + 64248484`.
    ThreeInst,
    /// Random Gaussian numbers: the bound that the others come near.
    Random,
    /// That of [`super`], the only one with two weights a state.
    Pairs,
}

impl Code {
    /// Of each of the 2^`state_bits` states, one after the other.
    pub fn values(self, state_bits: u32) -> Vec<f32> {
        let states = 0..1u32 << state_bits;
        let less_bias = |code: u8| f32::from(code) - f32::from(super::BIAS);
        match self {
            Code::Random => gaussian(1 << state_bits),
            Code::Pairs => states.flat_map(|state| super::codes(state as u16).map(less_bias)).collect(),
            _ => states.map(|state| self.value(state)).collect(),
        }
    }

    /// Weights that a state stands for.
    pub fn weights(self) -> usize {
        if self == Code::Pairs { 2 } else { 1 }
    }

    fn value(self, state: u32) -> f32 {
        const MAD: f64 = 147.800_537_109_375;
        let mad = |x: u32| ((f64::from(bytes(x)) - 510.0) / MAD) as f32;
        match self {
            Code::OneMad => mad(state.wrapping_mul(34_038_481).wrapping_add(76_625_530)),
            Code::TwoMad => {
                let x = state.wrapping_mul(264_435_761).wrapping_add(1_013_904_223);
                mad(x.wrapping_add(((u64::from(x) * 1_664_525) >> 32) as u32))
            }
            Code::ThreeInst => {
                let x = state.wrapping_mul(89_226_354).wrapping_add(64_248_484);
                let halves = (x & 0x8fff_8fff) ^ 996_162_400;
                let half = |bits: u32| half::f16::from_bits(bits as u16).to_f32();
                half(halves >> 16) + half(halves)
            }
            Code::Random | Code::Pairs => unreachable!("their numbers are made together"),
        }
    }
}

/// The sum of four bytes.
fn bytes(x: u32) -> u32 {
    x.to_le_bytes().into_iter().map(u32::from).sum()
}

/// Gaussian numbers by Box and Muller, of pairs of uniform ones.
fn gaussian(count: usize) -> Vec<f32> {
    let uniform = |bits: u32| f64::from(bits) / 4_294_967_296.0 + 1.0 / 8_589_934_592.0;
    let mut stream = SplitMix32::new(0x00c0_ffee).map(uniform);
    let mut values = Vec::with_capacity(count + 1);
    while values.len() < count {
        let (Some(u), Some(v)) = (stream.next(), stream.next()) else { break };
        let (radius, angle) = ((-2.0 * libm::log(u)).sqrt(), 2.0 * std::f64::consts::PI * v);
        values.push((radius * libm::cos(angle)) as f32);
        values.push((radius * libm::sin(angle)) as f32);
    }
    values.truncate(count);
    values
}

/// A trellis.
#[derive(Clone, Debug)]
pub struct Trellis {
    /// Bits of a symbol.
    bits: u32,
    /// Weights of a state.
    weights: usize,
    state_bits: u32,
    values: Vec<f32>,
}

impl Trellis {
    /// That of `state_bits` bits a state and `bits` a weight.
    ///
    /// # Errors
    /// [`Error::Format`] unless 1 <= `bits` <= 4 and a symbol's bits < `state_bits` <= 16.
    pub fn new(code: Code, bits: u32, state_bits: u32) -> Result<Trellis> {
        let weights = code.weights();
        let symbol = bits.saturating_mul(weights as u32);
        if !(1..=4).contains(&bits) || state_bits <= symbol || state_bits > 16 {
            let message = format!("no trellis has {bits} bits a weight and {state_bits} a state");
            return Err(Error::Format { format: "trellis", message });
        }
        Ok(Trellis { bits: symbol, weights, state_bits, values: code.values(state_bits) })
    }

    /// Of each state, one after the other.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The root of the mean square of all codes: rows are divided by what theirs is of it.
    pub fn rms(&self) -> f64 {
        let squares = self.values.iter().map(|&value| f64::from(value) * f64::from(value));
        (squares.sum::<f64>() / self.values.len() as f64).sqrt()
    }

    /// The states of the path nearest to `block`, whose last state leads to the first. Of equal paths the one whose states
    /// are lowest, from the last one on.
    pub fn encode(&self, block: &[f32]) -> Vec<u16> {
        let steps = block.len() / self.weights;
        let mut seam = block.to_vec();
        seam.rotate_left(steps / 2 * self.weights);
        let middle = steps - steps / 2;
        let shared = self.path(&seam, None).get(middle).map(|state| state >> self.bits);
        self.path(block, shared)
    }

    /// The states of the nearest path, wherever it begins and ends.
    pub fn encode_free(&self, block: &[f32]) -> Vec<u16> {
        self.path(block, None)
    }

    fn path(&self, block: &[f32], shared: Option<u16>) -> Vec<u16> {
        let groups = 1usize << (self.state_bits - self.bits);
        let steps = block.len() / self.weights;
        let mut before = vec![if shared.is_some() { f32::INFINITY } else { 0.0 }; groups];
        if let Some(shared) = shared {
            before[usize::from(shared)] = 0.0;
        }
        let mut best = vec![before];
        for weights in block.chunks_exact(self.weights) {
            let row = &best[best.len() - 1];
            let least = |group| self.nearest(row, weights, group).1;
            best.push((0..groups).map(least).collect());
        }
        let last = &best[steps];
        let free = || (0..groups).min_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap_or(0);
        let mut group = shared.map_or_else(free, usize::from);
        let mut states = vec![0; steps];
        for (t, state) in states.iter_mut().enumerate().rev() {
            let (nearest, _) = self.nearest(&best[t], &block[t * self.weights..][..self.weights], group);
            *state = nearest as u16;
            group = nearest >> self.bits;
        }
        states
    }

    /// Of the states that differ in the oldest symbol only, the one with the least sum of errors, and that sum.
    fn nearest(&self, before: &[f32], weights: &[f32], group: usize) -> (usize, f32) {
        let groups = before.len();
        let mut nearest = (group, f32::INFINITY);
        for oldest in 0..1usize << self.bits {
            let state = oldest * groups + group;
            let codes = &self.values[state * self.weights..];
            let error: f32 =
                weights.iter().zip(codes).map(|(weight, code)| (weight - code) * (weight - code)).sum();
            let sum = before[state >> self.bits] + error;
            if sum < nearest.1 {
                nearest = (state, sum);
            }
        }
        nearest
    }

    /// MLX's words of a row of blocks: `block` states each, a multiple of 32. Symbol t of a block is at bit (T - 1 - t) k.
    pub fn pack(&self, states: &[u16], block: usize) -> Vec<u32> {
        let words = block * self.bits as usize / 32;
        let mut packed = vec![0u32; states.len() / block * words];
        for (states, words) in states.chunks_exact(block).zip(packed.chunks_exact_mut(words.max(1))) {
            for (t, &state) in states.iter().enumerate() {
                let at = (block - 1 - t) * self.bits as usize;
                let symbol = u64::from(state & ((1 << self.bits) - 1)) << (at % 32);
                words[at / 32] |= symbol as u32;
                if symbol >> 32 != 0 {
                    words[at / 32 + 1] |= (symbol >> 32) as u32;
                }
            }
        }
        packed
    }

    /// The states of a row of blocks, of `block` weights each, from MLX's words.
    pub fn unpack(&self, words: &[u32], block: usize) -> Vec<u16> {
        let mask = (1u64 << self.state_bits) - 1;
        let mut states = Vec::with_capacity(words.len() * 32 / self.bits as usize);
        for words in words.chunks_exact(block * self.bits as usize / 32) {
            for t in 0..block {
                let at = (block - 1 - t) * self.bits as usize;
                let word = |i: usize| u64::from(words[(at / 32 + i) % words.len()]);
                let window = (word(0) | word(1) << 32) >> (at % 32);
                states.push((window & mask) as u16);
            }
        }
        states
    }
}
