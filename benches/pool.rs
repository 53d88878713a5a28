//! What handing a region to the thread pool costs, beside rayon: `cargo bench --bench pool`.
//! `empty`: parts that do nothing. `short`: parts of about a microsecond, so two threads should take half as long as one.

#![allow(clippy::unwrap_used, reason = "a panic is how a bench reports")]

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hadal::backend::cpu::pool::Pool;
use rayon::prelude::*;

const THREADS: [usize; 3] = [1, 2, 4];
const PARTS: usize = 8;
/// Regions one after the other, as in a token: a sample's time divided by this is what one costs.
const REGIONS: usize = 100;

fn main() {
    divan::main();
}

fn nothing(part: usize) {
    black_box(part);
}

/// A microsecond or so of arithmetic.
fn a_microsecond(part: usize) {
    let mut value = part as u64;
    for _ in 0..1000 {
        value = black_box(value).wrapping_mul(3).wrapping_add(1);
    }
    black_box(value);
}

fn ours(bencher: Bencher<'_, '_>, threads: usize, work: fn(usize)) {
    let pool = Pool::new(threads).unwrap();
    bencher.counter(ItemsCount::new(REGIONS)).bench_local(|| {
        for _ in 0..REGIONS {
            pool.run(PARTS, &work);
        }
    });
}

/// From a thread of the pool, where a region costs rayon least.
fn rayons(bencher: Bencher<'_, '_>, threads: usize, work: fn(usize)) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    bencher.counter(ItemsCount::new(REGIONS)).bench_local(|| {
        pool.install(|| {
            for _ in 0..REGIONS {
                (0..PARTS).into_par_iter().for_each(work);
            }
        });
    });
}

#[divan::bench(args = THREADS)]
fn empty(bencher: Bencher<'_, '_>, threads: usize) {
    ours(bencher, threads, nothing);
}

#[divan::bench(args = THREADS)]
fn empty_rayon(bencher: Bencher<'_, '_>, threads: usize) {
    rayons(bencher, threads, nothing);
}

#[divan::bench(args = THREADS)]
fn short(bencher: Bencher<'_, '_>, threads: usize) {
    ours(bencher, threads, a_microsecond);
}

#[divan::bench(args = THREADS)]
fn short_rayon(bencher: Bencher<'_, '_>, threads: usize) {
    rayons(bencher, threads, a_microsecond);
}
