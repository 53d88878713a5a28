//! What tests of formats share: golden tensors from `tests/data/**/*.safetensors`, the names that rows of `FORMATS`
//! have there, and a list of failures.
#![allow(dead_code, reason = "each test program uses its own part of it")]
#![allow(clippy::unwrap_used, reason = "a golden file that cannot be read is a failed test")]

use std::path::Path;

use hadal::quant::Format;
use hadal::simd::Isa;
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

/// A safetensors file in memory.
pub struct Golden(Vec<u8>);

/// A tensor of a golden file: numbers in rows.
pub struct Rows<T> {
    pub columns: usize,
    pub values: Vec<T>,
}

impl<T> Rows<T> {
    /// The rows, first dimension.
    pub fn iter(&self) -> std::slice::ChunksExact<'_, T> {
        self.values.chunks_exact(self.columns)
    }
}

/// What a golden tensor holds.
pub trait Number: Sized {
    const DTYPE: Dtype;

    fn from_bytes(bytes: &[u8]) -> Self;
}

impl Number for u8 {
    const DTYPE: Dtype = Dtype::U8;

    fn from_bytes(bytes: &[u8]) -> Self {
        bytes[0]
    }
}

impl Number for i8 {
    const DTYPE: Dtype = Dtype::I8;

    fn from_bytes(bytes: &[u8]) -> Self {
        i8::from_le_bytes(bytes.try_into().unwrap())
    }
}

impl Number for f16 {
    const DTYPE: Dtype = Dtype::F16;

    fn from_bytes(bytes: &[u8]) -> Self {
        f16::from_le_bytes(bytes.try_into().unwrap())
    }
}

impl Number for bf16 {
    const DTYPE: Dtype = Dtype::BF16;

    fn from_bytes(bytes: &[u8]) -> Self {
        bf16::from_le_bytes(bytes.try_into().unwrap())
    }
}

impl Number for f32 {
    const DTYPE: Dtype = Dtype::F32;

    fn from_bytes(bytes: &[u8]) -> Self {
        f32::from_le_bytes(bytes.try_into().unwrap())
    }
}

impl Number for u16 {
    const DTYPE: Dtype = Dtype::U16;

    fn from_bytes(bytes: &[u8]) -> Self {
        u16::from_le_bytes(bytes.try_into().unwrap())
    }
}

impl Number for i16 {
    const DTYPE: Dtype = Dtype::I16;

    fn from_bytes(bytes: &[u8]) -> Self {
        i16::from_le_bytes(bytes.try_into().unwrap())
    }
}

impl Number for u32 {
    const DTYPE: Dtype = Dtype::U32;

    fn from_bytes(bytes: &[u8]) -> Self {
        u32::from_le_bytes(bytes.try_into().unwrap())
    }
}

impl Number for f64 {
    const DTYPE: Dtype = Dtype::F64;

    fn from_bytes(bytes: &[u8]) -> Self {
        f64::from_le_bytes(bytes.try_into().unwrap())
    }
}

impl Number for i32 {
    const DTYPE: Dtype = Dtype::I32;

    fn from_bytes(bytes: &[u8]) -> Self {
        i32::from_le_bytes(bytes.try_into().unwrap())
    }
}

impl Golden {
    /// `file` is relative to `tests/data`.
    pub fn open(file: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
        Golden(std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// A tensor; its first dimension is rows, the others columns. `None` if there is none of that name.
    pub fn find<T: Number>(&self, name: &str) -> Option<Rows<T>> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file.tensor(name).ok()?;
        assert_eq!(tensor.dtype(), T::DTYPE, "{name}");
        let columns = tensor.shape()[1..].iter().product();
        let values = tensor.data().chunks_exact(size_of::<T>()).map(T::from_bytes).collect();
        Some(Rows { columns, values })
    }

    /// A tensor that must be there.
    pub fn get<T: Number>(&self, name: &str) -> Rows<T> {
        self.find(name).unwrap_or_else(|| panic!("the golden file has no {name}"))
    }

    /// A tensor of token ids.
    pub fn ids(&self, name: &str) -> Vec<u32> {
        self.get::<i32>(name).values.into_iter().map(|id| u32::try_from(id).unwrap()).collect()
    }

    /// A text of the file's metadata.
    pub fn metadata(&self, key: &str) -> String {
        let (_, header) = SafeTensors::read_metadata(&self.0).unwrap();
        let text = header.metadata().as_ref().and_then(|metadata| metadata.get(key));
        text.unwrap_or_else(|| panic!("the golden file has no metadata {key}")).clone()
    }

    /// Writes the tensors whose names do not begin with `_` to a file of their own: the weights of a tiny model.
    pub fn write_weights(&self, path: &Path) {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let weights = file.tensors().into_iter().filter(|(name, _)| !name.starts_with('_'));
        safetensors::serialize_to_file(weights, None, path).unwrap();
    }
}

/// Collects what went wrong, so that one failure does not hide the next.
#[derive(Default)]
pub struct Failures(Vec<String>);

impl Failures {
    pub fn check(&mut self, ok: bool, message: impl FnOnce() -> String) {
        if !ok {
            self.0.push(message());
        }
    }
}

impl Drop for Failures {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{} failures:\n{}", self.0.len(), self.0.join("\n"));
        }
    }
}

/// The name in `ggml/*.safetensors`; `None` for what ggml lacks. Its `q2_0` has blocks of 64 weights.
pub fn ggml_name(format: &Format) -> Option<&'static str> {
    match format.name {
        "q2_0" => None,
        "q2_0_g64" => Some("q2_0"),
        name => Some(name),
    }
}

/// The name in `fucina/formats.safetensors`; `None` for what Fucina lacks. Its `q2_0` has blocks of 128 weights.
pub fn fucina_name(format: &Format) -> Option<&'static str> {
    (format.name != "q2_0_g64").then_some(format.name)
}

/// Formats of our own, which no reference has: `tests/trellis.rs` is about them.
pub fn is_ours(format: &Format) -> bool {
    format.name.starts_with("trellis_")
}

pub fn is_plain_float(format: &Format) -> bool {
    format.block_len == 1
}

pub fn decode(format: &Format, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; bytes.len() / format.block_bytes * format.block_len];
    format.decode(bytes, &mut out).unwrap();
    out
}

pub fn quantize(format: &Format, isa: Isa, values: &[f32]) -> Vec<u8> {
    let mut out = vec![0; format.bytes_for(values.len()).unwrap()];
    format.quantize(isa, values, &mut out).unwrap();
    out
}

/// The same bits, or both NaN: payloads are nobody's promise.
pub fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}
