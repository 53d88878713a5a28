//! [`Engine`]: a model, its tokenizer and one sequence of tokens. Open a file, then generate text, chat, or work
//! with tokens and logits.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::cpu::{Activations, Cpu};
use crate::backend::{Backend, Hidden};
use crate::cache::{self, CacheType, KvCache};
use crate::error::{Error, Result};
use crate::file::Weights;
use crate::model::{self, Model, Outputs};
use crate::sample::Sampling;
use crate::simd::Isa;
use crate::template::Template;
use crate::tokenizer::{Special, Tokenizer};

mod chat;
mod generation;
mod info;
mod session;

pub use chat::{Chat, Reply};
pub use generation::{Finish, Generation, Stats};
pub use info::Info;

/// The Austen model, which is part of every program that calls [`Engine::embedded`].
static AUSTEN: &[u8] = include_bytes!("../models/austen/austen-q8_0.gguf");

/// What runs a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// The best GPU that there is, or an error.
    Gpu,
    /// The best GPU, if it is no software device and passes its self-test, else the CPU.
    Auto,
}

/// How a model is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Tokens that fit in the conversation; by default what the model was trained for, at most 8192.
    pub context: Option<usize>,
    /// What runs the model.
    pub device: Device,
    /// Threads; by default one a core.
    pub threads: Option<usize>,
    /// Instruction set; by default the fastest one, or what `HADAL_ISA` says. Never changes a result.
    pub isa: Option<Isa>,
    /// What weights are multiplied with.
    pub activations: Activations,
    /// Whether weights are repacked for prompts, some rows at a time: faster, the same bits. See `Cpu::with_repack`.
    pub repack: bool,
    /// How keys and values are stored.
    pub cache: CacheType,
    /// Tokens of a prompt that are computed together; never changes a result.
    pub batch: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            context: None,
            device: Device::default(),
            threads: None,
            isa: None,
            activations: Activations::default(),
            repack: true,
            cache: CacheType::default(),
            batch: 256,
        }
    }
}

/// The context when none is asked for: long trained contexts would reserve gigabytes.
const DEFAULT_CONTEXT: usize = 8192;

/// Stops a computation from another thread: a Ctrl-C handler, a button.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Asks for a stop, which comes before the next token or batch.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was asked for; the question takes the request back.
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A sequence of tokens and what a cache holds of it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    tokens: Vec<u32>,
    cache: cache::Snapshot,
}

/// A model ready to run, with one sequence of tokens in its cache.
#[derive(Debug)]
pub struct Engine {
    model: Arc<dyn Model>,
    cpu: Cpu,
    /// What runs the model, unless that is the CPU.
    gpu: Option<(String, Arc<dyn Backend>)>,
    tokenizer: Tokenizer,
    template: Option<Template>,
    cache: KvCache,
    /// What the cache holds.
    tokens: Vec<u32>,
    /// One row.
    logits: Hidden,
    batch: usize,
    info: Info,
    /// Of the model, for sessions.
    fingerprint: String,
    interrupt: Interrupt,
}

impl Engine {
    /// Opens a GGUF file (any part of a split one) or a folder of safetensors with default [`Options`].
    ///
    /// # Errors
    /// The file can't be read, is damaged, or holds a model that this version doesn't run; the error says which.
    pub fn open(path: impl AsRef<Path>) -> Result<Engine> {
        Engine::open_with(path, &Options::default())
    }

    /// Opens a model with `options`.
    ///
    /// # Errors
    /// As [`Engine::open`]; [`Error::Option`] for an option outside its range.
    pub fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Engine> {
        Engine::from_weights(&Weights::open(path)?, options)
    }

    /// The Austen model: 4.5 million parameters trained on six novels, part of the library.
    ///
    /// # Errors
    /// [`Error::Option`] for an option outside its range.
    pub fn embedded(options: &Options) -> Result<Engine> {
        Engine::from_weights(&Weights::from_static("the embedded Austen model", AUSTEN)?, options)
    }

    /// Bytes of repacked weights and of what else the kernels for prompts keep: so far, and all there will be once a
    /// prompt of a whole batch was read.
    pub fn repack_bytes(&self) -> usize {
        self.cpu.scratch_bytes()
    }

    /// Builds an engine from an opened file.
    ///
    /// # Errors
    /// As [`Engine::open_with`].
    pub fn from_weights(weights: &Weights, options: &Options) -> Result<Engine> {
        let model = model::load(weights)?;
        let tokenizer = Tokenizer::from_weights(weights)?;
        let vocab = model.config().vocab;
        if tokenizer.vocab_len() > vocab {
            let message = format!("{} tokens, but the model has rows for {vocab}", tokenizer.vocab_len());
            return Err(Error::Tokenizer(message));
        }
        if options.batch == 0 {
            return Err(Error::option("--batch-size", "0 tokens: at least 1 is needed"));
        }
        let context = context(model.config().context, options.context)?;
        let cpu = Cpu::new(options.threads, options.isa, options.activations)?.with_repack(options.repack);
        let cache = KvCache::new(&model.cache_shape(), options.cache, context)?;
        Ok(Engine {
            info: Info::new(weights, model.config(), &cpu, &cache),
            fingerprint: session::fingerprint::model(weights),
            template: Template::from_metadata(&weights.metadata)?,
            tokens: Vec::with_capacity(context),
            logits: Hidden::empty(),
            batch: options.batch,
            interrupt: Interrupt::default(),
            model,
            gpu: gpu(options)?,
            cpu,
            tokenizer,
            cache,
        })
    }

    /// What was loaded, in numbers.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The model's chat template, if it has one.
    pub fn template(&self) -> Option<&Template> {
        self.template.as_ref()
    }

    /// Replaces the chat template.
    pub fn set_template(&mut self, template: Template) {
        self.template = Some(template);
    }

    /// A handle that stops generation from another thread.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// What runs the model: `cpu`, or the GPU's name.
    pub fn device(&self) -> &str {
        self.gpu.as_ref().map_or("cpu", |(name, _)| name)
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.cpu.isa()
    }

    /// Tokens in the cache.
    pub fn position(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets all but at most the first `tokens`. A sliding window may not be able to step back that little, and
    /// then more is forgotten: [`Engine::position`] tells.
    pub fn truncate(&mut self, tokens: usize) {
        let kept = self.cache.truncate(tokens);
        self.tokens.truncate(kept);
    }

    /// What the cache holds, to come back to.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if a GPU holds it.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let cache = self.cache.snapshot();
        let cache = cache.ok_or_else(|| Error::unsupported("a snapshot of the device", self.device(), ""))?;
        Ok(Snapshot { tokens: self.tokens.clone(), cache })
    }

    /// Comes back to `snapshot`, which is of an engine of the same model; the cache's kind too is as it was.
    ///
    /// # Errors
    /// [`Error::Numeric`] for a snapshot of another model; then the cache is empty.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.tokens.clear();
        self.cache.restore(self.cpu.isa(), &snapshot.cache)?;
        self.tokens.extend_from_slice(&snapshot.tokens);
        self.info.set_cache(&self.cache);
        Ok(())
    }

    /// Stores what the cache holds as `kind` from now on, as the tokens that follow.
    ///
    /// # Errors
    /// [`Error::Option`] for heads that can't be stored so; [`Error::Unsupported`] if a GPU holds the cache.
    pub fn convert_cache(&mut self, kind: CacheType) -> Result<()> {
        if self.gpu.is_some() && !self.cache.is_empty() {
            return Err(Error::unsupported("converting the cache of the device", self.device(), ""));
        }
        self.cache.convert(self.cpu.isa(), kind)?;
        self.info.set_cache(&self.cache);
        Ok(())
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.truncate(0);
    }

    /// Appends `tokens` and returns the logits (one a vocabulary entry) that follow the last one.
    ///
    /// # Errors
    /// [`Error::Context`] if they don't fit, [`Error::Tokenizer`] for an id outside the vocabulary or an empty list.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<&[f32]> {
        self.check(tokens)?;
        for batch in tokens.chunks(self.batch) {
            self.logits = self.forward(batch, Outputs::Last)?;
        }
        Ok(self.logits.values())
    }

    /// Appends one token and returns the logits that follow it.
    ///
    /// # Errors
    /// As [`Engine::prefill`].
    pub fn step(&mut self, token: u32) -> Result<&[f32]> {
        self.prefill(&[token])
    }

    /// Appends `tokens` and returns the logits after each: tokens × vocabulary. Memory: 4 bytes an element.
    ///
    /// # Errors
    /// As [`Engine::prefill`].
    pub fn score(&mut self, tokens: &[u32]) -> Result<Hidden> {
        self.check(tokens)?;
        let mut values = Vec::new();
        for batch in tokens.chunks(self.batch) {
            values.extend_from_slice(self.forward(batch, Outputs::All)?.values());
        }
        Ok(Hidden::new(values, self.model.config().vocab))
    }

    /// Continues `prompt`; control tokens spelled in it are plain text. Whatever the cache shares with the prompt
    /// is not computed again.
    ///
    /// # Errors
    /// [`Error::Context`] if the prompt doesn't fit, [`Error::Option`] for a setting outside its range.
    pub fn generate(&mut self, prompt: &str, sampling: &Sampling) -> Result<Generation<'_>> {
        let tokens = self.tokenizer.encode_prompt(prompt, Special::Text)?;
        self.generate_tokens(&tokens, sampling)
    }

    /// Continues a prompt given as tokens.
    ///
    /// # Errors
    /// As [`Engine::generate`].
    pub fn generate_tokens(&mut self, prompt: &[u32], sampling: &Sampling) -> Result<Generation<'_>> {
        let stream = self.tokenizer.stream_after(prompt);
        Generation::new(self, prompt, stream, sampling)
    }

    /// A conversation, from its beginning.
    pub fn chat(&mut self) -> Chat<'_> {
        Chat::new(self)
    }

    fn check(&self, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::Tokenizer("no tokens: an empty prompt has nothing to continue".into()));
        }
        let vocab = self.model.config().vocab;
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocab) {
            return Err(Error::Tokenizer(format!("token {token} is outside the vocabulary of {vocab}")));
        }
        let needed = self.tokens.len() + tokens.len();
        if needed > self.cache.context() {
            return Err(Error::Context { needed, limit: self.cache.context() });
        }
        Ok(())
    }

    /// Runs the model; if it fails the cache is as before.
    fn forward(&mut self, tokens: &[u32], outputs: Outputs) -> Result<Hidden> {
        let ops: &dyn Backend = match &self.gpu {
            Some((_, gpu)) => &**gpu,
            None => &self.cpu,
        };
        match self.model.forward(tokens, &mut self.cache, outputs, ops) {
            Ok(logits) => {
                self.tokens.extend_from_slice(tokens);
                Ok(logits)
            }
            Err(error) => {
                let position = self.tokens.len();
                self.truncate(position);
                Err(error)
            }
        }
    }
}

/// The GPU and its name, if one is asked for.
#[cfg(feature = "gpu")]
fn gpu(options: &Options) -> Result<Option<(String, Arc<dyn Backend>)>> {
    use crate::backend::gpu::{self, Gpu};
    if options.device == Device::Cpu {
        return Ok(None);
    }
    let open = || -> Result<(String, Arc<dyn Backend>)> {
        let adapters = gpu::adapters();
        let wanted = |adapter: &&gpu::Adapter| options.device == Device::Gpu || gpu::is_hardware(adapter);
        let adapter = adapters.iter().find(wanted);
        let adapter = adapter.ok_or_else(|| Error::option("--device", "gpu: none was found"))?;
        let device = Arc::new(gpu::Device::open(adapter, false)?);
        gpu::check::require(&device)?;
        Ok((device.name().to_string(), Arc::new(Gpu::new(device, options.activations))))
    };
    match open() {
        Ok(gpu) => Ok(Some(gpu)),
        Err(error) if options.device == Device::Auto => {
            tracing::warn!("the model runs on the CPU: {error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The GPU, if one is asked for.
#[cfg(not(feature = "gpu"))]
fn gpu(options: &Options) -> Result<Option<(String, Arc<dyn Backend>)>> {
    match options.device {
        Device::Cpu | Device::Auto => Ok(None),
        Device::Gpu => Err(Error::option("--device", "gpu: this program was built without GPUs")),
    }
}

/// The context to reserve: what was asked for, within what the model was trained for.
fn context(trained: usize, asked: Option<usize>) -> Result<usize> {
    match asked {
        None => Ok(trained.min(DEFAULT_CONTEXT)),
        Some(0) => Err(Error::option("--ctx-size", "0 tokens: at least 1 is needed")),
        Some(asked) if asked > trained => {
            let message =
                format!("{asked} tokens, but the model was trained for {trained}: give at most that");
            Err(Error::option("--ctx-size", message))
        }
        Some(asked) => Ok(asked),
    }
}
