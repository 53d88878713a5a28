//! `hadal bench --kernels`: how fast the products of every format are, next to how fast memory can be read.

use std::hint::black_box;
use std::time::{Duration, Instant};

use clap::Args;
use hadal::backend::cpu::{Activations, Cpu};
use hadal::backend::{Backend, Hidden, Linear, Source};
use hadal::quant::{FORMATS, Format};
use hadal::simd::Isa;
use hadal::{Error, Result};

use super::report::Spread;
use super::{Output, report};
use crate::cli::progress;
use crate::cli::value::{self, Variant};
use shape::Shape;
use table::Row;

mod bandwidth;
#[cfg(feature = "gpu")]
mod gpu;
mod shape;
mod table;

/// Flags of the kernel bench.
#[derive(Args, Debug)]
#[command(next_help_heading = "Kernels")]
pub struct KernelArgs {
    /// Measure the products of weights and activations, instead of a model
    #[arg(long, conflicts_with_all = ["n_prompt", "n_gen", "depth", "activations", "kv", "cache_type_k", "cache_type_v"])]
    pub kernels: bool,

    /// Formats of the weights [default: all]
    #[arg(long = "format", value_name = "LIST", value_delimiter = ',', requires = "kernels",
        value_parser = value::weight_format)]
    formats: Vec<&'static Format>,

    /// Instruction sets, measured in turn [default: all of this CPU]
    #[arg(long = "isa", value_name = "LIST", value_delimiter = ',', requires = "kernels",
        value_parser = value::isa)]
    isas: Vec<Isa>,

    /// Two instruction sets, or packs (panel, none), measured in turn, and the ratio of their speeds
    #[arg(long, value_name = "A,B", value_delimiter = ',', requires = "kernels", conflicts_with = "isas",
        value_parser = value::variant)]
    compare: Vec<Variant>,

    /// Tokens of the prefill phase; decode is 1 token
    #[arg(long, value_name = "N", default_value = "512", requires = "kernels", allow_negative_numbers = true,
        value_parser = value::count)]
    rows: usize,

    /// Outputs and inputs of the weights' matrix
    #[arg(long, value_name = "NxK", default_value = "2048x2048", requires = "kernels",
        value_parser = shape::shape)]
    shape: Shape,

    /// Seconds after which a product is measured no more, however few runs there were
    #[arg(long, value_name = "S", default_value = "5", requires = "kernels", allow_negative_numbers = true,
        value_parser = value::count)]
    seconds: usize,

    /// Multiply with one matrix again and again, which caches may hold, instead of reading many from memory
    #[arg(long, requires = "kernels")]
    cached: bool,
}

impl KernelArgs {
    /// Measures everything with every number of threads and prints a row each.
    pub fn bench(
        &self,
        threads: &[Option<usize>],
        repack: bool,
        repetitions: usize,
        output: Output,
    ) -> anyhow::Result<()> {
        let variants = self.variants(repack)?;
        let formats = self.formats()?;
        let progress = progress::bar(threads.len() * formats.len() * 2, progress::STEPS)?;
        let mut rows = Vec::new();
        for &threads in threads {
            progress.set_message("memory");
            let cpu = |variant: &Variant| -> Result<Cpu> {
                let cpu = Cpu::new(threads, Some(variant.isa), Activations::Quantized)?;
                Ok(cpu.with_repack(variant.repack))
            };
            let cpus = variants.iter().map(cpu).collect::<Result<Vec<_>>>()?;
            let bandwidth = bandwidth::read(cpus[0].threads())?;
            for &format in &formats {
                let matrices = self.shape.matrices(format, self.cached)?;
                // Prefill multiplies each weight so often that it does not matter where it comes from.
                let decode = Test { phase: "decode", tokens: 1, matrices: &matrices, uncached: !self.cached };
                let prefill =
                    Test { phase: "prefill", tokens: self.rows, matrices: &matrices[..1], uncached: false };
                for test in [decode, prefill] {
                    progress.set_message(format!("{} {}", format.name, test.phase));
                    rows.extend(self.measure(&test, &cpus, repetitions, bandwidth)?);
                    progress.inc(1);
                }
            }
        }
        progress.finish_and_clear();
        print(&rows, output)
    }

    /// # Errors
    /// [`Error::Option`] if `--compare` does not name two.
    fn variants(&self, repack: bool) -> Result<Vec<Variant>> {
        let of = |isa| Variant { isa, repack };
        match (self.compare.as_slice(), self.isas.as_slice()) {
            ([], []) => Ok(Isa::available().map(of).collect()),
            ([], isas) => Ok(isas.iter().copied().map(of).collect()),
            (both @ [_, _], _) => Ok(both.to_vec()),
            (list, _) => {
                Err(Error::option("--compare", format!("{} names, but two are compared", list.len())))
            }
        }
    }

    /// The formats to measure, which the shape is made for.
    fn formats(&self) -> Result<Vec<&'static Format>> {
        let chosen = |format: &Format| {
            self.formats.is_empty() || self.formats.iter().any(|row| std::ptr::eq(*row, format))
        };
        let measured = FORMATS.iter().copied().filter(|format| chosen(format) && format.dot.is_some());
        measured.map(|format| self.shape.check(format, self.rows).map(|()| format)).collect()
    }

    /// How long a product is measured.
    fn limit(&self) -> Duration {
        Duration::from_secs(self.seconds as u64)
    }

    /// A row for each of `cpus`, which take turns: what else the machine does hits all alike.
    fn measure(&self, test: &Test, cpus: &[Cpu], repetitions: usize, bandwidth: f64) -> Result<Vec<Row>> {
        let mut cpus: Vec<_> = cpus.iter().map(|cpu| (cpu, test.isa(cpu), Vec::new())).collect();
        if self.compare.is_empty() {
            // A format without code for an instruction set runs the next slower one's.
            cpus.dedup_by_key(|(_, isa, _)| *isa);
        }
        for (cpu, ..) in &cpus {
            test.run(cpu)?;
        }
        let limit = self.limit();
        let start = Instant::now();
        for _ in 0..repetitions {
            for (cpu, _, times) in &mut cpus {
                times.push(test.run(cpu)?);
            }
            if start.elapsed() > limit {
                break;
            }
        }
        let mut rows: Vec<_> =
            cpus.into_iter().map(|(cpu, isa, times)| self.row(test, cpu, isa, &times, bandwidth)).collect();
        if let ([_, _], [a, b]) = (self.compare.as_slice(), rows.as_mut_slice()) {
            let ratio = a.gbytes_per_second.median / b.gbytes_per_second.median;
            (a.ratio, b.ratio) = (Some(ratio), Some(1.0 / ratio));
        }
        Ok(rows)
    }

    fn row(&self, test: &Test, cpu: &Cpu, isa: Isa, times: &[Duration], bandwidth: f64) -> Row {
        let Shape { outputs, inputs } = self.shape;
        let per_second = |work: usize| {
            let giga = (work * test.matrices.len()) as f64 / 1e9;
            Spread::of(times.iter().map(|time| giga / time.as_secs_f64()).collect())
        };
        let gbytes_per_second = per_second(test.matrices[0].weight.bytes().len());
        Row {
            format: test.format().name,
            isa: isa.name(),
            pack: test.pack(cpu),
            phase: test.phase,
            threads: cpu.threads(),
            rows: test.tokens,
            n: outputs,
            k: inputs,
            gbytes_per_second,
            gmacs_per_second: per_second(outputs * inputs * test.tokens),
            read_gbytes_per_second: bandwidth,
            share_of_bandwidth: test.uncached.then_some(gbytes_per_second.max / bandwidth),
            ratio: None,
        }
    }
}

#[cfg(not(feature = "gpu"))]
impl KernelArgs {
    pub fn bench_gpu(&self, _: &hadal::Options, _: usize, _: Output) -> anyhow::Result<()> {
        Err(Error::option("--device", "this program was built without GPUs").into())
    }
}

fn print(rows: &[Row], output: Output) -> anyhow::Result<()> {
    match output {
        Output::Md => table::print_markdown(rows),
        Output::Json => report::print_json(rows),
        Output::Csv => report::print_csv(rows),
    }
}

/// A format's product with one number of tokens.
struct Test<'a> {
    phase: &'static str,
    tokens: usize,
    /// At least one, all of one format and shape.
    matrices: &'a [Linear],
    /// Whether they are read from memory.
    uncached: bool,
}

impl Test<'_> {
    fn format(&self) -> &'static Format {
        self.matrices[0].weight.format()
    }

    /// The instruction set that `cpu` multiplies this format with.
    fn isa(&self, cpu: &Cpu) -> Isa {
        let dot = || self.format().row_dot(cpu.isa()).map_or(Isa::Scalar, |dot| dot.isa());
        cpu.panel(self.format(), self.tokens).map_or_else(dot, |panel| panel.isa())
    }

    /// How weights lie when they are multiplied: as stored, or interleaved for the time of the product.
    fn pack(&self, cpu: &Cpu) -> &'static str {
        if cpu.panel(self.format(), self.tokens).is_some() { "panel" } else { "none" }
    }

    /// The time of one product with each matrix.
    fn run(&self, cpu: &Cpu) -> Result<Duration> {
        let mut rng = fastrand::Rng::with_seed(1);
        let columns = self.matrices[0].weight.columns();
        let values = (0..self.tokens * columns).map(|_| rng.f32() - 0.5).collect();
        let input = Hidden::new(values, columns);
        let start = Instant::now();
        multiply(cpu, &input, self.matrices)?;
        Ok(start.elapsed())
    }
}

/// All matrices with the same input, one after the other, as a model's pass multiplies.
fn multiply(cpu: &Cpu, input: &Hidden, matrices: &[Linear]) -> Result<()> {
    for matrix in matrices {
        let mut out = [Hidden::empty()];
        cpu.linear(Source::Plain(input), &[matrix], &mut out)?;
        black_box(out);
    }
    Ok(())
}
