//! Importance from a text: a backend that runs a model on the CPU and adds up the squares of what its matrices read, or all
//! products of two of their inputs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use indexmap::IndexMap;

use super::hessian::Hessians;
use super::imatrix::{Imatrix, Sums};
use crate::backend::cpu::Cpu;
use crate::backend::{AttentionShape, Backend, Heads, Hidden, Linear, RmsNorm, Rotation, Source, Span};
use crate::cache::{CacheType, LayerCache};
use crate::error::Result;
use crate::tensor::Tensor;

/// Inputs of one matrix so far.
#[derive(Clone, Debug)]
struct Inputs {
    /// Sums of squares of each column.
    squares: Vec<f64>,
    /// Inputs.
    count: u64,
}

/// A CPU that looks on.
#[derive(Debug)]
pub struct Collector {
    cpu: Cpu,
    inputs: Mutex<IndexMap<String, Inputs>>,
    /// Only where products are asked for.
    hessians: Option<Mutex<Hessians>>,
}

impl Collector {
    /// Looks on at `cpu`.
    pub fn new(cpu: Cpu) -> Collector {
        Collector { cpu, inputs: Mutex::default(), hessians: None }
    }

    /// Looks on at `cpu`, at the products of inputs too: columns² numbers of 8 bytes for each input of matrices.
    pub(super) fn with_products(cpu: Cpu) -> Collector {
        Collector { hessians: Some(Mutex::default()), ..Collector::new(cpu) }
    }

    /// The products seen since this was last asked; none if they are not looked at.
    pub(super) fn hessians(&self) -> Hessians {
        let hessians = self.hessians.as_ref();
        hessians.map_or_else(Hessians::default, |h| {
            std::mem::take(&mut h.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    /// What it looks on at.
    pub(super) fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// What was seen so far of the matrices of layers: as `llama-imatrix` does, not of the output matrix.
    pub fn imatrix(&self) -> Imatrix {
        let inputs = self.inputs();
        let layers = inputs.iter().filter(|(name, _)| name.starts_with("blk."));
        let entries = layers.map(|(name, inputs)| {
            let squares = inputs.squares.iter().map(|&sum| sum as f32).collect();
            (name.clone(), Sums::new(squares, vec![inputs.count as f32]))
        });
        Imatrix { entries: entries.collect(), ..Imatrix::default() }
    }

    /// The sums are whole whatever panics while they are locked.
    fn inputs(&self) -> MutexGuard<'_, IndexMap<String, Inputs>> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Layers of one source share its sums.
    fn look(&self, source: Source, layers: &[&Linear]) -> Result<()> {
        if let Some(hessians) = &self.hessians {
            let names = layers.iter().map(|layer| layer.weight.name());
            let mut hessians = hessians.lock().unwrap_or_else(PoisonError::into_inner);
            let sums = hessians.shared(names, source.columns());
            let mut rows = Vec::with_capacity(source.rows() * source.columns());
            self.cpu.each_source_row(source, |row| rows.extend_from_slice(row));
            sums.add(&self.cpu, &rows)?;
        }
        let mut squares = vec![0.0f64; source.columns()];
        self.cpu.each_source_row(source, |row| {
            for (sum, &value) in squares.iter_mut().zip(row) {
                *sum += f64::from(value) * f64::from(value);
            }
        });
        let mut inputs = self.inputs();
        for layer in layers {
            let known = inputs.entry(layer.weight.name().to_owned());
            let known = known.or_insert_with(|| Inputs { squares: vec![0.0; squares.len()], count: 0 });
            known.squares.iter_mut().zip(&squares).for_each(|(known, new)| *known += new);
            known.count += source.rows() as u64;
        }
        Ok(())
    }
}

impl Backend for Collector {
    fn blank(&self, rows: usize, columns: usize) -> Hidden {
        self.cpu.blank(rows, columns)
    }

    fn embed(&self, table: &Tensor, tokens: &[u32], scale: f32) -> Result<Hidden> {
        self.cpu.embed(table, tokens, scale)
    }

    fn linear(&self, source: Source, layers: &[&Linear], out: &mut [Hidden]) -> Result<()> {
        self.look(source, layers)?;
        self.cpu.linear(source, layers, out)
    }

    fn add_linear(
        &self,
        x: &mut Hidden,
        source: Source,
        layer: &Linear,
        norm: Option<&RmsNorm>,
    ) -> Result<()> {
        self.look(source, &[layer])?;
        self.cpu.add_linear(x, source, layer, norm)
    }

    fn append(
        &self,
        cache: &mut LayerCache,
        rows: &mut Heads,
        norms: [Option<&RmsNorm>; 2],
        rotation: &Rotation,
    ) -> Result<()> {
        self.cpu.append(cache, rows, norms, rotation)
    }

    fn convert(&self, cache: &mut LayerCache, kind: CacheType) -> Result<()> {
        self.cpu.convert(cache, kind)
    }

    fn attention(
        &self,
        query: &Hidden,
        cache: &LayerCache,
        at: Span,
        shape: AttentionShape,
    ) -> Result<Hidden> {
        self.cpu.attention(query, cache, at, shape)
    }

    fn softcap(&self, x: &mut Hidden, cap: f32) -> Result<()> {
        self.cpu.softcap(x, cap)
    }
}
