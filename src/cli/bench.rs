//! `hadal bench`: how fast a model reads prompts and generates, as llama-bench measures it, and how fast kernels are.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use hadal::engine::Engine;
use hadal::{Error, Result};
use indicatif::ProgressBar;

use super::model::{FileArgs, NumericsArgs};
use super::{progress, value};
use kernels::KernelArgs;
use report::{Row, Spread};

mod gpu;
mod kernels;
mod report;

/// Measure how fast a model or a product of weights is
#[derive(Args, Debug)]
pub struct Bench {
    /// Prompt lengths to measure, like 512,128; 0: none
    #[arg(short = 'p', long, value_name = "LIST", default_value = "512", value_delimiter = ',',
        allow_negative_numbers = true, value_parser = value::whole)]
    n_prompt: Vec<usize>,

    /// Numbers of generated tokens to measure; 0: none
    #[arg(short = 'n', long, value_name = "LIST", default_value = "128", value_delimiter = ',',
        allow_negative_numbers = true, value_parser = value::whole)]
    n_gen: Vec<usize>,

    /// Tokens that are in the context already
    #[arg(short, long, value_name = "LIST", default_value = "0", value_delimiter = ',',
        allow_negative_numbers = true, value_parser = value::whole)]
    depth: Vec<usize>,

    /// Repetitions of each test, after one that does not count
    #[arg(short, long, value_name = "N", default_value = "5", allow_negative_numbers = true,
        value_parser = value::count)]
    repetitions: usize,

    /// Numbers of threads to measure [default: one a core]
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true,
        value_parser = value::count)]
    threads: Vec<usize>,

    /// How the results are printed
    #[arg(short, long, value_name = "FORM", default_value = "md")]
    output: Output,

    /// The same as --device gpu: measure on the best GPU, and what tokens cost it
    #[arg(long)]
    gpu: bool,

    #[command(flatten)]
    file: FileArgs,

    #[command(flatten)]
    numerics: NumericsArgs,

    #[command(flatten)]
    kernels: KernelArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Md,
    Json,
    Csv,
}

/// Runs every test with every number of threads and prints a row each.
pub fn bench(arguments: &Bench) -> anyhow::Result<()> {
    let threads = match arguments.threads.as_slice() {
        [] => vec![None],
        list => list.iter().copied().map(Some).collect(),
    };
    if arguments.kernels.kernels {
        let (numerics, repetitions) = (arguments.numerics(), arguments.repetitions);
        if !numerics.is_cpu() {
            return arguments.kernels.bench_gpu(
                &numerics.options(None, None)?,
                repetitions,
                arguments.output,
            );
        }
        return arguments.kernels.bench(&threads, numerics.repack(), repetitions, arguments.output);
    }
    let tests = arguments.tests();
    let progress = progress::bar(tests.len() * threads.len() * (arguments.repetitions + 1), progress::STEPS)?;
    let mut rows = Vec::new();
    for threads in threads {
        let start = Instant::now();
        let mut engine = arguments.open(&tests, threads)?;
        let load = start.elapsed();
        let gpu = gpu::Meter::of(&engine)?;
        for test in &tests {
            progress.set_message(test.name());
            let mut row = measure(&mut engine, test, load, arguments.repetitions, &progress)?;
            row.gpu = gpu.as_ref().map(|gpu| gpu.measure(&mut engine, test, &row)).transpose()?;
            rows.push(row);
        }
    }
    progress.finish_and_clear();
    match arguments.output {
        Output::Md => report::print_markdown(&rows),
        Output::Json => report::print_json(&rows),
        Output::Csv => report::print_csv(&rows),
    }
}

impl Bench {
    fn numerics(&self) -> NumericsArgs {
        if self.gpu { self.numerics.clone().on_gpu() } else { self.numerics.clone() }
    }

    /// Prompts first, then generation, for each depth.
    fn tests(&self) -> Vec<Test> {
        let lengths = |kind, list: &[usize], depth| -> Vec<Test> {
            list.iter().filter(|&&tokens| tokens > 0).map(|&tokens| Test { kind, tokens, depth }).collect()
        };
        let tests = self.depth.iter().flat_map(|&depth| {
            let mut tests = lengths(Kind::Prompt, &self.n_prompt, depth);
            tests.extend(lengths(Kind::Generate, &self.n_gen, depth));
            tests
        });
        tests.collect()
    }

    /// Opens the model with a context that holds the largest test.
    fn open(&self, tests: &[Test], threads: Option<usize>) -> Result<Engine> {
        let context = tests.iter().map(|test| test.depth.saturating_add(test.tokens)).max();
        self.file.open(&self.numerics().options(context, threads)?).map_err(|error| match error {
            // The engine names the flag of `run`.
            Error::Option { name: "--ctx-size", message } => {
                Error::option("--n-prompt, --n-gen or --depth", message)
            }
            other => other,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// All tokens at once.
    Prompt,
    /// One after the other.
    Generate,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Test {
    kind: Kind,
    tokens: usize,
    depth: usize,
}

impl Test {
    /// As llama-bench writes it: `pp512`, `tg128 @ d1024`.
    fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Prompt => "pp",
            Kind::Generate => "tg",
        };
        let depth = if self.depth > 0 { format!(" @ d{}", self.depth) } else { String::new() };
        format!("{kind}{}{depth}", self.tokens)
    }

    /// Any tokens do, the work is the same; the same ones every time: those of the context, then those to measure.
    fn random_tokens(&self, engine: &Engine) -> Vec<u32> {
        let mut rng = fastrand::Rng::with_seed(0);
        let vocab = engine.tokenizer().vocab_len() as u32;
        (0..self.depth + self.tokens).map(|_| rng.u32(0..vocab)).collect()
    }

    /// Leaves the context's tokens in the cache.
    fn fill(&self, engine: &mut Engine, tokens: &[u32]) -> Result<()> {
        engine.reset();
        if self.depth > 0 { engine.append(&tokens[..self.depth]) } else { Ok(()) }
    }

    /// Runs once: the time of all tokens, and of the first result.
    fn run(&self, engine: &mut Engine, tokens: &[u32]) -> Result<(Duration, Duration)> {
        let measured = &tokens[self.depth..];
        let start = Instant::now();
        match self.kind {
            Kind::Prompt => {
                engine.append(measured)?;
                Ok((start.elapsed(), start.elapsed()))
            }
            Kind::Generate => {
                let mut first = None;
                for token in measured {
                    engine.append(std::slice::from_ref(token))?;
                    first.get_or_insert_with(|| start.elapsed());
                }
                Ok((start.elapsed(), first.unwrap_or_default()))
            }
        }
    }
}

/// Runs `test` once to warm up, then `repetitions` times.
fn measure(
    engine: &mut Engine,
    test: &Test,
    load: Duration,
    repetitions: usize,
    progress: &ProgressBar,
) -> Result<Row> {
    let tokens = test.random_tokens(engine);
    test.fill(engine, &tokens)?;
    let (_, cold) = test.run(engine, &tokens)?;
    progress.inc(1);
    let (mut speeds, mut firsts) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        test.fill(engine, &tokens)?;
        let (time, first) = test.run(engine, &tokens)?;
        speeds.push(test.tokens as f64 / time.as_secs_f64());
        firsts.push(milliseconds(first));
        progress.inc(1);
    }
    let info = engine.info();
    Ok(Row {
        model: info.name.clone(),
        format: info.format.clone(),
        weight_bytes: info.weight_bytes,
        parameters: info.parameters,
        device: engine.device().to_string(),
        threads: info.threads,
        isa: info.isa.name(),
        cache: info.cache.to_string(),
        cache_token_bytes: info.cache_token_bytes,
        cache_bytes: info.cache_bytes,
        test: test.name(),
        repetitions,
        tokens_per_second: Spread::of(speeds),
        load_ms: milliseconds(load),
        first_token_ms: Spread::of(firsts).mean,
        cold_first_token_ms: milliseconds(cold),
        gpu_layers: engine.gpu_layers(),
        compile_ms: compile_time(engine).map(milliseconds),
        peak_rss_bytes: report::peak_memory(),
        repack_bytes: engine.repack_bytes(),
        gpu: None,
    })
}

/// What compiling the GPU's kernels took since the model was opened; `None` on the CPU.
#[cfg(feature = "gpu")]
fn compile_time(engine: &Engine) -> Option<Duration> {
    engine.gpu().map(|device| device.compile_stats().time)
}

#[cfg(not(feature = "gpu"))]
fn compile_time(_: &Engine) -> Option<Duration> {
    None
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_named_as_in_llama_bench() {
        let test = |kind, tokens, depth| Test { kind, tokens, depth };
        assert_eq!(test(Kind::Prompt, 512, 0).name(), "pp512");
        assert_eq!(test(Kind::Generate, 128, 1024).name(), "tg128 @ d1024");
    }
}
