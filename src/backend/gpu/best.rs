//! The highest logits of a row, found on the device: what is read back for a token is some bytes instead of a vocabulary.

use std::sync::Arc;

use super::compose::Permutation;
use super::record::Work;
use super::{Gpu, WORKGROUP, kernels};
use crate::backend::{Hidden, Pending};

/// Elements of an invocation: with what is kept beside them, a workgroup of 64 takes 12.5 of the floor's 16 KiB.
const EACH: u32 = 48;
/// More are taken one after the other for longer than it takes to read a row.
const MOST: usize = 256;
/// Column of a pair that is none.
const NOTHING: u32 = u32::MAX;

impl Gpu {
    /// Bits and columns, slice by slice, until there is one slice.
    pub(super) fn best_of_row(&self, x: &Hidden, count: usize) -> Pending<Option<Vec<(u32, f32)>>> {
        let count = count.min(x.columns());
        if count > MOST || x.rows() != 1 {
            return Pending::ready(Ok(None));
        }
        let place = match self.place(x) {
            Ok(place) => place,
            Err(error) => return Pending::ready(Err(error)),
        };
        let (mut buffer, mut offset, mut len) = (place.buffer(), place.offset, x.columns());
        let mut flags = vec![];
        // Kept until everything is recorded: a spare buffer would be read and written at once.
        let mut lent = Vec::new();
        loop {
            let slices = len.div_ceil((EACH * WORKGROUP) as usize);
            let out = Arc::new(self.spares.take(8 * (slices * count) as u64));
            let consts = vec![("WORKGROUP", WORKGROUP), ("EACH", EACH)];
            let permutation = Permutation { flags: flags.clone(), consts, ..Permutation::default() };
            let bindings = vec![(2, buffer), (4, Arc::clone(&out.buffer))];
            let params = vec![offset as u32, len as u32, count as u32];
            let groups = [slices as u32, 1, 1];
            self.record(&kernels::BEST, permutation, bindings, params, groups, Work::SMALL);
            (buffer, offset, len) = (Arc::clone(&out.buffer), 0, slices * count);
            flags = vec!["PAIRS"];
            lent.push(Arc::clone(&out));
            if slices == 1 {
                let bytes = self.read(out, 0, 8 * count);
                return Pending::start(async move { Ok(Some(pairs(&bytes.await?))) });
            }
        }
    }
}

/// Columns and values, of those that are some.
fn pairs(bytes: &[u8]) -> Vec<(u32, f32)> {
    let words: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
    let pairs = words.chunks_exact(2).filter(|pair| pair[1] != NOTHING);
    pairs.map(|pair| (pair[1], f32::from_bits(pair[0]))).collect()
}
