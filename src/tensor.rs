//! A [`Tensor`]: a shape, a format and bytes that are owned, memory-mapped or part of the program.

use std::any::Any;
use std::io;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::quant::Format;
pub use stored::{ReadAt, Stored};

mod stored;

/// Bytes that clone without copying.
#[derive(Clone)]
pub enum Bytes {
    /// On the heap.
    Owned(Arc<[u8]>),
    /// A range of a buffer on the heap.
    Shared(Arc<Vec<u8>>, Range<usize>),
    /// A range of a memory-mapped file, which stays mapped as long as this lives.
    Mapped(Arc<Mmap>, Range<usize>),
    /// Compiled into the program.
    Static(&'static [u8]),
    /// Put together when they are first read.
    Woven(Arc<Woven>),
    /// A range of a file that is read when it is asked for.
    Stored(Stored),
}

/// Bytes that a file has in several places: on the heap from the first time they are read, for as long as this lives.
pub struct Woven {
    len: usize,
    weave: Arc<dyn Fn() -> Vec<u8> + Send + Sync>,
    made: OnceLock<Vec<u8>>,
}

impl Bytes {
    /// What `weave` gives when it is asked: `len` bytes.
    pub fn woven(len: usize, weave: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Bytes {
        Bytes::Woven(Arc::new(Woven { len, weave: Arc::new(weave), made: OnceLock::new() }))
    }

    /// The same bytes; woven ones are made anew and gone with the result, whatever was made before.
    pub fn unshared(&self) -> Bytes {
        match self {
            Bytes::Woven(woven) => {
                let (len, weave) = (woven.len, Arc::clone(&woven.weave));
                Bytes::Woven(Arc::new(Woven { len, weave, made: OnceLock::new() }))
            }
            other => other.clone(),
        }
    }

    /// Bytes in all, of a file above any address space too. Woven ones are not made for that.
    pub fn size(&self) -> u64 {
        match self {
            Bytes::Stored(stored) => stored.size(),
            Bytes::Woven(woven) => woven.len as u64,
            bytes => bytes.deref().len() as u64,
        }
    }

    /// Bytes in all, of a part that memory can hold.
    pub fn len(&self) -> usize {
        usize::try_from(self.size()).unwrap_or(usize::MAX)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }

    /// Reads what was not read yet, so that nothing can fail later.
    ///
    /// # Errors
    /// If its file can't be read.
    pub fn hold(&self) -> io::Result<()> {
        match self {
            Bytes::Stored(stored) => stored.hold().map(|_| ()),
            _ => Ok(()),
        }
    }

    /// `range` in pieces of `piece` bytes, of which no more than one is in memory if they are in none yet.
    ///
    /// # Errors
    /// If its file can't be read; those of `each`.
    pub fn pieces(
        &self,
        range: Range<usize>,
        piece: usize,
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let Bytes::Stored(stored) = self else {
            return self[range].chunks(piece).try_for_each(each);
        };
        for from in range.clone().step_by(piece) {
            let part = stored.read(from as u64..range.end.min(from + piece) as u64);
            each(&part.map_err(|error| Error::io("the model", error))?)?;
        }
        Ok(())
    }

    /// The sub-range `range`, without copying except for owned bytes; `None` if it reaches past the end.
    pub fn slice(&self, range: Range<u64>) -> Option<Bytes> {
        if let Bytes::Stored(stored) = self {
            return stored.slice(range).map(Bytes::Stored);
        }
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        let part = self.get(range.clone())?;
        Some(match self {
            Bytes::Stored(_) => return None,
            Bytes::Owned(_) | Bytes::Woven(_) => Bytes::Owned(part.into()),
            Bytes::Static(bytes) => Bytes::Static(bytes.get(range)?),
            Bytes::Shared(buffer, outer) => {
                Bytes::Shared(buffer.clone(), outer.start + range.start..outer.start + range.end)
            }
            Bytes::Mapped(map, outer) => {
                Bytes::Mapped(map.clone(), outer.start + range.start..outer.start + range.end)
            }
        })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Owned(bytes) => bytes,
            Bytes::Shared(buffer, range) => &buffer[range.clone()],
            Bytes::Mapped(map, range) => &map[range.clone()],
            Bytes::Static(bytes) => bytes,
            Bytes::Woven(woven) => {
                let made = woven.made.get_or_init(|| (woven.weave)());
                assert!(made.len() == woven.len, "as many bytes as were promised");
                made
            }
            Bytes::Stored(stored) => match stored.hold() {
                Ok(bytes) => bytes,
                // As a mapped file that is cut meanwhile ends the program: `hold` and `pieces` say so in time.
                Err(error) => panic!("the model's file can no longer be read: {error}"),
            },
        }
    }
}

impl std::fmt::Debug for Woven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes to be put together", self.len)
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// Where a device keeps what it made of some weights, for as long as they live. Clones share it.
#[derive(Clone, Default)]
pub struct Slot(Arc<OnceLock<Arc<dyn Any + Send + Sync>>>);

impl Slot {
    /// What is here; made if nothing is, or if it is of another kind.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_make<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        if let Some(found) = self.0.get().and_then(|made| Arc::clone(made).downcast().ok()) {
            return Ok(found);
        }
        let made = Arc::new(make()?);
        // Whoever was faster keeps the place.
        drop(self.0.set(Arc::clone(&made) as Arc<dyn Any + Send + Sync>));
        Ok(made)
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "on a device" } else { "on no device" })
    }
}

/// Numbers that a device may keep a copy of: a norm's weights, a bias.
#[derive(Clone, Debug)]
pub struct Vector {
    values: Vec<f32>,
    slot: Slot,
}

impl Vector {
    /// Where a device keeps its copy.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }
}

impl From<Vec<f32>> for Vector {
    fn from(values: Vec<f32>) -> Self {
        Vector { values, slot: Slot::default() }
    }
}

impl Deref for Vector {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values
    }
}

/// A named array of weights. The last dimension is contiguous: a matrix is rows × columns, and a product with it
/// takes inputs of `columns` and gives outputs of `rows`.
#[derive(Clone, Debug)]
pub struct Tensor {
    name: String,
    shape: Vec<usize>,
    format: &'static Format,
    data: Bytes,
    slot: Slot,
}

impl Tensor {
    /// # Errors
    /// [`Error::Tensor`] if a row is no whole number of blocks, the size overflows, or `data` has another length.
    pub fn new(
        name: impl Into<String>,
        shape: Vec<usize>,
        format: &'static Format,
        data: Bytes,
    ) -> Result<Self> {
        let name = name.into();
        let columns = shape.last().copied().unwrap_or(1);
        let row_bytes = format.bytes_for(columns).map_err(|error| Error::tensor(&name, error.to_string()))?;
        let rows = shape.iter().rev().skip(1).try_fold(1usize, |product, &dim| product.checked_mul(dim));
        let bytes = rows.and_then(|rows| rows.checked_mul(row_bytes));
        if bytes != Some(data.len()) {
            let message = match bytes {
                Some(bytes) => format!("{shape:?} as {} is {bytes} bytes, found {}", format.name, data.len()),
                None => format!("{shape:?}: size overflow"),
            };
            return Err(Error::tensor(name, message));
        }
        Ok(Tensor { name, shape, format, data, slot: Slot::default() })
    }

    /// An f32 tensor from numbers.
    ///
    /// # Errors
    /// [`Error::Tensor`] if `values` does not fill `shape`.
    pub fn from_f32(name: impl Into<String>, shape: Vec<usize>, values: &[f32]) -> Result<Self> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor::new(name, shape, &crate::quant::f32::FORMAT, Bytes::Owned(bytes.into()))
    }

    /// The name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How the weights are stored.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// Elements in all.
    pub fn len(&self) -> usize {
        self.rows() * self.columns()
    }

    /// Whether a dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The last dimension.
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// The product of all dimensions but the last.
    pub fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    /// Where a device keeps its copy.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The stored bytes, which need not be in memory.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// The stored bytes, rows in order.
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.columns() / self.format.block_len * self.format.block_bytes
    }

    /// The stored bytes of row `row`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[u8] {
        let bytes = self.row_bytes();
        &self.data[row * bytes..(row + 1) * bytes]
    }

    /// All weights as f32.
    ///
    /// # Errors
    /// Never in practice: the length was checked when the tensor was made.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.len()];
        self.format.decode(&self.data, &mut values)?;
        Ok(values)
    }
}
