//! The codebooks and signs, which `tables.py` wrote and explains.

/// Elements of a row that there are signs for.
pub const DIMS: [usize; 4] = [64, 128, 256, 512];

/// The largest of them.
pub const LARGEST_DIM: usize = 512;

const BITS: [usize; 5] = [2, 3, 4, 5, 8];

/// For each of [`BITS`] 2^bits centroids and 2^bits - 1 boundaries as f32, then for each of [`DIMS`] a bit an element.
static PACKED: &[u8; 2628] = include_bytes!("tables.bin");

/// All of them, as GPUs have them (`wgsl/lib/tables.wgsl`).
pub fn bytes() -> &'static [u8] {
    PACKED
}

/// The numbers that codes of 2 bits stand for, ascending.
pub static CENTROIDS_2: [f32; 4] = floats(first_float(2));
/// What lies between neighbours of them. Half of their sum, except that two of the 3-bit ones differ by a last digit.
pub static BOUNDARIES_2: [f32; 3] = floats(first_float(2) + 4);
pub static CENTROIDS_3: [f32; 8] = floats(first_float(3));
pub static BOUNDARIES_3: [f32; 7] = floats(first_float(3) + 8);
pub static CENTROIDS_4: [f32; 16] = floats(first_float(4));
pub static BOUNDARIES_4: [f32; 15] = floats(first_float(4) + 16);
pub static CENTROIDS_5: [f32; 32] = floats(first_float(5));
pub static BOUNDARIES_5: [f32; 31] = floats(first_float(5) + 32);
pub static CENTROIDS_8: [f32; 256] = floats(first_float(8));
pub static BOUNDARIES_8: [f32; 255] = floats(first_float(8) + 256);

/// Where the centroids of `bits` begin.
const fn first_float(bits: usize) -> usize {
    let (mut first, mut i) = (0, 0);
    while i < BITS.len() && BITS[i] < bits {
        first += (2 << BITS[i]) - 1;
        i += 1;
    }
    first
}

const fn floats<const N: usize>(first: usize) -> [f32; N] {
    let mut floats = [0.0; N];
    let mut i = 0;
    while i < N {
        let at = 4 * (first + i);
        floats[i] = f32::from_le_bytes([PACKED[at], PACKED[at + 1], PACKED[at + 2], PACKED[at + 3]]);
        i += 1;
    }
    floats
}

/// The signs of a row of `dim`, a bit an element, set where negative; `None` if there are none.
pub fn signs(dim: usize) -> Option<&'static [u8]> {
    let index = DIMS.iter().position(|&known| known == dim)?;
    let first = 4 * first_float(usize::MAX) + DIMS[..index].iter().sum::<usize>() / 8;
    Some(&PACKED[first..first + dim / 8])
}
