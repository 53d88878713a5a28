//! Speed of every format's row dot and of every activation quantizer, for each instruction set of this machine:
//! `cargo bench --bench dots`. 4096 elements a call, all in cache: this measures arithmetic, not memory.

#![allow(clippy::unwrap_used, reason = "a panic is how a bench reports")]

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use hadal::quant::{FORMATS, Format, panel};
use hadal::simd::Isa;

const LEN: usize = 4096;

fn main() {
    divan::main();
}

/// A row of the table for one instruction set, shown as `q4_0 avx2`.
struct Case {
    format: &'static Format,
    isa: Isa,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.format.name, self.isa.name())
    }
}

/// Every arm of every dot.
fn dots() -> impl Iterator<Item = Case> {
    FORMATS.iter().flat_map(|format| {
        let arms = format.dot.iter().flat_map(|dot| dot.arms).filter(|arm| arm.isa.is_available());
        arms.map(|arm| Case { format, isa: arm.isa })
    })
}

/// What inputs are quantized to, for every instruction set.
fn inputs() -> impl Iterator<Item = Case> {
    let is_input = |format: &Format| {
        FORMATS.iter().filter_map(|row| row.dot.as_ref()).any(|dot| std::ptr::eq(dot.input, format))
    };
    let formats = FORMATS.iter().filter(move |format| is_input(format));
    formats.flat_map(|format| Isa::available().map(|isa| Case { format, isa }))
}

fn numbers() -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(1);
    (0..LEN).map(|_| rng.f32() - 0.5).collect()
}

fn quantize(format: &Format, isa: Isa, values: &[f32]) -> Vec<u8> {
    let mut out = vec![0; format.bytes_for(values.len()).unwrap()];
    format.quantize(isa, values, &mut out).unwrap();
    out
}

#[divan::bench(args = dots())]
fn dot(bencher: Bencher<'_, '_>, case: &Case) {
    let row = case.format.row_dot(case.isa).unwrap();
    // Small bytes: no scale of any format is a NaN or an infinity, which would be slow.
    let weights = vec![0x11; case.format.bytes_for(LEN).unwrap()];
    let input = quantize(case.format.dot.as_ref().unwrap().input, case.isa, &numbers());
    bencher
        .counter(ItemsCount::new(LEN))
        .counter(BytesCount::new(weights.len()))
        .bench_local(|| row.call(black_box(&weights), black_box(&input)));
}

/// Four rows with one input.
#[divan::bench(args = dots())]
fn rows4(bencher: Bencher<'_, '_>, case: &Case) {
    let row = case.format.row_dot(case.isa).unwrap();
    let weights = vec![0x11; case.format.bytes_for(LEN).unwrap()];
    let input = quantize(case.format.dot.as_ref().unwrap().input, case.isa, &numbers());
    bencher
        .counter(ItemsCount::new(4 * LEN))
        .counter(BytesCount::new(4 * weights.len()))
        .bench_local(|| row.rows4(black_box([&weights; 4]), black_box(&input)));
}

/// Every kernel for many inputs.
fn panels() -> impl Iterator<Item = Case> {
    FORMATS.iter().flat_map(|format| {
        let isas =
            Isa::available().filter(|&isa| format.multiply(isa).is_some_and(|kernel| kernel.isa() == isa));
        isas.map(|isa| Case { format, isa })
    })
}

/// 64 rows of 2048 weights with 256 inputs; the numbers are multiplications and additions.
#[divan::bench(args = panels())]
fn panel(bencher: Bencher<'_, '_>, case: &Case) {
    multiply(bencher, case, 256);
}

/// 64 rows of 2048 weights with one input: next to all of it is taking weights apart, which a pack at load would save.
#[divan::bench(args = panels())]
fn unpack(bencher: Bencher<'_, '_>, case: &Case) {
    multiply(bencher, case, 1);
}

fn multiply(bencher: Bencher<'_, '_>, case: &Case, tokens: usize) {
    const COLUMNS: usize = 2048;
    let format = case.format;
    let kernel = format.multiply(case.isa).unwrap();
    let weights = vec![0x11; panel::ROWS * format.bytes_for(COLUMNS).unwrap()];
    let input = format.dot.as_ref().unwrap().input;
    let row = quantize(input, case.isa, &numbers()[..COLUMNS]);
    let mut inputs = kernel.prepare(tokens, COLUMNS);
    inputs.runs_mut().for_each(|mut run| run.fill(&row.repeat(tokens)));
    let mut scratch = panel::Scratch::default();
    bencher.counter(ItemsCount::new(panel::ROWS * COLUMNS * tokens)).bench_local(|| {
        kernel.run(black_box(&weights), black_box(&inputs), &mut scratch, |_, dots| {
            black_box(dots);
        });
    });
}

#[divan::bench(args = inputs())]
fn quantize_input(bencher: Bencher<'_, '_>, case: &Case) {
    let values = numbers();
    let mut out = quantize(case.format, case.isa, &values);
    bencher
        .counter(ItemsCount::new(LEN))
        .bench_local(|| case.format.quantize(case.isa, black_box(&values), black_box(&mut out)).unwrap());
}
