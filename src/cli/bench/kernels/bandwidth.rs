//! How fast this machine reads memory: the bound of every product that reads its weights once.

use std::hint::black_box;
use std::io;
use std::thread;
use std::time::Instant;

/// Words of the buffer: 256 MiB, more than caches hold.
const WORDS: usize = (256 << 20) / 8;

/// The best of so many passes counts; the others were disturbed.
const PASSES: usize = 8;

/// The fastest sum of a large buffer by `threads` threads, in 10⁹ bytes a second.
///
/// # Errors
/// If the system refuses a thread.
pub fn read(threads: usize) -> io::Result<f64> {
    // Not zeros: the system maps those to one page.
    let buffer = vec![1u64; WORDS];
    let pass = || -> io::Result<f64> {
        let start = Instant::now();
        thread::scope(|scope| {
            buffer.chunks(WORDS.div_ceil(threads)).try_for_each(|part| {
                let sum = move || black_box(sum(black_box(part)));
                thread::Builder::new().spawn_scoped(scope, sum).map(drop)
            })
        })?;
        Ok(size_of_val(buffer.as_slice()) as f64 / 1e9 / start.elapsed().as_secs_f64())
    };
    (0..PASSES).try_fold(0.0, |best: f64, _| Ok(best.max(pass()?)))
}

/// In 16 lanes, so that loads and not additions are what is waited for.
fn sum(words: &[u64]) -> u64 {
    let mut lanes = [0u64; 16];
    for chunk in words.as_chunks::<16>().0 {
        for (lane, word) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_add(*word);
        }
    }
    lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
}
