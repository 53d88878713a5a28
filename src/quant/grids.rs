//! The codebooks of the IQ1, IQ2 and IQ3 formats: the 4 or 8 values that a stored index stands for, each a byte, the
//! first one lowest.
//!
//! They are facts of the formats, chosen by their author on the E8 and D4 lattices. `grids.bin` holds them packed;
//! `grids.py` extracted it from the Python package `gguf` (MIT licence) and says how.

/// IQ2_XXS: magnitudes, signs are stored beside the index.
pub(super) static IQ2_XXS: [u64; 256] = eights(0, &IQ2_LEVELS);
/// IQ2_XS, likewise.
pub(super) static IQ2_XS: [u64; 512] = eights(256, &IQ2_LEVELS);
/// IQ2_S, likewise.
pub(super) static IQ2_S: [u64; 1024] = eights(768, &IQ2_LEVELS);
/// IQ3_XXS, likewise.
pub(super) static IQ3_XXS: [u32; 256] = fours(1792, &[4, 12, 20, 28, 36, 44, 52, 62]);
/// IQ3_S, likewise.
pub(super) static IQ3_S: [u32; 512] = fours(2048, &[1, 3, 5, 7, 9, 11, 13, 15]);
/// IQ1_S and IQ1_M: signed values, in steps of 1/8 of what the scale counts.
pub(super) static IQ1: [u64; 2048] = eights(2560, &[-8, 0, 8]);

const IQ2_LEVELS: [i8; 3] = [8, 25, 43];

/// Little-endian u16 an entry, all codebooks in the order above.
static PACKED: &[u8; 2 * (2560 + 2048)] = include_bytes!("grids.bin");

/// Entries of eight values from entry `first` on.
const fn eights<const ENTRIES: usize>(first: usize, levels: &[i8]) -> [u64; ENTRIES] {
    let mut grid = [0; ENTRIES];
    let mut entry = 0;
    while entry < ENTRIES {
        grid[entry] = unpack(first + entry, 8, levels);
        entry += 1;
    }
    grid
}

/// Entries of four values from entry `first` on.
const fn fours<const ENTRIES: usize>(first: usize, levels: &[i8]) -> [u32; ENTRIES] {
    let mut grid = [0; ENTRIES];
    let mut entry = 0;
    while entry < ENTRIES {
        grid[entry] = unpack(first + entry, 4, levels) as u32;
        entry += 1;
    }
    grid
}

/// Entry `entry`, of `values` values: each takes 16 / `values` bits, the lowest first, which are a position in `levels`.
const fn unpack(entry: usize, values: usize, levels: &[i8]) -> u64 {
    let bits = 16 / values;
    let word = u16::from_le_bytes([PACKED[2 * entry], PACKED[2 * entry + 1]]);
    let mut unpacked = 0;
    let mut value = 0;
    while value < values {
        let level = levels[(word >> (bits * value)) as usize & ((1 << bits) - 1)];
        unpacked |= (level as u8 as u64) << (8 * value);
        value += 1;
    }
    unpacked
}

/// The eight signs (bit i set: value i is negative) that the lowest 7 bits stand for: the eighth makes the number of
/// negative values even, because the lattice has no other points.
#[inline(always)]
pub(super) const fn even_signs(bits: u32) -> u8 {
    let bits = bits & 127;
    let fold = bits ^ bits >> 4;
    let fold = fold ^ fold >> 2;
    let odd = (fold ^ fold >> 1) & 1;
    (bits | odd << 7) as u8
}
