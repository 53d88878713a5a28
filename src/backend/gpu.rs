//! The operations on a GPU through wgpu (Vulkan, Metal, DX12): recorded as plain commands (`record`), composed from WGSL
//! files (`compose`, `kernels`), run when a result is fetched (`device`).
//!
//! Inputs of matrices are rounded to the signed bytes that the CPU makes of them, so integer sums are the CPU's; scales
//! stay f32 and floats are added in another order.

use std::sync::{Arc, Mutex, PoisonError};

use super::cpu::Activations;
use super::{
    AttentionShape, Backend, Heads, Hidden, Linear, MOST_TOGETHER, Pending, RmsNorm, Rotation, Source, Span,
};
use crate::cache::{CacheType, LayerCache, LayerState};
use crate::error::{Error, Result};
use crate::tensor::{Tensor, Vector};
use compose::Permutation;
pub use device::{Device, Reach, adapters, cooperative_tile, find_adapters, is_hardware};
use kernels::Kernel;
use matrix::Matrix;
pub use pipelines::CompileStats;
pub use profile::KernelTime;
use record::{Buffer, Command, Lent, Spares, Work};
pub use run::Counts;
pub use wgpu::Adapter;

mod attention;
mod best;
mod cache;
pub mod check;
pub mod compose;
mod convert;
mod device;
pub mod kernels;
mod matrix;
mod memory;
mod pipelines;
mod product;
mod profile;
pub mod record;
mod run;
#[cfg(test)]
mod tests;

/// Invocations of a workgroup.
const WORKGROUP: u32 = 64;
/// Workgroups that keep a device busy.
const ENOUGH_WORKGROUPS: u32 = 128;
/// Inputs that a workgroup can keep as bytes beside their scales within 16 KiB.
const FUSED_COLUMNS: usize = 8192;

/// A GPU.
#[derive(Debug)]
pub struct Gpu {
    device: Arc<Device>,
    commands: Mutex<Vec<Command>>,
    spares: Spares,
    int8: bool,
}

/// Where the rows of a [`Hidden`] are on the device, in f32.
#[derive(Clone, Debug)]
struct Rows {
    lent: Arc<Lent>,
    /// Of the first element.
    offset: usize,
    /// Between rows.
    stride: usize,
}

impl Rows {
    fn buffer(&self) -> Arc<Buffer> {
        Arc::clone(&self.lent.buffer)
    }
}

impl Gpu {
    /// A backend on `device`.
    pub fn new(device: Arc<Device>, activations: Activations) -> Gpu {
        let int8 = activations == Activations::default();
        Gpu { device, commands: Mutex::default(), spares: Spares::default(), int8 }
    }

    /// The adapter's name.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Takes the commands that were recorded since they were last run.
    pub fn take_commands(&self) -> Vec<Command> {
        std::mem::take(&mut self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs what was recorded, to its end.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the device fails.
    pub fn finish(&self) -> Result<()> {
        self.flush()?;
        self.device.wait()
    }

    /// Runs what was recorded.
    fn flush(&self) -> Result<()> {
        let commands = self.take_commands();
        if commands.is_empty() { Ok(()) } else { self.device.run(&commands) }
    }

    /// Runs what was recorded and reads what it left at byte `offset` of `lent`, which nobody else gets until then.
    fn read(
        &self,
        lent: Arc<Lent>,
        offset: usize,
        bytes: usize,
    ) -> impl Future<Output = Result<Vec<u8>>> + use<> {
        let (device, commands) = (Arc::clone(&self.device), self.take_commands());
        async move { device.run_and_read(&commands, &lent.buffer, offset as u64, bytes as u64).await }
    }

    fn record(
        &self,
        kernel: &'static Kernel,
        mut permutation: Permutation,
        bindings: Vec<(u32, Arc<Buffer>)>,
        params: Vec<u32>,
        groups: [u32; 3],
        work: Work,
    ) {
        permutation.flags.extend(self.device.variants());
        let command = Command { kernel, permutation, bindings, params, groups, work };
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
    }

    /// Room for rows × columns.
    fn rows(&self, rows: usize, columns: usize) -> Rows {
        let lent = Arc::new(self.spares.take(4 * (rows * columns) as u64));
        Rows { lent, offset: 0, stride: columns }
    }

    fn hidden(rows: usize, columns: usize, place: Rows) -> Hidden {
        Hidden::on_device(rows, columns, Arc::new(place))
    }

    /// Where `x` is, which an operation of this backend made.
    fn place(&self, x: &Hidden) -> Result<Rows> {
        x.device::<Rows>().cloned().ok_or_else(|| self.error("rows that are not on the device"))
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::gpu(self.name(), message)
    }

    /// A copy of `values`, after everything that was recorded.
    fn upload(&self, values: &[u8]) -> Result<Arc<Lent>> {
        let lent = self.spares.take(values.len() as u64);
        // Writes come before what was recorded and not yet run, which may still name a spare buffer.
        if self.is_named(&lent.buffer) {
            self.flush()?;
        }
        self.device.write(&lent.buffer, 0, values)?;
        Ok(Arc::new(lent))
    }

    /// Whether a recorded command reads or writes `buffer`.
    fn is_named(&self, buffer: &Buffer) -> bool {
        let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.iter().flat_map(|command| &command.bindings).any(|(_, named)| named.id == buffer.id)
    }

    fn vector(&self, vector: &Vector) -> Result<Arc<Buffer>> {
        let made = vector.slot().get_or_make(|| self.device.upload(bytemuck::cast_slice(vector)))?;
        Ok(Arc::clone(&made))
    }
}

impl Backend for Gpu {
    fn blank(&self, rows: usize, columns: usize) -> Hidden {
        Hidden::new(vec![0.0; rows * columns], columns)
    }

    fn hold(&self, x: Hidden) -> Result<Hidden> {
        let lent = self.upload(bytemuck::cast_slice(x.values()))?;
        Ok(Gpu::hidden(x.rows(), x.columns(), Rows { lent, offset: 0, stride: x.columns() }))
    }

    fn finding_best(&self, x: &Hidden, count: usize) -> Pending<Option<Vec<(u32, f32)>>> {
        self.best_of_row(x, count)
    }

    fn fetching(&self, x: Hidden) -> Pending<Hidden> {
        let Rows { lent, offset, stride } = match self.place(&x) {
            Ok(place) => place,
            Err(error) => return Pending::ready(Err(error)),
        };
        let (rows, columns) = (x.rows(), x.columns());
        let bytes = self.read(lent, 4 * offset, 4 * ((rows - 1) * stride + columns));
        Pending::start(async move {
            let values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes.await?);
            let rows = values.chunks(stride).flat_map(|row| &row[..columns]).copied().collect();
            Ok(Hidden::new(rows, columns))
        })
    }

    fn most_rows(&self, columns: usize) -> usize {
        (self.device.binding_bytes() / (4 * columns.max(1) as u64)) as usize
    }

    fn keep_last_row(&self, x: &mut Hidden) -> Result<()> {
        let mut place = self.place(x)?;
        place.offset += (x.rows() - 1) * place.stride;
        *x = Gpu::hidden(1, x.columns(), place);
        Ok(())
    }

    fn embed(&self, table: &Tensor, tokens: &[u32], scale: f32) -> Result<Hidden> {
        let matrix = table.slot().get_or_make(|| Matrix::upload_tensor(&self.device, table))?;
        let ids = self.upload(bytemuck::cast_slice(tokens))?;
        let columns = table.columns();
        let place = self.rows(tokens.len(), columns);
        let permutation = Permutation {
            quant: Some(matrix.format.name),
            consts: vec![("WORKGROUP", WORKGROUP), ("K", columns as u32)],
            ..Permutation::default()
        };
        for chunk in &matrix.chunks {
            let mut bindings = matrix.bindings(chunk);
            bindings.extend([(2, Arc::clone(&ids.buffer)), (4, place.buffer())]);
            let params = vec![scale.to_bits(), chunk.first_row as u32, chunk.rows as u32];
            let groups = [tokens.len() as u32, 1, 1];
            let work = Work { bytes: (tokens.len() * table.row_bytes()) as u64, macs: 0 };
            self.record(&kernels::EMBED, permutation.clone(), bindings, params, groups, work);
        }
        Ok(Gpu::hidden(tokens.len(), columns, place))
    }

    fn linear(&self, source: Source, layers: &[&Linear], out: &mut [Hidden]) -> Result<()> {
        assert!(layers.len() == out.len() && layers.len() <= MOST_TOGETHER, "an output for each layer");
        let rows = source.rows();
        let total = layers.iter().map(|layer| layer.weight.rows()).sum();
        let place = self.rows(rows, total);
        let inputs = self.inputs(source)?;
        let mut column = 0;
        for layers in layers.chunk_by(|a, b| std::ptr::eq(a.weight.format(), b.weight.format())) {
            self.product(&*self.matrix(layers)?, &inputs, rows, &place, column, false);
            column += layers.iter().map(|layer| layer.weight.rows()).sum::<usize>();
        }
        let mut offset = 0;
        for (layer, out) in layers.iter().zip(out) {
            let columns = layer.weight.rows();
            *out = Gpu::hidden(rows, columns, Rows { offset, ..place.clone() });
            offset += columns;
        }
        Ok(())
    }

    fn add_linear(
        &self,
        x: &mut Hidden,
        source: Source,
        layer: &Linear,
        norm: Option<&RmsNorm>,
    ) -> Result<()> {
        let (matrix, place, inputs) = (self.matrix(&[layer])?, self.place(x)?, self.inputs(source)?);
        let (rows, columns) = (x.rows(), x.columns());
        let Some(norm) = norm else {
            self.product(&matrix, &inputs, rows, &place, 0, true);
            return Ok(());
        };
        let y = self.rows(rows, columns);
        self.product(&matrix, &inputs, rows, &y, 0, false);
        let permutation = Permutation {
            flags: vec!["NORMED"],
            consts: vec![("WORKGROUP", WORKGROUP), ("K", columns as u32)],
            ..Permutation::default()
        };
        let bindings = vec![(2, y.buffer()), (3, self.vector(&norm.weight)?), (4, place.buffer())];
        let params = vec![0, columns as u32, 0, norm.eps.to_bits(), place.offset as u32, place.stride as u32];
        let groups = [rows as u32, 1, 1];
        self.record(&kernels::NORM_ADD, permutation, bindings, params, groups, Work::SMALL);
        Ok(())
    }

    fn append(
        &self,
        cache: &mut LayerCache,
        rows: &mut Heads,
        norms: [Option<&RmsNorm>; 2],
        rotation: &Rotation,
    ) -> Result<()> {
        self.append_rows(cache, rows, norms, rotation)
    }

    fn stored(&self, cache: &LayerCache) -> Result<LayerState<Vec<u8>>> {
        self.stored_rows(cache)
    }

    fn store(&self, cache: &mut LayerCache, state: &LayerState<&[u8]>) -> Result<()> {
        self.store_rows(cache, state)
    }

    fn convert(&self, cache: &mut LayerCache, kind: CacheType) -> Result<()> {
        self.convert_rows(cache, kind)
    }

    fn attention(
        &self,
        query: &Hidden,
        cache: &LayerCache,
        at: Span,
        shape: AttentionShape,
    ) -> Result<Hidden> {
        self.attend(query, cache, at, shape)
    }

    fn softcap(&self, x: &mut Hidden, cap: f32) -> Result<()> {
        let place = self.place(x)?;
        let len = x.rows() * x.columns();
        let permutation = Permutation { consts: vec![("WORKGROUP", WORKGROUP)], ..Permutation::default() };
        let groups = [(len as u32).div_ceil(WORKGROUP).min(65535), 1, 1];
        let params = vec![len as u32, cap.to_bits()];
        let bindings = vec![(4, place.buffer())];
        self.record(&kernels::SOFTCAP, permutation, bindings, params, groups, Work::SMALL);
        Ok(())
    }

    fn scratch_bytes(&self) -> u64 {
        self.spares.bytes()
    }

    fn gpu(&self) -> Option<&Arc<Device>> {
        Some(&self.device)
    }
}
