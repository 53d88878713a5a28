//! Golden tensors from `tests/data/**/*.safetensors`, looked up by name.
#![allow(dead_code, reason = "each test program uses its own part of it")]

use std::path::Path;

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

impl Golden {
    /// `file` is relative to `tests/data`.
    pub fn open(file: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
        Golden(std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// A tensor of bytes; the first dimension is rows, the others columns. `None` if there is none of that name.
    pub fn bytes(&self, name: &str) -> Option<Rows<u8>> {
        self.rows(name, Dtype::U8, |[byte]| byte)
    }

    /// A tensor of floats.
    pub fn floats(&self, name: &str) -> Option<Rows<f32>> {
        self.rows(name, Dtype::F32, f32::from_le_bytes)
    }

    /// A tensor of doubles.
    pub fn doubles(&self, name: &str) -> Option<Rows<f64>> {
        self.rows(name, Dtype::F64, f64::from_le_bytes)
    }

    /// A tensor of token ids, stored as I32.
    pub fn ids(&self, name: &str) -> Vec<u32> {
        let rows =
            self.rows(name, Dtype::I32, i32::from_le_bytes).unwrap_or_else(|| panic!("{name} is missing"));
        rows.values.into_iter().map(|id| u32::try_from(id).expect("an id")).collect()
    }

    /// A text of the file's metadata.
    pub fn metadata(&self, key: &str) -> String {
        let (_, header) = SafeTensors::read_metadata(&self.0).expect("golden files are safetensors");
        let metadata = header.metadata().as_ref().expect("metadata");
        metadata.get(key).unwrap_or_else(|| panic!("{key} is missing")).clone()
    }

    /// Writes the tensors whose names do not begin with `_` to a file of their own: the weights of a tiny model.
    pub fn write_weights(&self, path: &Path) {
        let file = SafeTensors::deserialize(&self.0).expect("golden files are safetensors");
        let weights = file.tensors().into_iter().filter(|(name, _)| !name.starts_with('_'));
        safetensors::serialize_to_file(weights, None, path).expect("a writable folder");
    }

    fn rows<T, const N: usize>(
        &self,
        name: &str,
        dtype: Dtype,
        convert: impl Fn([u8; N]) -> T,
    ) -> Option<Rows<T>> {
        let file = SafeTensors::deserialize(&self.0).expect("golden files are safetensors");
        let tensor = file.tensor(name).ok()?;
        assert_eq!(tensor.dtype(), dtype, "{name}");
        let columns = tensor.shape()[1..].iter().product();
        let values = tensor.data().as_chunks::<N>().0.iter().map(|&bytes| convert(bytes)).collect();
        Some(Rows { columns, values })
    }
}
