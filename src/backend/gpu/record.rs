//! What a forward pass asks of a device: a plain list of [`Command`]s. It is recorded without a device, and buffers
//! get their memory when the list is run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::compose::Permutation;
use super::kernels::Kernel;
use super::memory::Claim;

/// Memory on the device, made when it is first used.
#[derive(Debug)]
pub struct Buffer {
    /// Of no other buffer of the program.
    pub id: u64,
    /// A multiple of 16.
    pub bytes: u64,
    pub(super) memory: OnceLock<Memory>,
}

/// A buffer's own memory.
#[derive(Debug)]
pub(super) struct Memory {
    pub buffer: wgpu::Buffer,
    pub _claim: Claim,
}

impl Buffer {
    /// At least `bytes`.
    pub fn new(bytes: u64) -> Arc<Buffer> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Buffer { id, bytes: bytes.max(16).next_multiple_of(16), memory: OnceLock::new() })
    }
}

/// One dispatch.
#[derive(Debug)]
pub struct Command {
    /// What runs.
    pub kernel: &'static Kernel,
    /// For which format, flags and sizes.
    pub permutation: Permutation,
    /// Binding number and what is bound.
    pub bindings: Vec<(u32, Arc<Buffer>)>,
    /// The kernel's `Params`, word by word.
    pub params: Vec<u32>,
    /// Workgroups.
    pub groups: [u32; 3],
    /// What it takes.
    pub work: Work,
}

/// What a command reads of weights and caches, and multiplies. Everything else is small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes of weights and caches.
    pub bytes: u64,
    /// Products that are added up.
    pub macs: u64,
}

impl Work {
    /// Of commands that read activations only.
    pub const SMALL: Work = Work { bytes: 0, macs: 0 };
}

/// `commands` in pieces for submissions of their own, none with more than `most` commands or `most_macs` multiplications.
pub fn submissions(commands: &[Command], most: usize, most_macs: u64) -> impl Iterator<Item = &[Command]> {
    let mut rest = commands;
    std::iter::from_fn(move || {
        let mut macs = 0;
        let fits = |command: &&Command| {
            macs += command.work.macs;
            macs <= most_macs
        };
        // One command can't be cut.
        let count = rest.iter().take(most).take_while(fits).count().max(1).min(rest.len());
        let (piece, later) = rest.split_at(count);
        rest = later;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Buffers whose rows are no longer needed. Commands run in the order in which they were recorded, so a buffer may be
/// written again as soon as nobody will name it.
#[derive(Clone, Debug, Default)]
pub struct Spares(Arc<Mutex<Vec<Arc<Buffer>>>>);

impl Spares {
    /// The smallest spare buffer of at least `bytes` that is not more than twice as large, or a new one.
    pub fn take(&self, bytes: u64) -> Lent {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |buffer: &Arc<Buffer>| buffer.bytes >= bytes && buffer.bytes <= 2 * bytes.max(4096);
        let best = (0..spares.len()).filter(|&i| fits(&spares[i])).min_by_key(|&i| spares[i].bytes);
        let buffer = match best {
            Some(index) => spares.swap_remove(index),
            None => Buffer::new(bytes),
        };
        Lent { buffer, home: self.clone() }
    }

    /// Bytes of the buffers that nobody names.
    pub fn bytes(&self) -> u64 {
        let spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spares.iter().map(|buffer| buffer.bytes).sum()
    }
}

/// A buffer that goes back to its [`Spares`].
#[derive(Debug)]
pub struct Lent {
    /// The memory.
    pub buffer: Arc<Buffer>,
    home: Spares,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spares = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        spares.push(Arc::clone(&self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::gpu::kernels;

    #[test]
    fn long_work_is_cut_between_commands() {
        let command = |giga: u64| Command {
            kernel: &kernels::MATMUL,
            permutation: Permutation::default(),
            bindings: vec![],
            params: vec![],
            groups: [1, 1, 1],
            work: Work { bytes: 0, macs: giga * 1_000_000_000 },
        };
        let cases: [(&[u64], usize, &[usize]); 6] = [
            (&[], 9, &[]),
            (&[0, 0, 0], 9, &[3]),
            (&[0, 0, 0], 2, &[2, 1]),
            (&[2, 3, 1, 4, 0], 9, &[2, 3]),
            (&[9, 1, 9], 9, &[1, 1, 1]),
            (&[1, 9], 9, &[1, 1]),
        ];
        for (work, most, expected) in cases {
            let commands: Vec<Command> = work.iter().map(|&giga| command(giga)).collect();
            let found: Vec<_> = submissions(&commands, most, 5_000_000_000).map(<[Command]>::len).collect();
            assert_eq!(found, expected, "{work:?}");
        }
    }
}
