//! Bytes of files that can neither be mapped nor should be in memory as a whole: a browser's.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A file that is read in pieces, at any place.
pub trait ReadAt: Send + Sync + Debug {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Fills `into` with what is at `offset`.
    ///
    /// # Errors
    /// Whatever keeps the file from being read, its end too.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

/// A range of such a file. Clones share what was read of it.
#[derive(Clone, Debug)]
pub struct Stored {
    file: Arc<dyn ReadAt>,
    range: Range<u64>,
    held: Arc<OnceLock<Box<[u8]>>>,
}

impl Stored {
    /// All of `file`.
    pub fn new(file: Arc<dyn ReadAt>) -> Self {
        let range = 0..file.size();
        Stored { file, range, held: Arc::default() }
    }

    /// Bytes in all.
    pub fn size(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// A part of it, of which nothing is read yet; `None` if it reaches past the end.
    pub fn slice(&self, range: Range<u64>) -> Option<Self> {
        if range.start > range.end || range.end > self.size() {
            return None;
        }
        let range = self.range.start + range.start..self.range.start + range.end;
        Some(Stored { file: Arc::clone(&self.file), range, held: Arc::default() })
    }

    /// Whether a clone of it lives: that of a model whose graph reads it.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.held) > 1
    }

    /// The bytes, which stay in memory from the first time on.
    ///
    /// # Errors
    /// If the file can't be read, or memory doesn't hold it.
    pub fn hold(&self) -> io::Result<&[u8]> {
        if self.held.get().is_none() {
            let read = self.read(0..self.size())?;
            // Whoever was faster keeps the place.
            drop(self.held.set(read.into()));
        }
        self.held.get().map(|held| &**held).ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// A copy of a part, of which nothing is kept.
    ///
    /// # Errors
    /// As [`Stored::hold`].
    pub fn read(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let len = usize::try_from(range.end.saturating_sub(range.start)).map_err(too_large)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        bytes.resize(len, 0);
        match self.held.get() {
            Some(held) => bytes.copy_from_slice(&held[range.start as usize..range.end as usize]),
            None => self.file.read_at(self.range.start + range.start, &mut bytes)?,
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Bytes;

    #[derive(Debug)]
    struct Squares;

    impl ReadAt for Squares {
        fn size(&self) -> u64 {
            5 << 30
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            for (at, byte) in (offset..).zip(into) {
                if at >= self.size() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *byte = (at.wrapping_mul(at) >> 3) as u8;
            }
            Ok(())
        }
    }

    #[test]
    fn parts_are_read_where_they_lie() {
        let far = 4 << 30;
        let all = Bytes::Stored(Stored::new(Arc::new(Squares)));
        assert_eq!(all.size(), 5 << 30);
        let part = all.slice(far..far + 9000).expect("inside");
        let inner = part.slice(100..110).expect("inside");
        assert_eq!(inner.len(), 10);
        let expected: Vec<u8> = (far + 100..far + 110).map(|at| (at.wrapping_mul(at) >> 3) as u8).collect();
        assert_eq!(&inner[..], expected);
        let mut pieces = Vec::new();
        part.pieces(100..8300, 4096, |piece| {
            pieces.push(piece.to_vec());
            Ok(())
        })
        .expect("readable");
        assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [4096, 4096, 8]);
        assert_eq!(pieces.concat(), part[100..8300]);
        let Bytes::Stored(stored) = &part else { panic!("as it was given") };
        assert!(!stored.is_shared());
        let clone = part.clone();
        assert!(stored.is_shared());
        drop(clone);
        assert!(part.slice(0..9001).is_none() && all.slice(0..(5 << 30) + 1).is_none());
    }
}
