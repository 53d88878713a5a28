//! `hadal bench --kernels --device gpu`: the products of every format on a GPU, next to how fast its memory is copied.

use std::io::{Write, stdout};
use std::time::{Duration, Instant};

use hadal::backend::gpu::{Device, Gpu};
use hadal::backend::{Backend, Hidden, Linear, Source};
use hadal::engine::Options;
use hadal::quant::Format;
use hadal::{Error, Result};
use serde::Serialize;

use super::KernelArgs;
use super::shape::Shape;
use crate::cli::bench::Output;
use crate::cli::bench::report::{self, Spread};
use crate::cli::progress;

/// Of small shapes it would take hundreds of thousands to fill a cache, and each has a buffer of its own.
const MOST_MATRICES: usize = 256;

/// Tokens with which a prompt's product is tried: a tile of the kernel.
const TRIED: usize = 32;

/// One product of one format.
#[derive(Clone, Debug, Serialize)]
struct Row {
    device: String,
    format: &'static str,
    phase: &'static str,
    /// Rows of activations: tokens.
    rows: usize,
    /// Outputs: rows of the weights' matrix.
    n: usize,
    /// Inputs: its columns.
    k: usize,
    /// By the device's timestamps, or by the time until a list of products is done.
    clock: &'static str,
    gbytes_per_second: Spread,
    gmacs_per_second: Spread,
    /// 10⁹ bytes that copies within the device read and write in a second.
    copy_gbytes_per_second: f64,
    /// The best speed over that; `None` for many rows, which read weights once, and if a cache may hold them.
    share_of_bandwidth: Option<f64>,
}

/// A format's product with one number of tokens.
struct Test<'a> {
    format: &'static Format,
    phase: &'static str,
    tokens: usize,
    /// At least one.
    matrices: &'a [Linear],
}

impl KernelArgs {
    /// Measures every format on the GPU that `options` ask for. A row of a table is printed when it is measured.
    pub fn bench_gpu(&self, options: &Options, repetitions: usize, output: Output) -> anyhow::Result<()> {
        if !(self.isas.is_empty() && self.compare.is_empty()) {
            return Err(Error::option("--isa, --compare", "for the CPU only").into());
        }
        let device = hadal::engine::open_gpu(options)?;
        let formats = self.formats()?;
        let progress = progress::bar(formats.len() * 2, progress::STEPS)?;
        progress.set_message("memory");
        let copies = device.copy_bandwidth()?;
        let gpu = Gpu::new(device.clone(), options.activations);
        let mut rows = Vec::new();
        let table = matches!(output, Output::Md);
        if table {
            print(HEAD)?;
        }
        for format in formats {
            progress.set_message(format.name);
            let mut matrices = self.shape.matrices(format, self.cached)?;
            matrices.truncate(MOST_MATRICES);
            let decode = Test { format, phase: "decode", tokens: 1, matrices: &matrices };
            let prefill = Test { phase: "prefill", tokens: self.rows, matrices: &matrices[..1], ..decode };
            for mut test in [decode, prefill] {
                progress.set_message(format!("{} {}", format.name, test.phase));
                test.tokens = test.affordable(&gpu, self.limit())?;
                let row = self.row_of(&test, &gpu, &device, repetitions, copies)?;
                if table {
                    progress.suspend(|| print(&row.markdown()))?;
                }
                rows.push(row);
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        match output {
            Output::Md => print(&rows.first().map(Row::foot).unwrap_or_default()),
            Output::Json => report::print_json(&rows),
            Output::Csv => report::print_csv(&rows),
        }
    }

    fn row_of(
        &self,
        test: &Test,
        gpu: &Gpu,
        device: &Device,
        repetitions: usize,
        copies: f64,
    ) -> Result<Row> {
        let (clock, times) = test.run(gpu, device, repetitions, self.limit())?;
        let Shape { outputs, inputs } = self.shape;
        let per_second = |work: usize| {
            let giga = (work * test.matrices.len()) as f64 / 1e9;
            // A clock may be too coarse for a short kernel.
            Spread::of(times.iter().map(|time| giga / time.as_secs_f64().max(1e-9)).collect())
        };
        let gbytes_per_second = per_second(test.matrices[0].weight.bytes().len());
        Ok(Row {
            device: device.name().to_owned(),
            format: test.format.name,
            phase: test.phase,
            rows: test.tokens,
            n: outputs,
            k: inputs,
            clock,
            gbytes_per_second,
            gmacs_per_second: per_second(outputs * inputs * test.tokens),
            copy_gbytes_per_second: copies / 1e9,
            share_of_bandwidth: (test.phase == "decode" && !self.cached)
                .then_some(gbytes_per_second.max * 1e9 / copies),
        })
    }
}

impl Test<'_> {
    /// One product with each matrix of random inputs, `tokens` of them.
    fn product<'a>(&'a self, gpu: &'a Gpu, tokens: usize) -> Result<impl Fn() -> Result<()> + 'a> {
        let mut rng = fastrand::Rng::with_seed(1);
        let columns = self.matrices[0].weight.columns();
        let values = (0..tokens * columns).map(|_| rng.f32() - 0.5).collect();
        let input = gpu.hold(Hidden::new(values, columns))?;
        Ok(move || -> Result<()> {
            for matrix in self.matrices {
                gpu.linear(Source::Plain(&input), &[matrix], &mut [Hidden::empty()])?;
            }
            gpu.finish()
        })
    }

    /// Tokens, not more than asked for, of which a run takes no longer than `limit`: by the time that a few of them take.
    fn affordable(&self, gpu: &Gpu, limit: Duration) -> Result<usize> {
        if self.tokens <= TRIED {
            return Ok(self.tokens);
        }
        let run = self.product(gpu, TRIED)?;
        run()?;
        let start = Instant::now();
        run()?;
        let tiles = limit.as_secs_f64() / start.elapsed().as_secs_f64().max(1e-9);
        Ok(self.tokens.min(TRIED * (tiles as usize).max(1)))
    }

    /// The clock, and the times of `repetitions` products with all matrices or of as many as `limit` allows, after one
    /// that uploads and compiles.
    fn run(
        &self,
        gpu: &Gpu,
        device: &Device,
        repetitions: usize,
        limit: Duration,
    ) -> Result<(&'static str, Vec<Duration>)> {
        let run = self.product(gpu, self.tokens)?;
        run()?;
        let mut clock = "host";
        let mut times = Vec::new();
        let begin = Instant::now();
        while times.len() < repetitions && (times.is_empty() || begin.elapsed() < limit) {
            let start = Instant::now();
            let ((), kernels) = device.profile(&run)?;
            if kernels.is_empty() {
                times.push(start.elapsed());
            } else {
                clock = "device";
                times.push(kernels.iter().map(|kernel| kernel.time).sum());
            }
        }
        Ok((clock, times))
    }
}

const HEAD: &str = "\
| format | phase | rows | n x k | GB/s | best | GMAC/s | of copies |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
";

impl Row {
    /// A line of the table.
    fn markdown(&self) -> String {
        let Row { format, phase, rows, n, k, .. } = self;
        let (bytes, macs) = (self.gbytes_per_second, self.gmacs_per_second);
        let share = self.share_of_bandwidth.map_or("-".into(), |share| format!("{:.0}%", 100.0 * share));
        let speeds = format!("{:.2} | {:.2} | {:.2}", bytes.median, bytes.max, macs.median);
        format!("| {format} | {phase} | {rows} | {n} x {k} | {speeds} | {share} |\n")
    }

    /// What stands below the table.
    fn foot(&self) -> String {
        let Row { device, clock, copy_gbytes_per_second, .. } = self;
        format!(
            "\n{device}; GB/s of weights and GMAC/s: median, by the {clock}'s clock; \n\
            copies read and write {copy_gbytes_per_second:.2} GB/s\n"
        )
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    stdout().write_all(text.as_bytes())?;
    Ok(stdout().flush()?)
}
