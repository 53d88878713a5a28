//! Quantizing with a text, layer by layer: what the matrices of a layer read of the text is summed up ([`Products`]), its
//! matrices are encoded with feedback of errors, and the layer is run again as it is now, so that the next one is
//! calibrated with what it will see. In memory are one layer, its sums and the activations of the text.
//!
//! After each step the made tensors and the activations are in a folder beside the target, with a journal: what was stopped goes
//! on there. The result is the source with other tensors, which [`Run`](super::Run) or [`Folder`](super::folder::Folder) write.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;

use super::collect::Collector;
use super::guard::{Encoder, Fallback};
use super::hessian::Products;
use super::run::{Rows, named};
use super::state::State;
use super::{Imatrix, Method, Start};
use crate::backend::cpu::{Activations, Cpu};
use crate::backend::{Hidden, Span};
use crate::cache::{CacheType, KvCache};
use crate::error::{Error, Result};
use crate::file::{Entry, Part, Weights};
use crate::model::{self, Model};
use crate::quant::Format;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Calibration<'a> {
    /// How errors are made up for.
    pub method: Method,
    /// What the text is called.
    pub text: String,
    /// Tokens of the text, cut to windows.
    pub windows: Vec<Vec<u32>>,
    /// The formats that matrices get, by name.
    pub formats: IndexMap<String, &'static Format>,
    /// Importance of columns, for the scales of formats that heed it.
    pub imatrix: Option<&'a Imatrix>,
}

/// A matrix that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// Its name in the file.
    pub name: String,
    /// Why its errors are not made up for, if they are not.
    pub fallback: Option<Fallback>,
    /// Inputs that were not looked at, as they are not finite.
    pub skipped: usize,
}

/// The work: the embedding, each layer, the output matrix. Dropped before the last step it can be resumed.
#[derive(Debug)]
pub struct Calibrated<'a> {
    calibration: Calibration<'a>,
    source: &'a Weights,
    /// The source, in which what is made takes the place of what was there.
    weights: Weights,
    model: Arc<dyn Model>,
    collector: Collector,
    /// A window's tokens × hidden, after the layers that are done.
    hidden: Vec<Hidden>,
    cache: KvCache,
    state: State,
}

impl<'a> Calibrated<'a> {
    /// Begins with what becomes `target`, or goes on.
    ///
    /// # Errors
    /// [`Error::File`] if another source, or one with other settings, was begun there and is to be resumed; those of
    /// [`model::load`]; [`Error::Io`].
    pub fn new(
        source: &'a Weights,
        calibration: Calibration<'a>,
        target: &Path,
        threads: Option<usize>,
        start: Start,
    ) -> Result<Calibrated<'a>> {
        let mut weights = source.clone();
        // What is put together when it is read is to be gone with its layer.
        weights.tensors.values_mut().for_each(|entry| entry.data = entry.data.unshared());
        let model = model::load(&weights)?;
        let context = calibration.windows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let cache = KvCache::new(&model.cache_shape(), CacheType::default(), context)?;
        let state = State::new(target, source, &calibration, start)?;
        let mut work = Calibrated {
            calibration,
            source,
            weights,
            model,
            collector: Collector::with_products(Cpu::new(threads, None, Activations::Float)?),
            hidden: Vec::new(),
            cache,
            state,
        };
        for step in 0..work.state.done() {
            work.take(step)?;
        }
        if work.state.done() > 0 {
            let rows = work.calibration.windows.iter().map(Vec::len);
            work.hidden = work.state.hidden(rows, work.model.config().hidden)?;
        }
        Ok(work)
    }

    /// Steps in all: the embedding, layers, the output matrix.
    pub fn steps(&self) -> usize {
        self.model.config().layers + 2
    }

    /// Steps that are done.
    pub fn done(&self) -> usize {
        self.state.done()
    }

    /// How often `tick` is called during `steps`.
    pub fn ticks(&self, steps: Range<usize>) -> usize {
        let windows = self.calibration.windows.len();
        let of_step = |step: usize| {
            let runs = if step == 0 || step + 1 == self.steps() { 1 } else { 2 };
            runs * windows + self.names(step).len()
        };
        steps.map(of_step).sum()
    }

    /// Does the next step. `tick` is called before each window and matrix, and may stop the work with an error. After any error what
    /// is in memory is of no use: [`Calibrated::new`] goes on with the last step that was whole.
    ///
    /// # Errors
    /// Those of `tick`; [`Error::Tensor`] for weights that are not finite; [`Error::Io`].
    pub fn step(&mut self, mut tick: impl FnMut(&str) -> Result<()>) -> Result<Vec<Made>> {
        let step = self.done();
        let last = step + 1 == self.steps();
        if step > 0 {
            self.look(step, &mut tick)?;
        }
        let sums = self.collector.hessians();
        let mut encoder = Encoder::new(self.collector.cpu().pool(), self.calibration.method);
        let (mut made, mut encoded) = (Vec::new(), Vec::new());
        for name in self.names(step) {
            tick(&name)?;
            let products = sums.of(&name);
            let (bytes, fallback) = self.encode(&mut encoder, &name, products)?;
            // That the embedding is encoded as it is was never in question.
            let fallback = fallback.filter(|_| step > 0);
            let skipped = products.map_or(0, |products| products.skipped);
            made.push(Made { name: name.clone(), fallback, skipped });
            encoded.push(bytes);
        }
        drop((encoder, sums));
        self.state.put(step, encoded.iter().map(|bytes| &bytes[..]))?;
        drop(encoded);
        self.take(step)?;
        if !last {
            self.run(step, &mut tick)?;
        }
        self.state.finish_step(&self.hidden)?;
        Ok(made)
    }

    /// The source with what was made. It is on the disk until [`Calibrated::remove`] is called.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Removes what was kept to be resumed, when all of it was written elsewhere.
    pub fn remove(self) {
        self.state.remove();
    }

    /// Matrices of a step.
    fn names(&self, step: usize) -> Vec<String> {
        let own = |name: &&String| match (step, self.steps() - 1 - step) {
            (0, _) => *name == "token_embd.weight",
            // Where there is no output matrix it is the embedding.
            (_, 0) if self.weights.tensors.contains_key("output.weight") => *name == "output.weight",
            (_, 0) => *name == "token_embd.weight",
            _ => name.starts_with(&format!("blk.{}.", step - 1)),
        };
        self.calibration.formats.keys().filter(own).cloned().collect()
    }

    /// Names, and how many bytes each will have.
    fn shapes(&self, step: usize) -> Vec<(String, usize)> {
        let bytes = |name: &String| {
            let (entry, format) = (&self.weights.tensors[name], self.calibration.formats[name]);
            entry.shape.iter().product::<usize>() / format.block_len * format.block_bytes
        };
        self.names(step).into_iter().map(|name| (name.clone(), bytes(&name))).collect()
    }

    /// Sums up what the matrices of a step read.
    fn look(&mut self, step: usize, tick: &mut impl FnMut(&str) -> Result<()>) -> Result<()> {
        for window in 0..self.hidden.len() {
            tick("calibration")?;
            let known = &self.hidden[window];
            let mut x = Hidden::new(known.values().to_vec(), known.columns());
            if step + 1 == self.steps() {
                self.model.logits(&x, &self.collector)?;
            } else {
                self.cache.truncate(0);
                let at = Span { start: 0, len: x.rows() };
                self.model.decode(step - 1..step, &mut x, at, &mut self.cache, &self.collector)?;
            }
        }
        Ok(())
    }

    /// Runs a step with what was made of it.
    fn run(&mut self, step: usize, tick: &mut impl FnMut(&str) -> Result<()>) -> Result<()> {
        for window in 0..self.calibration.windows.len() {
            tick("calibration")?;
            let cpu = self.collector.cpu();
            if step == 0 {
                let x = self.model.embed(&self.calibration.windows[window], cpu)?;
                // Not of the backend's own memory, of which it would keep as much.
                self.hidden.push(Hidden::new(x.values().to_vec(), x.columns()));
                continue;
            }
            self.cache.truncate(0);
            let x = &mut self.hidden[window];
            let at = Span { start: 0, len: x.rows() };
            self.model.decode(step - 1..step, x, at, &mut self.cache, cpu)?;
        }
        Ok(())
    }

    fn encode(
        &self,
        encoder: &mut Encoder,
        name: &str,
        products: Option<&Products>,
    ) -> Result<(Vec<u8>, Option<Fallback>)> {
        let Calibration { imatrix, formats, .. } = &self.calibration;
        let entry = &self.source.tensors[name];
        let columns = entry.shape.last().copied().unwrap_or(1);
        let unknown = || Error::tensor(name, format!("{} can't be decoded", entry.type_name));
        let rows = Rows {
            from: entry.format.ok_or_else(unknown)?,
            to: formats[name],
            columns,
            count: entry.shape.iter().product::<usize>() / columns.max(1),
            importance: imatrix.and_then(|imatrix| imatrix.columns(name)),
            order: None,
            feedback: None,
        };
        encoder.encode(rows, &entry.data.unshared(), products).map_err(named(name, columns))
    }

    /// Puts the tensors of a step, which are on the disk, into their places.
    fn take(&mut self, step: usize) -> Result<()> {
        let path = self.state.path(step);
        for (name, data) in self.state.tensors(step, &self.shapes(step))? {
            let format = self.calibration.formats[&name];
            let entry = &mut self.weights.tensors[&name];
            *entry = Entry {
                type_name: format.name.to_ascii_uppercase(),
                type_id: format.gguf_id,
                format: Some(format),
                data,
                ..entry.clone()
            };
        }
        let bytes = std::fs::metadata(&path).map_err(|error| Error::io(&path, error))?.len();
        self.weights.parts.push(Part { path, bytes });
        self.model = model::load(&self.weights)?;
        Ok(())
    }
}
