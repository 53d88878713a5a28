//! The generator splitmix32, whose streams name signs and codes in files: it may never change.

/// Numbers of 32 bits.
#[derive(Clone, Debug)]
pub struct SplitMix32(u32);

impl SplitMix32 {
    /// The stream that begins with `state`.
    pub fn new(state: u32) -> SplitMix32 {
        SplitMix32(state)
    }
}

impl Iterator for SplitMix32 {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0 = self.0.wrapping_add(0x9e37_79b9);
        let z = (self.0 ^ self.0 >> 16).wrapping_mul(0x21f0_aaad);
        let z = (z ^ z >> 15).wrapping_mul(0x735a_2d97);
        Some(z ^ z >> 15)
    }
}
