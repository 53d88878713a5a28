//! Speed of the encoder of trellis codes, for each instruction set of this machine and one or two threads that do the same at
//! once: `cargo bench --bench trellis`. Gaussian weights, 64 blocks a call.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hadal::quant::trellis::paths;
use hadal::simd::Isa;

const LEN: usize = 64 * 256;

fn main() {
    divan::main();
}

fn gaussian() -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut one = || {
        let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
        (radius * (2.0 * std::f64::consts::PI * random.f64()).cos()) as f32
    };
    (0..LEN).map(|_| one()).collect()
}

#[divan::bench(consts = [1, 2, 3, 4], args = Isa::available(), threads = [1, 2], sample_count = 10)]
fn encode<const K: usize>(bencher: Bencher<'_, '_>, isa: &Isa) {
    let weights = gaussian();
    bencher.counter(ItemsCount::new(LEN)).bench(|| paths::<K>(*isa, black_box(&weights)));
}
