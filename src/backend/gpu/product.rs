//! Products with matrices: a token's by `matvec`, which makes what it reads unless that is too wide; several tokens' by
//! `prepare` and `matmul`.

use std::cell::OnceCell;
use std::sync::Arc;

use super::compose::Permutation;
use super::matrix::Matrix;
use super::record::{Buffer, Lent, Work};
use super::{ENOUGH_WORKGROUPS, FUSED_COLUMNS, Gpu, Rows, WORKGROUP, kernels};
use crate::backend::{Gate, Linear, Source};
use crate::error::Result;

/// Rows of weights of a workgroup of `matmul`.
const TILE_ROWS: usize = 32;
/// Rows of inputs, and that of few.
const TILE_TOKENS: usize = 32;
const FEW_TOKENS: usize = 8;

/// What a matrix reads.
pub(super) struct Inputs {
    source: Rows,
    /// Of the second operand of a gate.
    second: usize,
    norm: Option<(Arc<Buffer>, f32)>,
    flags: Vec<&'static str>,
    /// As `matmul` reads them: numbers, codes in groups of 32, codes in groups of 256.
    prepared: [OnceCell<Prepared>; 3],
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

/// The row that `matvec` reads.
struct Row {
    bindings: Vec<(u32, Arc<Buffer>)>,
    /// Offset, stride, offset of the gate's second operand, eps.
    params: [u32; 4],
    /// How many share a scale; `None` for numbers.
    group: Option<u32>,
    /// Whether `matvec` makes it of its source for itself.
    fused: bool,
}

/// Rows as `matmul` reads them.
pub(super) enum Prepared {
    /// Codes and numbers.
    Int8(Lent, Lent),
    Float(Rows),
}

impl Gpu {
    pub(super) fn inputs(&self, source: Source) -> Result<Inputs> {
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

    /// The layers' weights, one matrix above the other.
    pub(super) fn matrix(&self, layers: &[&Linear]) -> Result<Arc<Matrix>> {
        let slot = layers[0].weight.slot();
        let made = slot.get_or_make(|| Matrix::upload(&self.device, layers))?;
        let biased = layers.iter().any(|layer| layer.bias.is_some());
        if made.parts == layers.len() && made.biased == biased {
            Ok(made)
        } else {
            Ok(Arc::new(Matrix::upload(&self.device, layers)?))
        }
    }

    /// The rows of `inputs` as `matmul` reads them: numbers, or codes of which each `group` share a scale.
    pub(super) fn prepare(
        &self,
        inputs: &Inputs,
        rows: usize,
        columns: usize,
        group: Option<u32>,
    ) -> Prepared {
        if group.is_none() && inputs.flags.is_empty() {
            return Prepared::Float(inputs.source.clone());
        }
        let mut flags = inputs.flags.clone();
        let mut consts = vec![("WORKGROUP", WORKGROUP), ("K", columns as u32)];
        let mut bindings = inputs.bindings();
        let prepared = if let Some(group) = group {
            flags.push("CODES");
            consts.push(("INPUT", group));
            let codes = self.spares.take((rows * columns) as u64);
            let numbers = self.spares.take((rows * columns / 2) as u64);
            bindings.extend([(4, Arc::clone(&codes.buffer)), (5, Arc::clone(&numbers.buffer))]);
            Prepared::Int8(codes, numbers)
        } else {
            let place = self.rows(rows, columns);
            bindings.push((4, place.buffer()));
            Prepared::Float(place)
        };
        let permutation = Permutation { flags, consts, ..Permutation::default() };
        let Rows { offset, stride, .. } = inputs.source;
        let params = vec![offset as u32, stride as u32, inputs.second as u32, inputs.eps().to_bits()];
        self.record(&kernels::PREPARE, permutation, bindings, params, [rows as u32, 1, 1], Work::SMALL);
        prepared
    }

    /// y (from column `column` on) = W · source, or is added to.
    pub(super) fn product(
        &self,
        matrix: &Matrix,
        inputs: &Inputs,
        rows: usize,
        y: &Rows,
        column: usize,
        add: bool,
    ) {
        let columns = matrix.columns;
        let group = matrix.input_group().filter(|_| self.int8);
        let mut flags = vec![];
        flags.extend(add.then_some("ADD"));
        flags.extend(matrix.biased.then_some("BIAS"));
        let fused = group.is_none() || columns <= FUSED_COLUMNS;
        if rows == 1 && fused {
            flags.extend(group.map(|_| "CODES"));
            flags.extend(&inputs.flags);
            let Rows { offset, stride, .. } = inputs.source;
            let params = [offset as u32, stride as u32, inputs.second as u32, inputs.eps().to_bits()];
            self.matvec(
                matrix,
                &Row { bindings: inputs.bindings(), params, group, fused },
                y,
                column,
                &flags,
            );
            return;
        }
        let prepared = &inputs.prepared[match group {
            None => 0,
            Some(32) => 1,
            Some(_) => 2,
        }];
        let prepared = prepared.get_or_init(|| self.prepare(inputs, rows, columns, group));
        if let (1, Prepared::Int8(codes, numbers)) = (rows, prepared) {
            flags.push("PREPARED");
            let bindings = vec![(2, Arc::clone(&codes.buffer)), (3, Arc::clone(&numbers.buffer))];
            self.matvec(matrix, &Row { bindings, params: [0; 4], group, fused }, y, column, &flags);
        } else {
            if group.is_some() {
                flags.push("INT8");
                let cooperative = if rows > FEW_TOKENS { self.device.cooperative() } else { &[] };
                flags.extend(cooperative);
            }
            self.matmul(matrix, prepared, rows, columns, y, column, &flags);
        }
    }

    fn matvec(&self, matrix: &Matrix, x: &Row, y: &Rows, column: usize, flags: &[&'static str]) {
        let columns = matrix.columns;
        let workgroup = if columns < 2048 { WORKGROUP } else { 4 * WORKGROUP };
        // Invocations of a row: few enough that all have groups to do.
        let lanes: u32 = match columns / 32 {
            ..64 => 8,
            64..256 => 16,
            _ => 32,
        };
        let lanes = if self.device.lanes() > 1 { lanes.min(self.device.lanes()) } else { lanes };
        let at_once = workgroup / lanes;
        // Each workgroup rounds x for itself: many rows make up for it, as long as there are enough workgroups.
        let most_passes = if x.fused { 16 } else { 1 };
        let passes = (matrix.rows() as u32 / (at_once * ENOUGH_WORKGROUPS)).clamp(1, most_passes);
        let per_group = at_once * passes.next_power_of_two();
        let permutation = Permutation {
            quant: Some(matrix.format.name),
            flags: flags.to_vec(),
            consts: vec![
                ("WORKGROUP", workgroup),
                ("K", columns as u32),
                ("LANES", lanes),
                ("ROWS", per_group),
                ("INPUT", x.group.unwrap_or(0)),
            ],
            ..Permutation::default()
        };
        for chunk in &matrix.chunks {
            let mut bindings = matrix.bindings(chunk);
            bindings.extend(x.bindings.iter().cloned());
            bindings.push((4, y.buffer()));
            bindings.extend(chunk.bias.iter().map(|bias| (5, Arc::clone(bias))));
            let mut params = vec![chunk.rows as u32, (y.offset + column + chunk.first_row) as u32];
            params.extend(x.params);
            let groups = (chunk.rows as u32).div_ceil(per_group);
            let groups = [groups.min(65535), groups.div_ceil(65535), 1];
            let work = chunk.work(chunk.rows, columns, 1);
            self.record(&kernels::MATVEC, permutation.clone(), bindings, params, groups, work);
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
        let tile = if rows <= FEW_TOKENS { FEW_TOKENS } else { TILE_TOKENS };
        // Rows of weights of a dispatch.
        let most = (self.device.most_macs() / (columns * rows) as u64) as usize / TILE_ROWS * TILE_ROWS;
        let most = most.max(TILE_ROWS);
        let permutation = Permutation {
            quant: Some(matrix.format.name),
            flags: flags.to_vec(),
            consts: vec![("K", columns as u32), ("TOKENS", tile as u32)],
            ..Permutation::default()
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
            for first in (0..chunk.rows).step_by(most) {
                let some = most.min(chunk.rows - first);
                let params = vec![
                    chunk.rows as u32,
                    first as u32,
                    rows as u32,
                    (y.offset + column + chunk.first_row) as u32,
                    y.stride as u32,
                    x_offset as u32,
                    x_stride as u32,
                ];
                let groups = [some.div_ceil(TILE_ROWS) as u32, rows.div_ceil(tile) as u32, 1];
                let work = chunk.work(some, columns, rows);
                self.record(&kernels::MATMUL, permutation.clone(), bindings.clone(), params, groups, work);
            }
        }
    }
}
