//! A matrix that several threads write, each a block of its own.

use std::marker::PhantomData;
use std::ops::Range;

use crate::backend::Hidden;

/// Hands out blocks of a [`Hidden`].
pub struct Matrix<'a> {
    start: *mut f32,
    rows: usize,
    columns: usize,
    borrow: PhantomData<&'a mut Hidden>,
}

// SAFETY: sharing it shares nothing but numbers; `block` says what makes its use sound.
unsafe impl Sync for Matrix<'_> {}

impl<'a> Matrix<'a> {
    pub fn new(hidden: &'a mut Hidden) -> Self {
        let (rows, columns) = (hidden.rows(), hidden.columns());
        Matrix { start: hidden.values_mut().as_mut_ptr(), rows, columns, borrow: PhantomData }
    }

    /// # Panics
    /// If the block reaches out of the matrix.
    ///
    /// # Safety
    /// No other block in use has an element of it.
    pub unsafe fn block(&self, rows: Range<usize>, columns: Range<usize>) -> Block<'a> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        assert!(columns.start <= columns.end && columns.end <= self.columns, "columns {columns:?}");
        // At most one past the end, where an empty block may be.
        let start = self.start.wrapping_add(rows.start * self.columns + columns.start);
        Block { start, rows: rows.len(), width: columns.len(), stride: self.columns, borrow: PhantomData }
    }
}

/// Rows × width of a [`Matrix`], to be written.
pub struct Block<'a> {
    start: *mut f32,
    rows: usize,
    width: usize,
    stride: usize,
    borrow: PhantomData<&'a mut Hidden>,
}

impl Block<'_> {
    /// What the block has of its row `row`.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: rows and columns lie in the matrix, which was checked when the block was made, and are this block's
        // alone, as its maker promised.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.width) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_windows_of_the_matrix() {
        let mut hidden = Hidden::new(vec![0.0; 12], 4);
        let matrix = Matrix::new(&mut hidden);
        // SAFETY: the two blocks share no element.
        let (mut a, mut b) = unsafe { (matrix.block(0..3, 0..1), matrix.block(1..3, 2..4)) };
        (0..3).for_each(|row| a.row(row)[0] = row as f32);
        b.row(1).copy_from_slice(&[8.0, 9.0]);
        assert_eq!(b.row(0).len(), 2);
        assert_eq!(hidden.values(), [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 8.0, 9.0]);
    }

    #[test]
    #[should_panic(expected = "columns 3..5")]
    fn a_block_outside_is_refused() {
        let mut hidden = Hidden::new(vec![0.0; 12], 4);
        // SAFETY: it is the only block.
        unsafe { Matrix::new(&mut hidden).block(0..1, 3..5) };
    }
}
