//! What the device holds of a layer, stored otherwise from now on: a kernel reads the stored rows and encodes them anew.

use super::cache::{DeviceCache, cut, row_words};
use super::compose::Permutation;
use super::record::Work;
use super::{Gpu, WORKGROUP, kernels};
use crate::cache::{CacheType, LayerCache, Store};
use crate::error::Result;

/// Positions of a dispatch.
const ROWS: usize = 1024;

impl Gpu {
    /// Stores what the device holds of a layer as `kind`. Until it is done the layer is as it was.
    ///
    /// # Errors
    /// As [`Gpu::cache`]; [`Error::GpuMemory`](crate::Error::GpuMemory) if there is none for the new rows beside the old ones.
    pub(super) fn convert_rows(&self, cache: &mut LayerCache, kind: CacheType) -> Result<()> {
        let converted = cache.elsewhere(kind)?;
        if !cache.is_empty() {
            let (from, to) = (self.cache(cache)?, self.cache(&converted)?);
            let keys = [(&*from, cache.key_store()), (&*to, converted.key_store())];
            let values = [(&*from, cache.value_store()), (&*to, converted.value_store())];
            self.convert_side(0, keys, cache)?;
            self.convert_side(1, values, cache)?;
            self.finish()?;
        }
        *cache = converted;
        // The old rows' memory is for the next layer.
        self.device.release()
    }

    /// Records that the keys (0) or values (1) of `cache` are read as they are stored in one place and written as in another.
    fn convert_side(
        &self,
        side: usize,
        places: [(&DeviceCache, Store); 2],
        cache: &LayerCache,
    ) -> Result<()> {
        let [(from, source), (to, target)] = places;
        let shape = cache.shape();
        let permutation = DeviceCache::conversion(source, target, shape.dim)?;
        let tables = to.tables().or_else(|| from.tables()).filter(|_| source.turned || target.turned);
        let positions = cache.positions();
        let pieces = positions.clone().step_by(ROWS).map(|start| start..positions.end.min(start + ROWS));
        for piece in pieces.flat_map(|some| cut(some, from.rows)).flat_map(|some| cut(some, to.rows)) {
            let mut bindings =
                vec![(1, from.part(piece.start)[side].clone()), (4, to.part(piece.start)[side].clone())];
            bindings.extend(tables.clone());
            let params = vec![from.rows as u32, to.rows as u32, piece.start as u32];
            let groups = [shape.heads as u32, piece.len() as u32, 1];
            let numbers = piece.len() * shape.heads * shape.dim;
            let bytes = (piece.len() * shape.heads * source.row_bytes(shape.dim)?) as u64;
            let work = Work { bytes, macs: (numbers * OPERATIONS) as u64 };
            self.record(&kernels::CONVERT, permutation.clone(), bindings, params, groups, work);
        }
        Ok(())
    }
}

/// What a number takes that is decoded, turned and encoded, counted in multiplications.
const OPERATIONS: usize = 32;

impl DeviceCache {
    /// What the shader is composed with that makes rows of `to` of rows of `from`.
    pub fn conversion(from: Store, to: Store, dim: usize) -> Result<Permutation> {
        let flags =
            [(from.turned, "FROM_TURNED"), (to.turned, "TO_TURNED"), (from.turned || to.turned, "TURNED")];
        Ok(Permutation {
            cache: Some([from.format.name, to.format.name]),
            flags: flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag).collect(),
            consts: vec![
                ("WORKGROUP", WORKGROUP),
                ("DIM", dim as u32),
                ("from_BYTES", from.format.block_bytes as u32),
                ("from_WORDS", row_words(from, dim)? as u32),
                ("to_BYTES", to.format.block_bytes as u32),
                ("to_WORDS", row_words(to, dim)? as u32),
            ],
            ..Permutation::default()
        })
    }
}
