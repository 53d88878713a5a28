//! [`Engine`]: a model, its tokenizer and one sequence of tokens. Open a file, then generate text, chat, or work
//! with tokens and logits.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::cpu::Cpu;
use crate::backend::now;
use crate::backend::{Backend, Hidden};
use crate::cache::{self, CacheType, KvCache, LayerCache, LayerState};
use crate::error::{Error, Result};
use crate::file::Weights;
use crate::model::{Model, Outputs, Split};
use crate::sample::Sampling;
use crate::simd::Isa;
use crate::template::Template;
use crate::tokenizer::{Special, Tokenizer};

mod chat;
mod generation;
#[cfg(feature = "gpu")]
mod gpu;
mod info;
mod options;
mod placement;
mod session;

pub use chat::{Chat, Reply};
pub use generation::{Finish, Generation, Stats};
#[cfg(feature = "gpu")]
pub use gpu::open as open_gpu;
pub use info::Info;
pub use options::{Device, Options};
pub use placement::GpuLayers;
use placement::{Offload, Placed, of_layer, place};

/// The Austen model, which is part of every program that calls [`Engine::embedded`].
static AUSTEN: &[u8] = include_bytes!("../models/austen/austen-q8_0.gguf");

/// Stops a computation from another thread: a Ctrl-C handler, a button.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Asks for a stop, which comes before the next token or batch.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was asked for; the question takes the request back.
    pub fn take(&self) -> bool {
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
    /// What runs layers of the model beside the CPU.
    gpu: Option<Offload>,
    /// Whether the CPU takes over if the GPU fails.
    replaceable: bool,
    tokenizer: Tokenizer,
    template: Option<Template>,
    cache: KvCache,
    /// What the cache holds.
    tokens: Vec<u32>,
    /// One row: what follows the last token. Empty if `best` is all that was read.
    logits: Hidden,
    /// Tokens and logits, as many as were asked for, best first; empty if all `logits` are here.
    best: Vec<(u32, f32)>,
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
        self.cpu.repack_bytes()
    }

    /// Bytes that are kept for computing the next tokens, beside the weights and the cache: so far.
    pub fn scratch_bytes(&self) -> u64 {
        self.cpu.scratch_bytes() + self.gpu.as_ref().map_or(0, |gpu| gpu.ops.scratch_bytes())
    }

    /// Builds an engine from an opened file.
    ///
    /// # Errors
    /// As [`Engine::open_with`].
    pub fn from_weights(weights: &Weights, options: &Options) -> Result<Engine> {
        now(Engine::load(weights, options))
    }

    /// As [`Engine::from_weights`], where nothing may wait for a GPU: in a browser.
    ///
    /// # Errors
    /// As [`Engine::open_with`].
    pub async fn load(weights: &Weights, options: &Options) -> Result<Engine> {
        Engine::build(weights, options, async |placed, cpu| place(placed, weights, options, cpu).await).await
    }

    /// As [`Engine::from_weights`], on a device that others may use, too.
    ///
    /// # Errors
    /// As [`Engine::open_with`]; [`Error::GpuMemory`] if the model doesn't fit.
    #[cfg(feature = "gpu")]
    pub fn on_device(
        weights: &Weights,
        options: &Options,
        device: &Arc<crate::backend::gpu::Device>,
    ) -> Result<Engine> {
        let offload =
            async |placed: &mut Placed, cpu: &Cpu| gpu::offload(placed, weights, options, cpu, device).await;
        now(Engine::build(weights, options, offload))
    }

    async fn build(
        weights: &Weights,
        options: &Options,
        place: impl AsyncFnOnce(&mut Placed, &Cpu) -> Result<()>,
    ) -> Result<Engine> {
        let mut placed = Placed::new(weights, options)?;
        let tokenizer = Tokenizer::from_weights(weights)?;
        let vocab = placed.model.config().vocab;
        if tokenizer.vocab_len() > vocab {
            let message = format!("{} tokens, but the model has rows for {vocab}", tokenizer.vocab_len());
            return Err(Error::Tokenizer(message));
        }
        if options.batch == 0 {
            return Err(Error::option("--batch-size", "0 tokens: at least 1 is needed"));
        }
        let cpu = Cpu::new(options.threads, options.isa, options.activations)?.with_repack(options.repack);
        place(&mut placed, &cpu).await?;
        let Placed { model, cache, gpu } = placed;
        // The widest rows are those of the feed-forward, gate and input side by side.
        let most = gpu.as_ref().map_or(usize::MAX, |gpu| gpu.ops.most_rows(2 * model.config().inner));
        Ok(Engine {
            info: Info::new(weights, model.config(), &cpu, &cache),
            fingerprint: session::fingerprint::model(weights),
            replaceable: options.device == Device::Auto,
            template: Template::from_metadata(&weights.metadata)?,
            tokens: Vec::with_capacity(cache.context()),
            logits: Hidden::empty(),
            best: Vec::new(),
            batch: options.batch.min(most).max(1),
            interrupt: Interrupt::default(),
            model,
            gpu,
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

    /// Runs the model with `backend`, which is called `name`, from now on.
    pub fn set_backend(&mut self, name: &str, backend: Arc<dyn Backend>) {
        self.gpu = Some(Offload { name: name.into(), ops: backend, first: 0 });
        self.reset();
    }

    /// A handle that stops generation from another thread.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// What runs the model: `cpu`, or the GPU's name.
    pub fn device(&self) -> &str {
        self.gpu.as_ref().map_or("cpu", |gpu| &gpu.name)
    }

    /// The GPU that runs the model, to count and time what it does.
    #[cfg(feature = "gpu")]
    pub fn gpu(&self) -> Option<Arc<crate::backend::gpu::Device>> {
        self.gpu.as_ref().and_then(|gpu| gpu.ops.gpu()).cloned()
    }

    /// How many of the model's layers run on the GPU.
    pub fn gpu_layers(&self) -> usize {
        self.gpu.as_ref().map_or(0, |gpu| self.info.layers - gpu.first)
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
    /// What a GPU says that holds it.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let (gpu, cpu) = (self.gpu.as_ref(), &self.cpu);
        let cache = self.cache.snapshot(|index, layer| of_layer(gpu, cpu, index).stored(layer))?;
        Ok(Snapshot { tokens: self.tokens.clone(), cache })
    }

    /// Comes back to `snapshot`, which is of an engine of the same model; the cache's kind too is as it was.
    ///
    /// # Errors
    /// [`Error::Numeric`] for a snapshot of another model; then the cache is empty.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.tokens.clear();
        let (gpu, cpu) = (self.gpu.as_ref(), &self.cpu);
        let store = |index, layer: &mut LayerCache, state: &LayerState<&[u8]>| {
            of_layer(gpu, cpu, index).store(layer, state)
        };
        self.cache.restore(cpu.isa(), &snapshot.cache, store)?;
        self.tokens.extend_from_slice(&snapshot.tokens);
        self.info.set_cache(&self.cache);
        Ok(())
    }

    /// Stores what the cache holds as `kind` from now on, as the tokens that follow.
    ///
    /// # Errors
    /// [`Error::Option`] for heads that can't be stored so; what a GPU says that holds it.
    pub fn convert_cache(&mut self, kind: CacheType) -> Result<()> {
        let (gpu, cpu) = (self.gpu.as_ref(), &self.cpu);
        self.cache.convert(kind, |index, layer| of_layer(gpu, cpu, index).convert(layer, kind))?;
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
        now(self.extend(tokens, None))?;
        Ok(self.logits.values())
    }

    /// As [`Engine::prefill`], where nothing may wait for a GPU: in a browser.
    ///
    /// # Errors
    /// As [`Engine::prefill`].
    pub async fn read(&mut self, tokens: &[u32]) -> Result<&[f32]> {
        self.extend(tokens, None).await?;
        Ok(self.logits.values())
    }

    /// Appends `tokens` without reading the logits that follow, for measurements: returns when they could be read.
    ///
    /// # Errors
    /// As [`Engine::prefill`].
    pub fn append(&mut self, tokens: &[u32]) -> Result<()> {
        now(self.extend(tokens, Some(1)))
    }

    /// Appends `tokens` and reads the `best` logits that follow, or all of them: where it makes no difference, too.
    async fn extend(&mut self, tokens: &[u32], best: Option<usize>) -> Result<()> {
        self.check(tokens)?;
        let batches = tokens.len().div_ceil(self.batch);
        for (index, batch) in tokens.chunks(self.batch).enumerate() {
            // What follows an inner batch is known.
            let best = if index + 1 < batches { Some(1) } else { best };
            let read = async |logits: Hidden, ops: &dyn Backend| {
                let best = match best {
                    Some(count) => ops.finding_best(&logits, count).await?,
                    None => None,
                };
                match best {
                    Some(best) => Ok((Hidden::empty(), best)),
                    None => Ok((ops.fetching(logits).await?, Vec::new())),
                }
            };
            (self.logits, self.best) = self.forward(batch, Outputs::Last, read).await?;
        }
        Ok(())
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
        let vocab = self.model.config().vocab;
        let most = self.gpu.as_ref().map_or(usize::MAX, |gpu| gpu.ops.most_rows(vocab));
        for batch in tokens.chunks(self.batch.min(most).max(1)) {
            let read = async |logits: Hidden, ops: &dyn Backend| ops.fetching(logits).await;
            let logits = now(self.forward(batch, Outputs::All, read))?;
            values.extend_from_slice(logits.values());
        }
        Ok(Hidden::new(values, vocab))
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

    /// Runs the model and reads the logits; if it fails the cache is as before. Where the CPU may take over from a GPU that fails, it does.
    async fn forward<T>(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        read: impl AsyncFn(Hidden, &dyn Backend) -> Result<T>,
    ) -> Result<T> {
        match self.run(tokens, outputs, &read).await {
            Err(error @ (Error::Gpu { .. } | Error::GpuMemory { .. } | Error::Shader { .. }))
                if self.replaceable && self.gpu.is_some() =>
            {
                tracing::warn!("the model runs on the CPU from here on: {error}");
                self.leave_gpu().await?;
                self.run(tokens, outputs, &read).await
            }
            other => other,
        }
    }

    /// Goes on without the GPU: what its cache held is computed again.
    async fn leave_gpu(&mut self) -> Result<()> {
        self.gpu = None;
        self.cache = KvCache::new(&self.model.cache_shape(), self.cache.kind(), self.cache.context())?;
        for batch in std::mem::take(&mut self.tokens).chunks(self.batch) {
            self.run(batch, Outputs::Last, &async |_: Hidden, _: &dyn Backend| Ok(())).await?;
        }
        Ok(())
    }

    async fn run<T>(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        read: &impl AsyncFn(Hidden, &dyn Backend) -> Result<T>,
    ) -> Result<T> {
        let on = self.gpu.as_ref().map_or(Split::none(&self.cpu), |gpu| gpu.split(&self.cpu));
        let computed = self.model.forward(tokens, &mut self.cache, outputs, on);
        let read = match computed {
            Ok(logits) => read(logits, on.rest).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(read) => {
                self.tokens.extend_from_slice(tokens);
                Ok(read)
            }
            Err(error) => {
                let position = self.tokens.len();
                self.truncate(position);
                Err(error)
            }
        }
    }
}
