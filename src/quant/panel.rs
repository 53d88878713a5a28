//! Weights × many inputs. Rows of weights are taken apart ([`super::parts`]) into panels of 16 interleaved rows and 256
//! columns, which stay in the first-level cache while all inputs pass over them. A panel lives only that long: no second
//! copy of the weights is kept.
//!
//! ```text
//! for each 256 columns:  unpack up to 64 rows into 4 panels (4 or 8 KiB of codes each)
//!     for each 3 inputs: for each panel: 16 × 3 sums over the 256 columns, added to the tile of outputs
//! ```
//!
//! The sums have the bits of the row dots: integers are exact in any order, float terms are added in ascending order of
//! columns. This file holds what all instruction sets share, [`avx2`] the kernels for AVX2 and [`vector`] those for all
//! others.

use super::parts::{Codes, Parts, Scaled, TermParts, Terms};
use super::{Format, q8_0, q8_1, q8_k};
use crate::simd::Isa;
#[cfg(target_arch = "aarch64")]
use crate::simd::aarch64::{Dotprod, Neon};
#[cfg(test)]
use crate::simd::vector::Emulated;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use crate::simd::wasm32::Simd128;
#[cfg(target_arch = "x86_64")]
use crate::simd::x86::vnni::{Avx512, AvxVnni};
use kernel::{Kernel, multiply_scaled, multiply_terms};

#[cfg(target_arch = "x86_64")]
mod avx2;
mod kernel;
mod vector;

/// Weight rows that one call of [`Multiply::run`] takes at most.
pub const ROWS: usize = PANELS * PANEL_ROWS;

const PANELS: usize = 4;
const PANEL_ROWS: usize = 16;
const PANEL_COLUMNS: usize = 256;

/// Outputs of one input: [`ROWS`] of them.
type Tile = [[f32; PANEL_ROWS]; PANELS];

/// Multiplies rows of weights of one format with many inputs, on one instruction set. See [`Format::multiply`].
#[derive(Clone, Copy, Debug)]
pub struct Multiply {
    pub(super) isa: Isa,
    /// Whether codes are widened to 16 bits, weights and inputs alike: the products of two full bytes do not fit the
    /// instruction that sums them.
    wide: bool,
    /// # Safety
    /// The CPU must have `isa`.
    call: unsafe fn(Product<'_>, &mut Scratch),
}

/// Up to [`ROWS`] weight rows and all inputs.
#[derive(Clone, Copy, Debug)]
struct Product<'a> {
    weights: &'a [u8],
    rows: usize,
    inputs: &'a Inputs,
}

/// Quantized inputs as the kernels read them: all rows of the first 256 columns, then all of the next, and so on.
#[derive(Debug)]
pub struct Inputs {
    format: &'static Format,
    wide: bool,
    rows: usize,
    columns: usize,
    /// Steps of four i8, or two i16, of each run.
    codes: Vec<[u8; 4]>,
    runs: Vec<Run>,
}

/// What belongs to 256 codes of one input.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Of 32 columns each; Q8_K has one for all.
    scales: [f32; 8],
    /// Sums of the codes, of 16 columns each.
    code_sums: [[i16; 2]; 8],
    /// Sums of the values, of 32 columns each, as Q8_1 stores them.
    value_sums: [f32; 8],
}

/// 16 rows × 256 columns of weights.
#[derive(Debug)]
#[repr(C, align(64))]
struct Panel {
    /// Steps of columns: of each row four codes, or two of 16 bits.
    codes: [[u8; 4 * PANEL_ROWS]; PANEL_COLUMNS / 2],
    /// terms × rows; a `Scaled` block has one for all.
    scales: [[f32; PANEL_ROWS]; 16],
    /// terms × rows; a `Scaled` block has one for all.
    mins: [[f32; PANEL_ROWS]; 16],
    /// groups of 16 columns × rows: each twice as i16, or once as i32.
    multipliers: [[[i16; 2]; PANEL_ROWS]; 16],
    /// pairs of groups × rows: what is multiplied with the sums of the inputs: minimums, or bias · multiplier.
    offsets: [[[i16; 2]; PANEL_ROWS]; 8],
}

/// Working memory of a thread.
#[derive(Debug, Default)]
pub struct Scratch {
    panels: Vec<Panel>,
    parts: Vec<Parts>,
    term_parts: Vec<TermParts>,
    tiles: Vec<Tile>,
}

/// The kernels of a format, slowest instruction set first.
#[derive(Debug)]
pub(crate) struct Kernels {
    pub listed: &'static [Multiply],
    /// The generic ones, emulated: with vectors of every width, and signed and unsigned codes.
    #[cfg(test)]
    pub emulated: &'static [Multiply],
}

impl Kernels {
    pub const NONE: Kernels = Kernels {
        listed: &[],
        #[cfg(test)]
        emulated: &[],
    };
}

/// `$multiply::<$block, K>` for each [`Kernel`] `K`.
macro_rules! kernels {
    ($multiply:ident, $block:ty) => {
        Kernels {
            listed: kernels![
                $multiply, $block;
                #[cfg(target_arch = "x86_64")] Avx2: avx2::Avx2,
                #[cfg(target_arch = "x86_64")] AvxVnni: AvxVnni,
                #[cfg(target_arch = "x86_64")] Avx512: Avx512,
                #[cfg(target_arch = "aarch64")] Neon: Neon,
                #[cfg(target_arch = "aarch64")] Dotprod: Dotprod,
                #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))] Simd128: Simd128,
            ],
            #[cfg(test)]
            emulated: kernels![
                $multiply, $block;
                Scalar: Emulated<4, false>,
                Scalar: Emulated<8, true>,
                Scalar: Emulated<16, true>,
            ],
        }
    };
    ($multiply:ident, $block:ty; $($(#[$attribute:meta])* $isa:ident: $kernel:ty,)+) => {
        const {
            &[$($(#[$attribute])* Multiply {
                isa: Isa::$isa,
                wide: <$kernel as Kernel>::WIDENS && matches!(<$block>::CODES, Codes::Signed),
                call: $multiply::<$block, $kernel>,
            }),+]
        }
    };
}
/// The kernels for blocks of the family [`Terms`].
pub(super) const fn terms<B: Terms>() -> Kernels {
    kernels!(multiply_terms, B)
}

/// The kernels for blocks of the family [`Scaled`].
pub(super) const fn scaled<B: Scaled>() -> Kernels {
    kernels!(multiply_scaled, B)
}

impl Multiply {
    /// The instruction set it runs on.
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// Whether `inputs` are prepared as this kernel needs them, from blocks of `format`.
    pub fn takes(self, inputs: &Inputs, format: &'static Format) -> bool {
        std::ptr::eq(inputs.format, format) && inputs.wide == self.wide
    }

    /// Rows of quantized inputs, one after the other, as this kernel reads them.
    ///
    /// # Panics
    /// If `blocks` is not `rows` × `columns` of `format`, or `format` is no input of quantized weights.
    pub fn prepare(self, format: &'static Format, blocks: &[u8], columns: usize) -> Inputs {
        let row_bytes = format.bytes_for(columns).expect("whole blocks");
        let rows = blocks.len() / row_bytes;
        let runs = columns.div_ceil(PANEL_COLUMNS);
        let steps = if self.wide { PANEL_COLUMNS / 2 } else { PANEL_COLUMNS / 4 };
        let mut inputs = Inputs {
            format,
            wide: self.wide,
            rows,
            columns,
            codes: vec![[0; 4]; runs * rows * steps],
            runs: vec![Run::default(); runs * rows],
        };
        for (row, blocks) in blocks.chunks_exact(row_bytes).enumerate() {
            if std::ptr::eq(format, &q8_k::FORMAT) {
                for (run, block) in bytemuck::cast_slice::<_, q8_k::Block>(blocks).iter().enumerate() {
                    let (codes, run) = inputs.run_mut(run, row);
                    run.scales[0] = block.scale.get();
                    place(codes, run, 0, &block.codes);
                }
                continue;
            }
            for (i, block) in blocks.chunks_exact(format.block_bytes).enumerate() {
                let (codes, run) = inputs.run_mut(i / 8, row);
                if std::ptr::eq(format, &q8_1::FORMAT) {
                    let block: &q8_1::Block = bytemuck::from_bytes(block);
                    (run.scales[i % 8], run.value_sums[i % 8]) = (block.scale.get(), block.sum.get());
                    place(codes, run, i % 8, &block.codes);
                } else {
                    assert!(std::ptr::eq(format, &q8_0::FORMAT), "{} is no input of weights", format.name);
                    let block: &q8_0::Block = bytemuck::from_bytes(block);
                    run.scales[i % 8] = block.scale.get();
                    place(codes, run, i % 8, &block.codes);
                }
            }
        }
        inputs
    }

    /// Dots of all rows in `weights` (at most [`ROWS`]) with all inputs: `out(input, dots)` is called for each input.
    ///
    /// # Panics
    /// If `weights` is not up to [`ROWS`] rows of as many columns as the inputs have, or [`Multiply::takes`] denies.
    pub fn run(
        self,
        weights: &[u8],
        row_bytes: usize,
        inputs: &Inputs,
        scratch: &mut Scratch,
        mut out: impl FnMut(usize, &[f32]),
    ) {
        let rows = weights.len() / row_bytes;
        assert!(rows <= ROWS && weights.len() == rows * row_bytes && inputs.wide == self.wide);
        // SAFETY: `Format::multiply` is the only giver and takes only what this CPU can run.
        unsafe { (self.call)(Product { weights, rows, inputs }, scratch) };
        for (input, tile) in scratch.tiles[..inputs.rows].iter().enumerate() {
            out(input, &tile.as_flattened()[..rows]);
        }
    }
}

/// Codes of columns from `32 * part` on.
fn place(out: &mut [[u8; 4]], run: &mut Run, part: usize, codes: &[i8]) {
    let bytes = out.as_flattened_mut();
    if bytes.len() > PANEL_COLUMNS {
        for (out, &code) in bytes[64 * part..].chunks_exact_mut(2).zip(codes) {
            out.copy_from_slice(&i16::from(code).to_ne_bytes());
        }
    } else {
        bytes[32 * part..][..codes.len()].copy_from_slice(bytemuck::cast_slice(codes));
    }
    let sums = run.code_sums.as_flattened_mut()[2 * part..].iter_mut();
    for (sum, codes) in sums.zip(codes.chunks_exact(16)) {
        *sum = codes.iter().map(|&code| i16::from(code)).sum();
    }
}

impl Inputs {
    /// Of a run of columns.
    #[inline(always)]
    fn steps(&self) -> usize {
        if self.wide { PANEL_COLUMNS / 2 } else { PANEL_COLUMNS / 4 }
    }

    fn run_mut(&mut self, run: usize, row: usize) -> (&mut [[u8; 4]], &mut Run) {
        let (index, steps) = (run * self.rows + row, self.steps());
        (&mut self.codes[index * steps..][..steps], &mut self.runs[index])
    }
}

impl Panel {
    const ZERO: Panel = Panel {
        codes: [[0; 64]; 128],
        scales: [[0.0; PANEL_ROWS]; 16],
        mins: [[0.0; PANEL_ROWS]; 16],
        multipliers: [[[0; 2]; PANEL_ROWS]; 16],
        offsets: [[[0; 2]; PANEL_ROWS]; 8],
    };
}

impl Scratch {
    /// Zeroed tiles for `sums` sums of each input, and room for panels.
    fn reset(&mut self, tiles: usize) {
        self.tiles.clear();
        self.tiles.resize(tiles, [[0.0; PANEL_ROWS]; PANELS]);
        self.panels.resize_with(PANELS, || Panel::ZERO);
        self.parts.resize_with(PANEL_ROWS, || Parts::ZERO);
        self.term_parts.resize_with(PANEL_ROWS, || TermParts::ZERO);
    }
}
