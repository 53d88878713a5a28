//! Codes of 2 to 8 bits as a bit stream: code i is bits [i · b, i · b + b) of the little-endian number that the bytes
//! are. 32 codes fill whole bytes whatever their width.

/// 32 codes of `N` / 4 bits.
pub fn pack<const N: usize>(codes: &[u8; 32]) -> [u8; N] {
    let bits = N / 4;
    let mut bytes = [0; N];
    for (i, &code) in codes.iter().enumerate() {
        let shifted = u16::from(code) << (i * bits % 8);
        let at = i * bits / 8;
        bytes[at] |= shifted as u8;
        if shifted > 255 {
            bytes[at + 1] |= (shifted >> 8) as u8;
        }
    }
    bytes
}

/// The codes of [`pack`].
#[inline(always)]
pub fn unpack<const N: usize>(bytes: &[u8; N]) -> [u8; 32] {
    let bits = N / 4;
    let mut codes = [0; 32];
    for i in 0..32 {
        let at = i * bits / 8;
        let next = if at + 1 < N { bytes[at + 1] } else { 0 };
        let word = u16::from(bytes[at]) | u16::from(next) << 8;
        codes[i] = (word >> (i * bits % 8) & ((1 << bits) - 1)) as u8;
    }
    codes
}

#[cfg(target_arch = "x86_64")]
pub mod avx2 {
    use std::arch::x86_64::*;

    use crate::simd::x86::{load16, load32};

    /// As [`super::unpack`]. Each lane of 16 bits takes the two bytes that its code lies in, is shifted left until nothing
    /// stands above the code, and then right.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn unpack<const N: usize>(bytes: &[u8; N]) -> __m256i {
        if N == 32 {
            return load32(bytes.first_chunk().expect("32 bytes"));
        }
        let (low, high) = (half::<N>(bytes, 0), half::<N>(bytes, 1));
        let words = _mm256_set_m128i(high, low);
        let pick = |part: usize| {
            let [a, b] = &Lanes::<N>::PAIRS[part];
            let picked = _mm256_shuffle_epi8(words, _mm256_set_m128i(load16(b), load16(a)));
            let left = _mm256_mullo_epi16(picked, _mm256_broadcastsi128_si256(load16(&Lanes::<N>::LEFTS)));
            _mm256_srl_epi16(left, _mm_cvtsi32_si128(16 - (N / 4) as i32))
        };
        _mm256_packus_epi16(pick(0), pick(1))
    }

    /// Constants, as the compiler would count these indices out for every block.
    struct Lanes<const N: usize>;

    impl<const N: usize> Lanes<N> {
        /// Of codes 0..8 and 16..24, then of codes 8..16 and 24..32.
        const PAIRS: [[[u8; 16]; 2]; 2] = [
            [pairs(N / 4, 0, base::<N>(0)), pairs(N / 4, 16, base::<N>(1))],
            [pairs(N / 4, 8, base::<N>(0)), pairs(N / 4, 24, base::<N>(1))],
        ];
        const LEFTS: [u8; 16] = lefts(N / 4);
    }

    /// 16 bytes with codes 0..16 (`part` 0) or 16..32 of the stream, which begin `base` bytes into it.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn half<const N: usize>(bytes: &[u8; N], part: usize) -> __m128i {
        if N >= 16 {
            let at = base::<N>(part);
            return load16(bytes[at..at + 16].first_chunk().expect("16 bytes"));
        }
        let low = u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes"));
        let high = if N > 8 { u32::from_le_bytes(*bytes.last_chunk().expect("4 bytes")) } else { 0 };
        _mm_set_epi64x(i64::from(high), low.cast_signed())
    }

    /// Where the 16 bytes of [`half`] begin.
    const fn base<const N: usize>(part: usize) -> usize {
        if N >= 16 && part == 1 { N - 16 } else { 0 }
    }

    /// The indices of the byte pairs of codes `first..first + 8`, counted from byte `base`.
    const fn pairs(bits: usize, first: usize, base: usize) -> [u8; 16] {
        let mut indices = [0; 16];
        let mut i = 0;
        while i < 8 {
            let at = (first + i) * bits / 8 - base;
            indices[2 * i] = at as u8;
            // A code that ends with its byte needs no next one, which may not be there.
            let straddles = (first + i) * bits % 8 + bits > 8;
            indices[2 * i + 1] = if straddles { at as u8 + 1 } else { 0x80 };
            i += 1;
        }
        indices
    }

    /// Powers of two that bring eight codes, at their places in their byte pairs, to the upper end of 16 bits.
    const fn lefts(bits: usize) -> [u8; 16] {
        let mut bytes = [0; 16];
        let mut i = 0;
        while i < 8 {
            let factor = 1u16 << (16 - bits - i * bits % 8);
            [bytes[2 * i], bytes[2 * i + 1]] = factor.to_le_bytes();
            i += 1;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const N: usize>(random: &mut fastrand::Rng) {
        let codes: [u8; 32] = std::array::from_fn(|_| random.u8(..) >> (8 - N / 4));
        let bytes = pack::<N>(&codes);
        assert_eq!(unpack(&bytes), codes, "{N}");
        // The definition, on the number that the bytes are.
        for (i, &code) in codes.iter().enumerate() {
            for bit in 0..N / 4 {
                let at = i * (N / 4) + bit;
                assert_eq!(bytes[at / 8] >> (at % 8) & 1, code >> bit & 1, "{N}");
            }
        }
        #[cfg(target_arch = "x86_64")]
        if crate::simd::Isa::Avx2.is_available() {
            // SAFETY: AVX2 is there.
            let found: [u8; 32] = bytemuck::cast(unsafe { avx2::unpack(&bytes) });
            assert_eq!(found, codes, "{N}");
        }
    }

    #[test]
    fn codes_come_back_and_lie_where_they_should() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..100 {
            check::<8>(&mut random);
            check::<12>(&mut random);
            check::<16>(&mut random);
            check::<20>(&mut random);
            check::<32>(&mut random);
        }
    }
}
