//! Golden tensors from `tests/data/**/*.safetensors`, looked up by name, and a seeded source of test numbers.

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
