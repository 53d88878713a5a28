//! The codebooks of the IQ1, IQ2 and IQ3 formats: the rows of 4 or 8 values that a stored index stands for.
//!
//! They are facts of the formats, chosen by their author on the E8 and D4 lattices. `grids.bin` holds them packed;
//! `grids.py` extracted it from the Python package `gguf` (MIT licence) and says how.

/// IQ2_XXS: magnitudes, signs are stored beside the index.
pub(super) static IQ2_XXS: [[i8; 8]; 256] = unpack(0, &IQ2_LEVELS);
/// IQ2_XS, likewise.
pub(super) static IQ2_XS: [[i8; 8]; 512] = unpack(256, &IQ2_LEVELS);
/// IQ2_S, likewise.
pub(super) static IQ2_S: [[i8; 8]; 1024] = unpack(768, &IQ2_LEVELS);
/// IQ3_XXS, likewise, in steps of 1/8 of what the scale counts.
pub(super) static IQ3_XXS: [[i8; 4]; 256] = unpack(1792, &[4, 12, 20, 28, 36, 44, 52, 62]);
/// IQ3_S, likewise.
pub(super) static IQ3_S: [[i8; 4]; 512] = unpack(2048, &[1, 3, 5, 7, 9, 11, 13, 15]);
/// IQ1_S and IQ1_M: values with their signs.
pub(super) static IQ1: [[i8; 8]; 2048] = unpack(2560, &[-1, 0, 1]);

const IQ2_LEVELS: [i8; 3] = [8, 25, 43];

/// Little-endian u16 an entry, all codebooks in the order above.
static PACKED: &[u8; 2 * (2560 + 2048)] = include_bytes!("grids.bin");

/// `ENTRIES` entries from entry `first` on; each value takes 16 / `VALUES` bits, the lowest first, which are a
/// position in `levels`.
const fn unpack<const VALUES: usize, const ENTRIES: usize>(
    first: usize,
    levels: &[i8],
) -> [[i8; VALUES]; ENTRIES] {
    let bits = 16 / VALUES;
    let mut grid = [[0; VALUES]; ENTRIES];
    let mut entry = 0;
    while entry < ENTRIES {
        let at = 2 * (first + entry);
        let word = u16::from_le_bytes([PACKED[at], PACKED[at + 1]]);
        let mut value = 0;
        while value < VALUES {
            grid[entry][value] = levels[(word >> (bits * value)) as usize & ((1 << bits) - 1)];
            value += 1;
        }
        entry += 1;
    }
    grid
}

/// The eight signs (bit i set: value i is negative) that 7 stored bits stand for: the eighth makes the number of
/// negative values even, because the lattice has no other points.
pub(super) fn even_signs(bits: u32) -> u8 {
    let seven = bits & 127;
    (seven | (seven.count_ones() & 1) << 7) as u8
}
