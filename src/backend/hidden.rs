//! Activations, and the memory that they give back when they are dropped.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// Activations: rows (tokens) × columns of f32.
#[derive(Debug)]
pub struct Hidden {
    /// May be longer than the rows are.
    values: Vec<f32>,
    rows: usize,
    columns: usize,
    home: Option<Spares>,
    /// Where the values are if not here.
    device: Option<Arc<dyn Any + Send + Sync>>,
}

impl Hidden {
    /// Rows × columns that are on a device, at a place that it knows.
    #[cfg(feature = "gpu")]
    pub(super) fn on_device(rows: usize, columns: usize, place: Arc<dyn Any + Send + Sync>) -> Self {
        Hidden { values: Vec::new(), rows, columns, home: None, device: Some(place) }
    }

    /// The place on a device, if there is one of that kind.
    #[cfg(feature = "gpu")]
    pub(super) fn device<T: Any>(&self) -> Option<&T> {
        self.device.as_ref()?.downcast_ref()
    }

    /// # Panics
    /// If `values` is no whole number of rows.
    pub fn new(values: Vec<f32>, columns: usize) -> Self {
        assert!(columns > 0 && values.len().is_multiple_of(columns), "whole rows");
        Hidden { rows: values.len() / columns, values, columns, home: None, device: None }
    }

    /// No rows, to be replaced.
    pub const fn empty() -> Self {
        Hidden { values: Vec::new(), rows: 0, columns: 0, home: None, device: None }
    }

    /// Tokens.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All rows, one after the other.
    ///
    /// # Panics
    /// If they are on a device: [`super::Backend::fetch`] brings them here.
    pub fn values(&self) -> &[f32] {
        assert!(self.device.is_none(), "rows on a device are fetched first");
        &self.values[..self.rows * self.columns]
    }

    /// All rows, to be changed in place.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.rows * self.columns]
    }

    /// Row `row`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values()[row * self.columns..(row + 1) * self.columns]
    }

    /// Drops all rows but the last.
    pub fn keep_last_row(&mut self) {
        if self.rows > 1 {
            self.values.copy_within((self.rows - 1) * self.columns..self.rows * self.columns, 0);
            self.rows = 1;
        }
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.lock().push(std::mem::take(&mut self.values));
        }
    }
}

/// Memory of dropped [`Hidden`]s, kept for the next ones: each token needs what the last one needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Spares(Arc<Mutex<Vec<Vec<f32>>>>);

impl Spares {
    /// Rows × columns of whatever numbers were there. Takes the smallest buffer that is large enough, or makes the
    /// largest one grow, so that there are never more buffers than were in use at once.
    pub fn take(&self, rows: usize, columns: usize) -> Hidden {
        let len = rows * columns;
        let mut spares = self.lock();
        let fitting = (0..spares.len()).filter(|&i| spares[i].len() >= len).min_by_key(|&i| spares[i].len());
        let best = fitting.or_else(|| (0..spares.len()).max_by_key(|&i| spares[i].len()));
        let mut values = best.map_or_else(Vec::new, |index| spares.swap_remove(index));
        drop(spares);
        if values.len() < len {
            // What was there is not wanted: a new buffer need not be copied to.
            values = vec![0.0; len];
        }
        Hidden { values, rows, columns, home: Some(self.clone()), device: None }
    }

    /// Bytes that are not in use.
    pub fn bytes(&self) -> u64 {
        self.lock().iter().map(|spare| size_of_val(&**spare) as u64).sum()
    }

    /// The list is whole whatever panics while it is locked.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<f32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_memory_is_used_again() {
        let spares = Spares::default();
        let (small, large) = (spares.take(1, 10), spares.take(4, 10));
        let places = [small.values().as_ptr(), large.values().as_ptr()];
        drop((small, large));
        let (large, small) = (spares.take(3, 11), spares.take(2, 5));
        assert_eq!((small.rows(), small.columns(), small.values().len()), (2, 5, 10));
        assert_eq!([small.values().as_ptr(), large.values().as_ptr()], places);
        assert_eq!(spares.lock().len(), 0);
        drop((large, small));
        assert_eq!(spares.take(100, 100).values().len(), 10_000);
        assert_eq!(spares.lock().len(), 2);
    }

    #[test]
    fn the_last_row_is_kept() {
        let mut hidden = Hidden::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2);
        hidden.keep_last_row();
        assert_eq!((hidden.values(), hidden.rows()), (&[5.0, 6.0][..], 1));
        hidden.keep_last_row();
        assert_eq!(hidden.row(0), [5.0, 6.0]);
    }
}
