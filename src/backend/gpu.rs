//! The operations on a GPU through wgpu (Vulkan, Metal, DX12): recorded as plain commands (`record`), composed from WGSL
//! files (`compose`, `kernels`), run when a result is fetched (`device`).
//!
//! Inputs of matrices are rounded to signed bytes in groups of 32, as on the CPU, whatever the format: K quants, whose
//! CPU inputs share a scale among 256, are a little more precise here. Sums are f32, in another order than the CPU's.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, PoisonError};

use super::cpu::Activations;
use super::{
    AttentionShape, Backend, Gate, Heads, Hidden, Linear, MOST_TOGETHER, RmsNorm, Rotation, Source, Span,
};
use crate::cache::LayerCache;
use crate::error::{Error, Result};
use crate::quant::{f16, f32};
use crate::tensor::{Tensor, Vector};
use compose::Permutation;
pub use device::{Device, adapters, is_hardware};
use kernels::Kernel;
use matrix::Matrix;
use record::{Buffer, Command, Lent, Spares};
pub use wgpu::Adapter;

pub mod check;
pub mod compose;
mod device;
pub mod kernels;
mod matrix;
pub mod record;
#[cfg(test)]
mod tests;

/// Invocations of a workgroup.
const WORKGROUP: u32 = 64;
/// Workgroups that keep a device busy.
const ENOUGH_WORKGROUPS: u32 = 64;
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

/// Keys and values of a layer: heads × capacity × dim each.
#[derive(Debug)]
struct DeviceCache {
    keys: Arc<Buffer>,
    values: Arc<Buffer>,
}

/// What a matrix reads.
struct Inputs {
    source: Rows,
    /// Of the second operand of a gate.
    second: usize,
    norm: Option<(Arc<Buffer>, f32)>,
    flags: Vec<&'static str>,
    /// As `matmul` reads them: numbers, and codes.
    prepared: [OnceCell<Prepared>; 2],
}

impl Inputs {
    fn bindings(&self) -> Vec<(u32, Arc<Buffer>)> {
        let mut bindings = vec![(2, self.source.buffer())];
        bindings.extend(self.norm.iter().map(|(norm, _)| (3, Arc::clone(norm))));
        bindings
    }

    fn eps(&self) -> f32 {
        self.norm.as_ref().map_or(0.0, |(_, eps)| *eps)
    }
}

/// Rows as `matmul` reads them.
enum Prepared {
    /// Codes and numbers.
    Int8(Lent, Lent),
    Float(Rows),
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

    /// Runs what was recorded.
    fn flush(&self) -> Result<()> {
        let commands = self.take_commands();
        if commands.is_empty() { Ok(()) } else { self.device.run(&commands) }
    }

    fn record(
        &self,
        kernel: &'static Kernel,
        permutation: Permutation,
        bindings: Vec<(u32, Arc<Buffer>)>,
        params: Vec<u32>,
        groups: [u32; 3],
    ) {
        let command = Command { kernel, permutation, bindings, params, groups };
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
        // A spare buffer may still be named by what was recorded.
        self.flush()?;
        let lent = self.spares.take(values.len() as u64);
        self.device.write(&lent.buffer, 0, values);
        Ok(Arc::new(lent))
    }

    fn vector(&self, vector: &Vector) -> Result<Arc<Buffer>> {
        let made = vector.slot().get_or_make(|| Ok(self.device.upload(bytemuck::cast_slice(vector))))?;
        Ok(Arc::clone(&made))
    }

    fn inputs(&self, source: Source) -> Result<Inputs> {
        let (source, second, norm, flags) = match source {
            Source::Plain(x) => (self.place(x)?, 0, None, vec![]),
            Source::Normed(x, norm) => {
                let weight = self.vector(&norm.weight)?;
                (self.place(x)?, 0, Some((weight, norm.eps)), vec!["NORMED"])
            }
            Source::Gated(gate, a, b) => {
                let (a, b) = (self.place(a)?, self.place(b)?);
                if a.buffer().id != b.buffer().id || a.stride != b.stride {
                    return Err(self.error("a gate and its operand that are not side by side"));
                }
                let flag = match gate {
                    Gate::Silu => "SILU",
                    Gate::Gelu => "GELU",
                };
                (a, b.offset, None, vec![flag])
            }
        };
        Ok(Inputs { source, second, norm, flags, prepared: Default::default() })
    }

    /// The rows of `inputs` as `matmul` reads them.
    fn prepare(&self, inputs: &Inputs, rows: usize, columns: usize, int8: bool) -> Prepared {
        if !int8 && inputs.flags.is_empty() {
            return Prepared::Float(inputs.source.clone());
        }
        let mut flags = inputs.flags.clone();
        let mut bindings = inputs.bindings();
        let prepared = if int8 {
            flags.push("INT8");
            let codes = self.spares.take((rows * columns) as u64);
            let numbers = self.spares.take((rows * columns / 2) as u64);
            bindings.extend([(4, Arc::clone(&codes.buffer)), (5, Arc::clone(&numbers.buffer))]);
            Prepared::Int8(codes, numbers)
        } else {
            let place = self.rows(rows, columns);
            bindings.push((4, place.buffer()));
            Prepared::Float(place)
        };
        let permutation =
            Permutation { quant: None, flags, consts: vec![("WORKGROUP", WORKGROUP), ("K", columns as u32)] };
        let Rows { offset, stride, .. } = inputs.source;
        let params = vec![offset as u32, stride as u32, inputs.second as u32, inputs.eps().to_bits()];
        self.record(&kernels::PREPARE, permutation, bindings, params, [rows as u32, 1, 1]);
        prepared
    }

    /// y (from column `column` on) = W · source, or is added to.
    fn product(&self, matrix: &Matrix, inputs: &Inputs, rows: usize, y: &Rows, column: usize, add: bool) {
        let columns = matrix.columns;
        let int8 = self.int8 && !matrix.is_float();
        let mut flags = vec![];
        flags.extend(add.then_some("ADD"));
        flags.extend(matrix.biased.then_some("BIAS"));
        if rows == 1 && int8 && columns <= FUSED_COLUMNS {
            flags.extend(&inputs.flags);
            self.matvec(matrix, inputs, columns, y, column, &flags);
        } else {
            flags.extend(int8.then_some("INT8"));
            let prepared = &inputs.prepared[usize::from(int8)];
            let prepared = prepared.get_or_init(|| self.prepare(inputs, rows, columns, int8));
            self.matmul(matrix, prepared, rows, columns, y, column, &flags);
        }
    }

    fn matvec(
        &self,
        matrix: &Matrix,
        inputs: &Inputs,
        columns: usize,
        y: &Rows,
        column: usize,
        flags: &[&'static str],
    ) {
        // Invocations of a row: few enough that all have groups to do.
        let lanes: u32 = match columns / 32 {
            ..64 => 8,
            64..256 => 16,
            _ => 32,
        };
        let at_once = WORKGROUP / lanes;
        // Each workgroup rounds x for itself: many rows make up for it, as long as there are enough workgroups.
        let passes = (matrix.rows() as u32 / (at_once * ENOUGH_WORKGROUPS)).clamp(1, 16);
        let per_group = at_once * passes.next_power_of_two();
        let permutation = Permutation {
            quant: Some(matrix.format.name),
            flags: flags.to_vec(),
            consts: vec![
                ("WORKGROUP", WORKGROUP),
                ("K", columns as u32),
                ("LANES", lanes),
                ("ROWS", per_group),
            ],
        };
        for chunk in &matrix.chunks {
            let mut bindings = matrix.bindings(chunk);
            bindings.extend(inputs.bindings());
            bindings.push((4, y.buffer()));
            bindings.extend(chunk.bias.iter().map(|bias| (5, Arc::clone(bias))));
            let params = vec![
                chunk.rows as u32,
                (y.offset + column + chunk.first_row) as u32,
                inputs.source.offset as u32,
                inputs.source.stride as u32,
                inputs.second as u32,
                inputs.eps().to_bits(),
            ];
            let groups = (chunk.rows as u32).div_ceil(per_group);
            let groups = [groups.min(65535), groups.div_ceil(65535), 1];
            self.record(&kernels::MATVEC, permutation.clone(), bindings, params, groups);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the operands of a product")]
    fn matmul(
        &self,
        matrix: &Matrix,
        prepared: &Prepared,
        rows: usize,
        columns: usize,
        y: &Rows,
        column: usize,
        flags: &[&'static str],
    ) {
        let tile = if rows <= 8 { 8 } else { 32 };
        let permutation = Permutation {
            quant: Some(matrix.format.name),
            flags: flags.to_vec(),
            consts: vec![("K", columns as u32), ("TOKENS", tile)],
        };
        for chunk in &matrix.chunks {
            let mut bindings = matrix.bindings(chunk);
            let (x_offset, x_stride) = match prepared {
                Prepared::Int8(codes, numbers) => {
                    bindings.extend([(2, Arc::clone(&codes.buffer)), (3, Arc::clone(&numbers.buffer))]);
                    (0, 0)
                }
                Prepared::Float(place) => {
                    bindings.push((2, place.buffer()));
                    (place.offset, place.stride)
                }
            };
            bindings.push((4, y.buffer()));
            bindings.extend(chunk.bias.iter().map(|bias| (5, Arc::clone(bias))));
            let params = vec![
                chunk.rows as u32,
                rows as u32,
                (y.offset + column + chunk.first_row) as u32,
                y.stride as u32,
                x_offset as u32,
                x_stride as u32,
            ];
            let groups = [(chunk.rows as u32).div_ceil(32), (rows as u32).div_ceil(tile), 1];
            self.record(&kernels::MATMUL, permutation.clone(), bindings, params, groups);
        }
    }

    /// The layers' weights, one matrix above the other.
    fn matrix(&self, layers: &[&Linear]) -> Result<Arc<Matrix>> {
        let slot = layers[0].weight.slot();
        let made = slot.get_or_make(|| Matrix::upload(&self.device, layers))?;
        if made.parts == layers.len() {
            Ok(made)
        } else {
            Ok(Arc::new(Matrix::upload(&self.device, layers)?))
        }
    }

    fn cache(cache: &LayerCache) -> Result<Arc<DeviceCache>> {
        let shape = cache.shape();
        let bytes = (cache.capacity() * cache.row_bytes() * shape.heads) as u64;
        cache.slot().get_or_make(|| Ok(DeviceCache { keys: Buffer::new(bytes), values: Buffer::new(bytes) }))
    }

    fn cache_flags(&self, cache: &LayerCache) -> Result<Vec<&'static str>> {
        if std::ptr::eq(cache.format(), &f16::FORMAT) {
            Ok(vec!["F16"])
        } else if std::ptr::eq(cache.format(), &f32::FORMAT) {
            Ok(vec![])
        } else {
            Err(self.error(format!("a cache of {} has no kernels yet", cache.format().name)))
        }
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

    fn fetch(&self, x: Hidden) -> Result<Hidden> {
        self.flush()?;
        let place = self.place(&x)?;
        let len = (x.rows() - 1) * place.stride + x.columns();
        let bytes = self.device.read(&place.lent.buffer, 4 * place.offset as u64, 4 * len as u64)?;
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        let rows = values.chunks(place.stride).flat_map(|row| &row[..x.columns()]).copied().collect();
        Ok(Hidden::new(rows, x.columns()))
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
            flags: vec![],
            consts: vec![("WORKGROUP", WORKGROUP), ("K", columns as u32)],
        };
        for chunk in &matrix.chunks {
            let mut bindings = matrix.bindings(chunk);
            bindings.extend([(2, Arc::clone(&ids.buffer)), (4, place.buffer())]);
            let params = vec![scale.to_bits(), chunk.first_row as u32, chunk.rows as u32];
            let groups = [tokens.len() as u32, 1, 1];
            self.record(&kernels::EMBED, permutation.clone(), bindings, params, groups);
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
            quant: None,
            flags: vec!["NORMED"],
            consts: vec![("WORKGROUP", WORKGROUP), ("K", columns as u32)],
        };
        let bindings = vec![(2, y.buffer()), (3, self.vector(&norm.weight)?), (4, place.buffer())];
        let params = vec![0, columns as u32, 0, norm.eps.to_bits(), place.offset as u32, place.stride as u32];
        self.record(&kernels::NORM_ADD, permutation, bindings, params, [rows as u32, 1, 1]);
        Ok(())
    }

    fn append(
        &self,
        cache: &mut LayerCache,
        rows: &mut Heads,
        norms: [Option<&RmsNorm>; 2],
        rotation: &Rotation,
    ) -> Result<()> {
        let stored = Gpu::cache(cache)?;
        let (query, key, value) =
            (self.place(&rows.query)?, self.place(&rows.key)?, self.place(&rows.value)?);
        let turns = self.place(&rotation.turns)?;
        let shape = cache.shape();
        let mut flags = self.cache_flags(cache)?;
        flags.extend(rotation.interleaved.then_some("INTERLEAVED"));
        let mut bindings = vec![
            (1, query.buffer()),
            (2, turns.buffer()),
            (3, Arc::clone(&stored.keys)),
            (4, Arc::clone(&stored.values)),
        ];
        let mut eps = [0.0; 2];
        if let [Some(query), Some(key)] = norms {
            flags.push("NORMED");
            eps = [query.eps, key.eps];
            let both = query.weight.slot().get_or_make(|| {
                let both: Vec<f32> = query.weight.iter().chain(key.weight.iter()).copied().collect();
                Ok(self.device.upload(bytemuck::cast_slice(&both)))
            })?;
            bindings.push((5, Arc::clone(&both)));
        } else if norms.iter().any(Option::is_some) {
            return Err(self.error("heads of queries or keys alone that are normalized"));
        }
        let heads = rows.query.columns() / shape.dim;
        let permutation = Permutation {
            quant: None,
            flags,
            consts: vec![
                ("WORKGROUP", WORKGROUP),
                ("DIM", shape.dim as u32),
                ("HEADS", heads as u32),
                ("KV_HEADS", shape.heads as u32),
                ("PAIRS", rotation.turns.columns() as u32 / 2),
                ("CAPACITY", cache.capacity() as u32),
            ],
        };
        let params = vec![
            query.offset as u32,
            key.offset as u32,
            value.offset as u32,
            query.stride as u32,
            cache.len() as u32,
            eps[0].to_bits(),
            eps[1].to_bits(),
        ];
        let groups = [(heads + 2 * shape.heads) as u32, rows.query.rows() as u32, 1];
        self.record(&kernels::APPEND, permutation, bindings, params, groups);
        cache.advance(rows.query.rows());
        Ok(())
    }

    fn attention(
        &self,
        query: &Hidden,
        cache: &LayerCache,
        at: Span,
        shape: AttentionShape,
    ) -> Result<Hidden> {
        let (place, stored, kv) = (self.place(query)?, Gpu::cache(cache)?, cache.shape());
        let out = self.rows(query.rows(), query.columns());
        let mut flags = self.cache_flags(cache)?;
        let mut bindings = vec![
            (1, place.buffer()),
            (2, Arc::clone(&stored.keys)),
            (3, Arc::clone(&stored.values)),
            (4, out.buffer()),
        ];
        if let Some(sinks) = shape.sinks {
            flags.push("SINKS");
            bindings.push((5, Arc::clone(&self.upload(bytemuck::cast_slice(sinks))?.buffer)));
        }
        let permutation = Permutation {
            quant: None,
            flags,
            consts: vec![
                ("WORKGROUP", WORKGROUP),
                ("DIM", kv.dim as u32),
                ("HEADS", shape.heads as u32),
                ("KV_HEADS", kv.heads as u32),
                ("CAPACITY", cache.capacity() as u32),
            ],
        };
        let params = vec![
            place.offset as u32,
            place.stride as u32,
            at.start as u32,
            kv.window.map_or(u32::MAX, |window| window as u32),
            shape.scale.to_bits(),
            shape.softcap.unwrap_or(0.0).to_bits(),
        ];
        let groups = [shape.heads as u32, query.rows() as u32, 1];
        self.record(&kernels::ATTENTION, permutation, bindings, params, groups);
        Ok(Gpu::hidden(query.rows(), query.columns(), out))
    }

    fn softcap(&self, x: &mut Hidden, cap: f32) -> Result<()> {
        let place = self.place(x)?;
        let len = x.rows() * x.columns();
        let permutation = Permutation { quant: None, flags: vec![], consts: vec![("WORKGROUP", WORKGROUP)] };
        let groups = [(len as u32).div_ceil(WORKGROUP).min(65535), 1, 1];
        let params = vec![len as u32, cap.to_bits()];
        self.record(&kernels::SOFTCAP, permutation, vec![(4, place.buffer())], params, groups);
        Ok(())
    }
}
