//! Weight formats as data: a [`Format`] row says how a run of weights is stored, decoded, encoded and multiplied.
//! [`FORMATS`] is the table; file readers, kernels, `--help`, README and property tests all iterate it.
//!
//! A matrix row of `k` weights is `k / block_len` blocks in a row, no padding. A format file states its block as a
//! `#[repr(C)]` struct of alignment 1 (see [`le`]) with a [`Block`] implementation; the scalar `decode` and `dot`
//! there *are* the format's definition, and every vector version gives the same bits.
//! Layouts and formulas: those of ggml, each stated at the head of its file.

use bytemuck::Pod;

use crate::error::{Error, Result};
use crate::simd::Isa;
pub use arm::{Arm, Dot, Quantizer, RowDot, Rows4};
use arm::{Arms, arms, decoders, quantizers};
pub use codebook::Grid;
use panel::{Kernels, Multiply};

pub mod le;
pub mod panel;

mod arm;
mod codebook;
mod dots;
mod grids;
mod k;
pub(crate) mod levels;
mod parts;

pub mod affine;
pub mod bf16;
pub mod f16;
pub mod f32;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod mxfp8;
pub mod nvfp4;
pub mod q1_0;
pub mod q2_0;
pub mod q2_0_g64;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod q8_1;
pub mod q8_k;
pub mod tq1_0;
pub mod tq2_0;
pub mod trellis;
pub mod turbo;

/// Every format, in the order of GGUF's type ids.
pub static FORMATS: &[&Format] = &[
    &f32::FORMAT,
    &f16::FORMAT,
    &q4_0::FORMAT,
    &q4_1::FORMAT,
    &q5_0::FORMAT,
    &q5_1::FORMAT,
    &q8_0::FORMAT,
    &q8_1::FORMAT,
    &q2_k::FORMAT,
    &q3_k::FORMAT,
    &q4_k::FORMAT,
    &q5_k::FORMAT,
    &q6_k::FORMAT,
    &q8_k::FORMAT,
    &iq2_xxs::FORMAT,
    &iq2_xs::FORMAT,
    &iq3_xxs::FORMAT,
    &iq1_s::FORMAT,
    &iq4_nl::FORMAT,
    &iq3_s::FORMAT,
    &iq2_s::FORMAT,
    &iq4_xs::FORMAT,
    &iq1_m::FORMAT,
    &bf16::FORMAT,
    &tq1_0::FORMAT,
    &tq2_0::FORMAT,
    &mxfp4::FORMAT,
    &nvfp4::FORMAT,
    &q1_0::FORMAT,
    &q2_0::FORMAT,
    &q2_0_g64::FORMAT,
    // Of MLX, without a type in GGUF.
    &mxfp8::FORMAT,
    &affine::B2_G32,
    &affine::B2_G64,
    &affine::B2_G128,
    &affine::B3_G32,
    &affine::B3_G64,
    &affine::B3_G128,
    &affine::B4_G32,
    &affine::B4_G64,
    &affine::B4_G128,
    &affine::B5_G32,
    &affine::B5_G64,
    &affine::B5_G128,
    &affine::B6_G32,
    &affine::B6_G64,
    &affine::B6_G128,
    &affine::B8_G32,
    &affine::B8_G64,
    &affine::B8_G128,
    &trellis::k1::FORMAT,
    &trellis::k2::FORMAT,
    &trellis::k3::FORMAT,
    &trellis::k4::FORMAT,
];

/// The fixed-size unit of a format. `Self` is the block exactly as stored.
pub trait Block: Pod {
    /// Weights in a block.
    const LEN: usize;
    /// Bytes of a block, written out as a number: the compiler compares it with the struct.
    const BYTES: usize;

    /// The block's weights, exactly as the reference computes them. `out` has `LEN` elements.
    fn decode(&self, out: &mut [f32]);
}

/// A block that can be made from numbers.
pub trait Encode: Block {
    /// Quantizes `LEN` finite values, byte for byte as the reference does, or, where that is a search, with at most its
    /// error.
    fn encode(values: &[f32]) -> Self;

    /// [`Encode::encode`] for each of `out`. A format that is faster with several at once has its own.
    fn encode_all(values: &[f32], out: &mut [Self]) {
        for (block, values) in out.iter_mut().zip(values.chunks_exact(Self::LEN)) {
            *block = Self::encode(values);
        }
    }
}

/// A block that can be made such that errors in important columns are smaller.
pub trait EncodeWeighted: Encode {
    /// Quantizes `LEN` finite values, byte for byte as ggml does with an importance matrix. `energy` is the mean square of
    /// the whole row that they are in.
    fn encode_weighted(values: &[f32], importance: &[f32], energy: f32) -> Self;

    /// Quantizes `LEN` finite values without importance, byte for byte as ggml does for files: with more care than for
    /// what is made at run time, if the format makes that difference.
    fn encode_for_file(values: &[f32]) -> Self {
        Self::encode(values)
    }
}

type Decode = fn(&[u8], &mut [f32]);
type Encoder = fn(&[f32], &mut [u8]);

type FileEncoder = fn(&[f32], Option<&[f32]>, &mut [u8]);

/// A row of the table: one storage format of weights.
pub struct Format {
    /// Lower-case name, the same in files, commands, Rust and WGSL (`wgsl/quant/<name>.wgsl`).
    pub name: &'static str,
    /// GGUF's tensor type. Two formats may share one: their bytes tell them apart.
    pub gguf_id: Option<u32>,
    /// Weights in a block.
    pub block_len: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
    decode: Decode,
    encode: Option<Encoder>,
    /// The largest magnitude of values that inputs of this format keep: halves end at 65,504, and so do sums of 32.
    pub largest: f32,
    /// Encodes rows for files, or one row with the importance of its columns.
    for_files: Option<FileEncoder>,
    /// Whether so few bits are left that, without the importance of columns, a model made of it is of no use.
    pub needs_importance: bool,
    /// `encode` for further instruction sets, slowest first.
    quantizers: &'static [Quantizer],
    /// `decode` for further instruction sets, slowest first.
    decoders: &'static [Decoder],
    /// How a row is multiplied; `None` for formats that only activations take.
    pub dot: Option<Dot>,
    /// How many inputs are multiplied at once.
    panel: Kernels,
    /// WGSL that unpacks 32 weights, see `wgsl/lib/unpacked.wgsl`.
    pub shader: Option<&'static str>,
    /// WGSL that makes rows of a cache, see `wgsl/lib/encode.wgsl`.
    pub encode_shader: Option<&'static str>,
    /// The codebook that the shader looks values up in.
    pub codebook: Option<Grid>,
}

/// Decodes blocks for one instruction set, with the bits of the scalar decoder.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    /// The instruction set that `call` needs.
    pub isa: Isa,
    /// Whole blocks, and as many numbers as they hold.
    ///
    /// # Safety
    /// The CPU must have `isa`.
    pub call: unsafe fn(&[u8], &mut [f32]),
}

/// The scalar decoder of `B`, compiled for further instruction sets.
struct Vectorized<B>(std::marker::PhantomData<B>);

impl<B: Block> Vectorized<B> {
    const DECODERS: &'static [Decoder] = &[
        #[cfg(target_arch = "x86_64")]
        Decoder { isa: Isa::Avx2, call: decode_blocks_avx2::<B> },
    ];
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn decode_blocks_avx2<B: Block>(bytes: &[u8], out: &mut [f32]) {
    decode_blocks::<B>(bytes, out);
}

/// How rows of one format are decoded on this machine. See [`Format::reader`].
#[derive(Clone, Copy, Debug)]
pub struct Reader(Decoder);

impl Reader {
    /// The numbers stored in `bytes`, whole blocks, as [`Format::decode`] gives them.
    #[inline]
    pub fn call(self, bytes: &[u8], out: &mut [f32]) {
        // SAFETY: `Format::reader` is the only maker and takes only decoders whose Isa is available.
        unsafe { (self.0.call)(bytes, out) }
    }
}

/// Its name: a format's dot may name the format itself.
impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Format {
    /// A row for `B` without encoder or dot. Fails to compile if `B` is not the size it claims, or is aligned.
    pub const fn new<B: Block>(name: &'static str, gguf_id: Option<u32>) -> Self {
        assert!(size_of::<B>() == B::BYTES, "Block::BYTES is not the size of the struct");
        assert!(align_of::<B>() == 1, "blocks are read in place at any offset: use quant::le fields");
        Format {
            name,
            gguf_id,
            block_len: B::LEN,
            block_bytes: B::BYTES,
            decode: decode_blocks::<B>,
            encode: None,
            largest: f32::INFINITY,
            for_files: None,
            needs_importance: false,
            quantizers: &[],
            decoders: Vectorized::<B>::DECODERS,
            dot: None,
            panel: Kernels::NONE,
            shader: None,
            encode_shader: None,
            codebook: None,
        }
    }

    /// Adds what a GPU unpacks weights with.
    const fn shader(mut self, wgsl: &'static str) -> Self {
        self.shader = Some(wgsl);
        self
    }

    /// Adds what a GPU stores rows of a cache with.
    const fn encode_shader(mut self, wgsl: &'static str) -> Self {
        self.encode_shader = Some(wgsl);
        self
    }

    /// Adds the codebook that the shader needs.
    const fn codebook(mut self, grid: Grid) -> Self {
        self.codebook = Some(grid);
        self
    }

    /// Adds the encoder of `B`.
    pub const fn encoder<B: Encode>(mut self) -> Self {
        self.encode = Some(encode_blocks::<B>);
        self
    }

    /// Adds the encoder of `B` that heeds importance.
    pub const fn weighted<B: EncodeWeighted>(mut self) -> Self {
        self.for_files = Some(encode_blocks_for_files::<B>);
        self
    }

    /// Says beyond which magnitude the values of an input do not fit, see [`Format::largest`].
    pub const fn largest(mut self, largest: f32) -> Self {
        self.largest = largest;
        self
    }

    /// Demands importance of whoever makes files of it.
    const fn needs_importance(mut self) -> Self {
        self.needs_importance = true;
        self
    }

    /// Adds faster encoders of the same bytes, for a format that activations are quantized to.
    pub const fn quantizers(mut self, quantizers: &'static [Quantizer]) -> Self {
        self.quantizers = quantizers;
        self
    }

    /// Adds faster decoders of the same bits, for a format that caches are read in.
    pub const fn decoders(mut self, decoders: &'static [Decoder]) -> Self {
        self.decoders = decoders;
        self
    }

    /// Adds the dot with inputs of the format `input`.
    const fn dot(mut self, input: &'static Format, arms: &Arms) -> Self {
        self.dot = Some(Dot::new(input, arms));
        self
    }

    /// Adds the kernels for many inputs.
    const fn panel(mut self, kernels: Kernels) -> Self {
        self.panel = kernels;
        self
    }

    /// The row named `name`, whatever its case.
    pub fn by_name(name: &str) -> Option<&'static Format> {
        FORMATS.iter().copied().find(|format| format.name.eq_ignore_ascii_case(name))
    }

    /// The rows that GGUF's type `id` may mean: none, one, or (id 42) two.
    pub fn by_gguf_id(id: u32) -> impl Iterator<Item = &'static Format> {
        FORMATS.iter().copied().filter(move |format| format.gguf_id == Some(id))
    }

    /// Stored bits per weight.
    pub fn bits_per_weight(&self) -> f64 {
        self.block_bytes as f64 * 8.0 / self.block_len as f64
    }

    /// Bytes of `len` weights.
    ///
    /// # Errors
    /// [`Error::Format`] if `len` is no whole number of blocks or the size overflows.
    pub fn bytes_for(&self, len: usize) -> Result<usize> {
        if !len.is_multiple_of(self.block_len) {
            return Err(
                self.error(format!("{len} weights are no whole number of blocks of {}", self.block_len))
            );
        }
        (len / self.block_len)
            .checked_mul(self.block_bytes)
            .ok_or_else(|| self.error(format!("{len} weights: size overflow")))
    }

    /// Whether [`Format::encode`] works.
    pub fn has_encoder(&self) -> bool {
        self.encode.is_some()
    }

    /// The weights stored in `bytes`, bit for bit as the reference decodes them.
    ///
    /// # Errors
    /// [`Error::Format`] if `bytes` is not exactly the storage of `out.len()` weights.
    pub fn decode(&self, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        self.check(bytes.len(), out.len())?;
        (self.decode)(bytes, out);
        Ok(())
    }

    /// Quantizes `values` into `out`, byte for byte as the reference does.
    ///
    /// # Errors
    /// [`Error::NonFinite`] names the first NaN or infinity; [`Error::Format`] if the lengths do not match or the
    /// format has no encoder.
    pub fn encode(&self, values: &[f32], out: &mut [u8]) -> Result<()> {
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Err(Error::NonFinite { format: self.name, index, value: values[index] });
        }
        self.quantize(Isa::Scalar, values, out)
    }

    /// Quantizes `values` for a file, byte for byte as ggml's quantizer does. With `importance`, one number a column,
    /// `values` are rows in which errors count as much as it says of their column; a format that does not heed it encodes
    /// as ever.
    ///
    /// # Errors
    /// As [`Format::encode`]; [`Error::Format`] also if `values` is no whole number of rows of `importance.len()`.
    pub fn encode_for_file(&self, values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> Result<()> {
        let Some(encode) = self.for_files else { return self.encode(values, out) };
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Err(Error::NonFinite { format: self.name, index, value: values[index] });
        }
        self.check(out.len(), values.len())?;
        let Some(columns) = importance.map(<[f32]>::len) else {
            encode(values, None, out);
            return Ok(());
        };
        let row_bytes = self.bytes_for(columns)?;
        if columns == 0 || !values.len().is_multiple_of(columns) {
            return Err(self.error(format!("{} values are no rows of {columns} columns", values.len())));
        }
        for (row, out) in values.chunks_exact(columns).zip(out.chunks_exact_mut(row_bytes)) {
            encode(row, importance, out);
        }
        Ok(())
    }

    /// [`Format::encode`] for activations on the hot path, with the fastest encoder that `isa` allows: a NaN or
    /// infinity is not looked for, and gives some defined but meaningless block. All encoders write the same bytes.
    ///
    /// # Errors
    /// As [`Format::encode`], less `NonFinite`.
    pub fn quantize(&self, isa: Isa, values: &[f32], out: &mut [u8]) -> Result<()> {
        let encode = self.encode.ok_or_else(|| self.error("has no encoder".into()))?;
        self.check(out.len(), values.len())?;
        let usable = |quantizer: &&Quantizer| quantizer.isa <= isa && quantizer.isa.is_available();
        match self.quantizers.iter().rev().find(usable) {
            // SAFETY: only quantizers whose Isa is available are taken.
            Some(quantizer) => unsafe { (quantizer.call)(values, out) },
            None => encode(values, out),
        }
        Ok(())
    }

    /// The fastest decoder that `isa` allows.
    pub fn reader(&self, isa: Isa) -> Reader {
        let usable = |decoder: &&Decoder| decoder.isa <= isa && decoder.isa.is_available();
        let plain = Decoder { isa: Isa::Scalar, call: self.decode };
        Reader(self.decoders.iter().rev().find(usable).copied().unwrap_or(plain))
    }

    /// The fastest dot that `isa` allows; `None` if the format is never multiplied. It is the scalar one if the
    /// CPU lacks `isa`.
    pub fn row_dot(&self, isa: Isa) -> Option<RowDot> {
        self.dot.as_ref()?.row_dot(isa)
    }

    /// The fastest kernel for many inputs that `isa` allows; `None` if there is none, and one row after the other has to
    /// be multiplied. Its results have the bits of [`Format::row_dot`]'s.
    pub fn multiply(&'static self, isa: Isa) -> Option<Multiply> {
        let input = self.dot.as_ref()?.input;
        if std::ptr::eq(input, &f32::FORMAT) {
            return Some(self.multiply_decoded(isa));
        }
        Multiply::new(self, input, self.panel.listed, isa)
    }

    /// The kernel for many inputs that decodes the weights to f32. Its results have the bits of the f32 dot with decoded
    /// weights.
    pub fn multiply_decoded(&'static self, isa: Isa) -> Multiply {
        Multiply::decoded(self, if isa.is_available() { isa } else { Isa::Scalar })
    }

    fn check(&self, bytes: usize, len: usize) -> Result<()> {
        let expected = self.bytes_for(len)?;
        if bytes != expected {
            return Err(self.error(format!("{len} weights are {expected} bytes, not {bytes}")));
        }
        Ok(())
    }

    fn error(&self, message: String) -> Error {
        Error::Format { format: self.name, message }
    }
}

#[inline(always)]
fn decode_blocks<B: Block>(bytes: &[u8], out: &mut [f32]) {
    let blocks: &[B] = bytemuck::cast_slice(bytes);
    for (block, out) in blocks.iter().zip(out.chunks_exact_mut(B::LEN)) {
        block.decode(out);
    }
}

fn encode_blocks<B: Encode>(values: &[f32], out: &mut [u8]) {
    B::encode_all(values, bytemuck::cast_slice_mut(out));
}

/// Any rows without, or one row with the importance of its columns.
fn encode_blocks_for_files<B: EncodeWeighted>(row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let Some(importance) = importance else {
        let blocks: &mut [B] = bytemuck::cast_slice_mut(out);
        for (block, values) in blocks.iter_mut().zip(row.chunks_exact(B::LEN)) {
            *block = B::encode_for_file(values);
        }
        return;
    };
    let energy = row.iter().fold(0.0f32, |sum, x| sum + x * x) / row.len() as f32;
    let blocks: &mut [B] = bytemuck::cast_slice_mut(out);
    let rows = row.chunks_exact(B::LEN).zip(importance.chunks_exact(B::LEN));
    for (block, (values, importance)) in blocks.iter_mut().zip(rows) {
        *block = B::encode_weighted(values, importance, energy);
    }
}

#[cfg(test)]
mod tests;
