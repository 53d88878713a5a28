//! Weights × many inputs. Rows of weights are taken apart (`quant::parts`) into panels of 16 interleaved rows and 256
//! columns, which stay in the first-level cache while all inputs pass over them. A panel lives only that long: no second
//! copy of the weights is kept.
//!
//! ```text
//! for each 256 columns:  unpack up to 64 rows into 4 panels (4 KiB of codes each)
//!     for each 3 inputs: for each panel: 16 × 3 sums over the 256 columns, added to the tile of outputs
//! ```
//!
//! The sums have the bits of the row dots: integers are exact in any order, float terms are added in ascending order of
//! columns. This file holds what all instruction sets share, `avx2` the kernels for AVX2 and `vector` those for all
//! others.
//!
//! Each format's row says what was measured for it on one AVX2 core: multiplications and additions a second, of four rows with
//! one input in cache and of panels with 256 inputs or more (`cargo bench --bench dots`), and bytes of weights a second from
//! memory (`hadal bench --kernels --isa avx2 -t 1`). No format is packed at load: decoding reads blocks as they are stored, as a
//! pack is no smaller, and prompts spend a small part of their time on unpacking. `docs/performance.md` has the conditions.

use bytemuck::AnyBitPattern;

use super::dots::Input;
use super::le::F32;
use super::parts::{Parts, Scaled, TermParts, Terms};
use super::turbo::query;
use super::{Format, f32, q8_0, q8_1, q8_k};
use crate::simd::Isa;
#[cfg(target_arch = "aarch64")]
use crate::simd::aarch64::{Dotprod, I8mm, Neon};
#[cfg(test)]
use crate::simd::vector::Emulated;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use crate::simd::wasm32::Simd128;
#[cfg(target_arch = "x86_64")]
use crate::simd::x86::Avx2;
#[cfg(target_arch = "x86_64")]
use crate::simd::x86::vnni::{Avx512, AvxVnni};
use kernel::{multiply_scaled, multiply_terms};

#[cfg(target_arch = "x86_64")]
mod avx2;
mod float;
mod kernel;
mod steps;
mod vector;

/// Weight rows that one call of [`Multiply::run`] takes at most.
pub const ROWS: usize = PANELS * PANEL_ROWS;

const PANELS: usize = 4;
const PANEL_ROWS: usize = 16;
const PANEL_COLUMNS: usize = 256;
/// Of four columns, of a panel.
const STEPS: usize = PANEL_COLUMNS / 4;

/// Outputs of one input: [`ROWS`] of them.
type Tile = [[f32; PANEL_ROWS]; PANELS];

/// Multiplies rows of weights of one format with many inputs, on one instruction set. See [`Format::multiply`].
#[derive(Clone, Copy, Debug)]
pub struct Multiply {
    format: &'static Format,
    /// What inputs are quantized to.
    input: &'static Format,
    kernel: Kernel,
}

/// A row of a format's kernels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    pub isa: Isa,
    /// # Safety
    /// The CPU must have `isa`.
    call: unsafe fn(Product<'_>, &mut Scratch),
}

/// Up to [`ROWS`] weight rows and all inputs.
#[derive(Clone, Copy, Debug)]
struct Product<'a> {
    isa: Isa,
    format: &'static Format,
    weights: &'a [u8],
    rows: usize,
    inputs: &'a Inputs,
}

/// Quantized inputs as the kernels read them: all rows of the first 256 columns, then all of the next, and so on.
#[derive(Debug)]
pub struct Inputs {
    format: &'static Format,
    rows: usize,
    columns: usize,
    /// Steps of four i8 of each run.
    codes: Vec<[u8; 4]>,
    runs: Vec<Run>,
    /// f32 inputs have these instead: rows × columns.
    floats: Vec<f32>,
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
    /// Steps of four columns: of each row four codes. Where instructions multiply matrices, steps of eight columns in the
    /// room of two.
    codes: [[u8; 4 * PANEL_ROWS]; STEPS],
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
    /// Decoded weights: rows × columns.
    floats: Vec<f32>,
}

/// The kernels of a format, slowest instruction set first.
#[derive(Debug)]
pub(super) struct Kernels {
    pub listed: &'static [Kernel],
    /// The generic ones, emulated: with vectors of every width, and signed and unsigned codes.
    #[cfg(test)]
    pub emulated: &'static [Kernel],
}

impl Kernels {
    pub const NONE: Kernels = Kernels {
        listed: &[],
        #[cfg(test)]
        emulated: &[],
    };
}

/// `$multiply::<$block, K>` for each [`Routines`] `K`.
macro_rules! kernels {
    ($multiply:ident, $block:ty) => {
        Kernels {
            listed: kernels![
                $multiply, $block;
                #[cfg(target_arch = "x86_64")] Avx2: Avx2,
                #[cfg(target_arch = "x86_64")] AvxVnni: AvxVnni,
                #[cfg(target_arch = "x86_64")] Avx512: Avx512,
                #[cfg(target_arch = "aarch64")] Neon: Neon,
                #[cfg(target_arch = "aarch64")] Dotprod: Dotprod,
                #[cfg(target_arch = "aarch64")] I8mm: I8mm,
                #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))] Simd128: Simd128,
            ],
            #[cfg(test)]
            emulated: kernels![
                $multiply, $block;
                Scalar: Emulated<4, false>,
                Scalar: Emulated<4, false, true>,
                Scalar: Emulated<8, true>,
                Scalar: Emulated<16, true>,
            ],
        }
    };
    ($multiply:ident, $block:ty; $($(#[$attribute:meta])* $isa:ident: $kernel:ty,)+) => {
        const {
            &[$($(#[$attribute])* Kernel {
                isa: Isa::$isa,
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
    /// The fastest of `kernels` that `isa` allows.
    pub(super) fn new(
        format: &'static Format,
        input: &'static Format,
        kernels: &[Kernel],
        isa: Isa,
    ) -> Option<Self> {
        let kernel =
            kernels.iter().rev().find(|kernel| kernel.isa <= isa && kernel.isa.is_available()).copied()?;
        Some(Multiply { format, input, kernel })
    }

    /// The generic kernels of `format`, emulated.
    #[cfg(test)]
    pub(super) fn emulated(format: &'static Format) -> impl Iterator<Item = Self> {
        let input = format.dot.as_ref().map_or(format, |dot| dot.input);
        format.panel.emulated.iter().map(move |&kernel| Multiply { format, input, kernel })
    }

    /// Weights of any format decoded to f32, with f32 inputs. `isa` is available.
    pub(super) fn decoded(format: &'static Format, isa: Isa) -> Self {
        Multiply { format, input: &f32::FORMAT, kernel: Kernel { isa, call: float::decoded } }
    }

    /// The instruction set it runs on.
    pub fn isa(self) -> Isa {
        self.kernel.isa
    }

    /// What inputs are quantized to.
    pub fn input(self) -> &'static Format {
        self.input
    }

    /// Whether `inputs` are prepared as this kernel needs them.
    pub fn takes(self, inputs: &Inputs) -> bool {
        std::ptr::eq(inputs.format, self.input)
    }

    /// Room for `rows` inputs of `columns`, to be filled run by run.
    pub fn prepare(self, rows: usize, columns: usize) -> Inputs {
        let mut inputs = Inputs::default();
        self.prepare_in(&mut inputs, rows, columns);
        inputs
    }

    /// [`Multiply::prepare`] in the memory of `inputs`.
    pub fn prepare_in(self, inputs: &mut Inputs, rows: usize, columns: usize) {
        (inputs.format, inputs.rows, inputs.columns) = (self.input, rows, columns);
        let float = std::ptr::eq(self.input, &f32::FORMAT);
        let runs = if float { 0 } else { columns.div_ceil(PANEL_COLUMNS) * rows };
        inputs.floats.resize(if float { rows * columns } else { 0 }, 0.0);
        inputs.codes.resize(runs * STEPS, [0; 4]);
        inputs.runs.resize(runs, Run::default());
    }

    /// Dots of all rows in `weights` (at most [`ROWS`] of `row_bytes`) with all inputs: `out(input, dots)` is called for
    /// each input.
    ///
    /// # Panics
    /// If `weights` is not up to [`ROWS`] rows of as many columns as the inputs have, or [`Multiply::takes`] denies.
    pub fn run(
        self,
        weights: &[u8],
        inputs: &Inputs,
        scratch: &mut Scratch,
        mut out: impl FnMut(usize, &[f32]),
    ) {
        let row_bytes = self.format.bytes_for(inputs.columns).expect("whole blocks");
        let rows = weights.len() / row_bytes;
        assert!(rows <= ROWS && weights.len() == rows * row_bytes && self.takes(inputs), "rows that fit");
        let product = Product { isa: self.kernel.isa, format: self.format, weights, rows, inputs };
        // SAFETY: `new` takes only what this CPU can run, `decoded` is safe to call.
        unsafe { (self.kernel.call)(product, scratch) };
        for (input, tile) in scratch.tiles[..inputs.rows].iter().enumerate() {
            out(input, &tile.as_flattened()[..rows]);
        }
    }
}

/// Codes of columns from `32 * part` on.
fn place(out: &mut [[u8; 4]], run: &mut Run, part: usize, codes: &[i8]) {
    out.as_flattened_mut()[32 * part..][..codes.len()].copy_from_slice(bytemuck::cast_slice(codes));
    let sums = run.code_sums.as_flattened_mut()[2 * part..].iter_mut();
    for (sum, codes) in sums.zip(codes.chunks_exact(16)) {
        *sum = codes.iter().map(|&code| i16::from(code)).sum();
    }
}

impl Default for Inputs {
    fn default() -> Self {
        let (codes, runs, floats) = (Vec::new(), Vec::new(), Vec::new());
        Inputs { format: &f32::FORMAT, rows: 0, columns: 0, codes, runs, floats }
    }
}

impl Inputs {
    /// What it holds.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.codes[..]) + size_of_val(&self.runs[..]) + size_of_val(&self.floats[..])
    }

    /// All parts, which threads may fill side by side.
    pub fn runs_mut(&mut self) -> impl ExactSizeIterator<Item = InputRun<'_>> {
        let (format, rows, columns) = (self.format, self.rows, self.columns);
        let float = std::ptr::eq(format, &f32::FORMAT);
        let runs = if float { 1 } else { columns.div_ceil(PANEL_COLUMNS) };
        let mut codes = self.codes.chunks_mut((rows * STEPS).max(1));
        let mut numbers = self.runs.chunks_mut(rows.max(1));
        let mut floats = Some(self.floats.as_mut_slice());
        (0..runs).map(move |index| InputRun {
            format,
            columns,
            index,
            codes: codes.next().unwrap_or_default(),
            runs: numbers.next().unwrap_or_default(),
            floats: floats.take().unwrap_or_default(),
        })
    }
}

/// The columns from `256 * index` on of all inputs, to be filled; f32 inputs are one run.
#[derive(Debug)]
pub struct InputRun<'a> {
    format: &'static Format,
    columns: usize,
    index: usize,
    codes: &'a mut [[u8; 4]],
    runs: &'a mut [Run],
    floats: &'a mut [f32],
}

impl InputRun<'_> {
    /// `blocks`: all inputs, whole rows of the format that [`Multiply::input`] names.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn fill(&mut self, blocks: &[u8]) {
        if std::ptr::eq(self.format, &f32::FORMAT) {
            for (out, value) in self.floats.iter_mut().zip(bytemuck::cast_slice::<_, F32>(blocks)) {
                *out = value.get();
            }
            return;
        }
        let row_bytes = self.format.bytes_for(self.columns).expect("whole blocks");
        let per_run = PANEL_COLUMNS / self.format.block_len;
        let from = self.index * per_run * self.format.block_bytes;
        let to = row_bytes.min(from + per_run * self.format.block_bytes);
        let rows = self.codes.chunks_exact_mut(STEPS).zip(self.runs.iter_mut());
        for ((codes, run), blocks) in rows.zip(blocks.chunks_exact(row_bytes)) {
            place_run(self.format, codes, run, &blocks[from..to]);
        }
    }
}

/// Up to 256 columns of an input.
fn place_run(format: &'static Format, codes: &mut [[u8; 4]], run: &mut Run, blocks: &[u8]) {
    for (i, block) in blocks.chunks_exact(format.block_bytes).enumerate() {
        if std::ptr::eq(format, &q8_k::FORMAT) {
            let block: &q8_k::Block = bytemuck::from_bytes(block);
            run.scales[i] = block.scale.get();
            place(codes, run, i, &block.codes);
        } else if std::ptr::eq(format, &q8_1::FORMAT) {
            place_block::<q8_1::Block>(codes, run, i, block);
        } else if std::ptr::eq(format, &query::FORMAT) {
            place_block::<query::Block>(codes, run, i, block);
        } else {
            place_block::<q8_0::Block>(codes, run, i, block);
        }
    }
}

/// 32 columns of an input, the `part`th of its run.
fn place_block<B: Input + AnyBitPattern>(codes: &mut [[u8; 4]], run: &mut Run, part: usize, block: &[u8]) {
    let block: &B = bytemuck::from_bytes(block);
    (run.scales[part], run.value_sums[part]) = (block.scale(), block.sum());
    place(codes, run, part, block.codes());
}

impl Panel {
    const ZERO: Panel = Panel {
        codes: [[0; 4 * PANEL_ROWS]; STEPS],
        scales: [[0.0; PANEL_ROWS]; 16],
        mins: [[0.0; PANEL_ROWS]; 16],
        multipliers: [[[0; 2]; PANEL_ROWS]; 16],
        offsets: [[[0; 2]; PANEL_ROWS]; 8],
    };
}

impl Scratch {
    /// What it holds.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.panels[..])
            + size_of_val(&self.parts[..])
            + size_of_val(&self.term_parts[..])
            + size_of_val(&self.tiles[..])
            + size_of_val(&self.floats[..])
    }

    /// Zeroed tiles for `sums` sums of each input, and room for panels.
    fn reset(&mut self, tiles: usize) {
        self.tiles.clear();
        self.tiles.resize(tiles, [[0.0; PANEL_ROWS]; PANELS]);
        self.panels.resize_with(PANELS, || Panel::ZERO);
        self.parts.resize_with(PANEL_ROWS, || Parts::ZERO);
        self.term_parts.resize_with(PANEL_ROWS, || TermParts::ZERO);
    }
}
