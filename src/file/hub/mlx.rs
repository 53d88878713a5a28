//! Folders quantized as MLX does: a module's codes, scales and biases are three tensors (`weight`, `scales`, `biases`), of which
//! one of a row of `FORMATS` is made: `weight`. config.json says how under `quantization`: bits, group and mode of all
//! modules, and an object of its own, or `false`, for those that differ. Trellis codes, which MLX does not know, are stored
//! likewise: codes and scales, and an object `trellis` that names the code.
//!
//! Nothing is read when a folder is opened. The bytes of a matrix are put together when they are asked for, which takes
//! as long as copying them, and lie on the heap from then on: see the formats for what they take.

use std::path::Path;

use indexmap::IndexMap;
use serde_json::{Map, Value as Json};

use super::config::Config;
use super::names::bare;
use crate::error::{Error, Result};
use crate::file::Entry;
use crate::quant::{Format, trellis};
use crate::tensor::Bytes;

/// How weights become codes.
#[derive(Clone, Copy, Debug)]
struct Mode {
    name: &'static str,
    /// What it is where bits and group are not told.
    bits: usize,
    group: usize,
    /// Writes blocks of the format from codes, scales and biases.
    weave: Weave,
}

type Weave = fn(&Planes) -> Vec<u8>;

static MODES: &[Mode] = &[
    Mode { name: "affine", bits: 4, group: 64, weave: affine },
    Mode { name: "mxfp4", bits: 4, group: 32, weave: mxfp4 },
    Mode { name: "nvfp4", bits: 4, group: 16, weave: nvfp4 },
    Mode { name: "mxfp8", bits: 8, group: 32, weave: mxfp8 },
    Mode { name: "trellis", bits: 3, group: 256, weave: trellis_code },
];

/// The parts of a matrix.
struct Planes {
    codes: Bytes,
    scales: Bytes,
    biases: Option<Bytes>,
    /// Of scales and biases.
    numbers: &'static Format,
    /// Bytes of codes of a group.
    group_bytes: usize,
}

/// `tensors` with each quantized module in one piece.
///
/// # Errors
/// [`Error::Tensor`] for parts that do not fit, or a kind of quantization that is none of `FORMATS`.
pub(super) fn weave(
    folder: &Path,
    config: &Config,
    mut tensors: IndexMap<String, Entry>,
) -> Result<IndexMap<String, Entry>> {
    let modules: Vec<String> =
        tensors.keys().filter_map(|name| name.strip_suffix(".scales")).map(str::to_owned).collect();
    if modules.is_empty() {
        return Ok(tensors);
    }
    let settings =
        ["quantization", "quantization_config"].iter().find_map(|name| config.get(name)?.as_object());
    let Some(settings) = settings else {
        let message = format!("{}.scales is there, but config.json has no quantization", modules[0]);
        return Err(Error::File { path: folder.into(), message });
    };
    for module in modules {
        let error = |message: String| Error::tensor(format!("{module}.weight"), message);
        let mode = Mode::of(settings, &module).map_err(error)?;
        let mut part = |name: &str| tensors.shift_remove(&format!("{module}.{name}"));
        let (scales, biases) = (part("scales"), part("biases"));
        if part("global_scale").is_some() {
            return Err(error(
                "has a scale for the whole matrix (global_scale), which is not supported".into(),
            ));
        }
        let scales = scales.expect("it was listed");
        let codes = tensors.get_mut(&format!("{module}.weight"));
        let codes = codes.ok_or_else(|| error("is missing, its scales are there".into()))?;
        *codes = mode.join(codes, &scales, biases.as_ref()).map_err(error)?;
    }
    Ok(tensors)
}

impl Mode {
    /// How `module` is quantized.
    fn of(settings: &Map<String, Json>, module: &str) -> Result<Mode, String> {
        let own = settings.get(module).or_else(|| {
            settings
                .iter()
                .find(|(name, value)| !value.is_string() && bare(name) == bare(module))
                .map(|(_, own)| own)
        });
        let own = match own {
            Some(Json::Bool(false)) => {
                return Err("has scales, but config.json says that it is not quantized".into());
            }
            Some(Json::Object(own)) => own,
            _ => settings,
        };
        let name = own.get("mode").map_or(Some("affine"), Json::as_str).unwrap_or("a mode that is no text");
        let Some(mode) = MODES.iter().find(|mode| mode.name == name) else {
            let known: Vec<_> = MODES.iter().map(|mode| mode.name).collect();
            return Err(format!("is quantized as {name}: known are {}", known.join(", ")));
        };
        if mode.name == "trellis" && own.get("trellis") != Some(&trellis::settings()) {
            let found = own.get("trellis").unwrap_or(&Json::Null);
            return Err(format!("has the trellis {found}, known is {}", trellis::settings()));
        }
        let number = |name: &str, default: usize| match own.get(name) {
            None | Some(Json::Null) => Ok(default),
            Some(value) => value
                .as_u64()
                .and_then(|value| usize::try_from(value).ok())
                .ok_or_else(|| format!("config.json gives it {name} {value}")),
        };
        Ok(Mode { bits: number("bits", mode.bits)?, group: number("group_size", mode.group)?, ..*mode })
    }

    fn format(&self) -> Result<&'static Format, String> {
        let (name, bits, group) = (self.name, self.bits, self.group);
        let format = if name == "affine" {
            Format::by_name(&format!("affine{bits}_g{group}"))
        } else if name == "trellis" {
            Format::by_name(&format!("trellis_k{bits}")).filter(|format| format.block_len == group)
        } else {
            let usual = MODES.iter().any(|mode| (mode.name, mode.bits, mode.group) == (name, bits, group));
            Format::by_name(name).filter(|_| usual)
        };
        format.ok_or_else(|| {
            format!("has {bits} bits in groups of {group} as {name}: affine has 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 \
                or 128, mxfp4 4 in 32, nvfp4 4 in 16, mxfp8 8 in 32, trellis 1 to 4 in 256")
        })
    }

    /// One tensor of three.
    fn join(&self, codes: &Entry, scales: &Entry, biases: Option<&Entry>) -> Result<Entry, String> {
        let format = self.format()?;
        if codes.type_name != "U32" {
            return Err(format!("is {}, where MLX has codes in U32", codes.type_name));
        }
        let affine = self.name == "affine";
        let number = if affine { scales.format } else { Format::by_name("f32") };
        let numbers = number.ok_or_else(|| format!("has scales of type {}", scales.type_name))?;
        let usual = if self.name == "trellis" { "F16" } else { "U8" };
        if !affine && scales.type_name != usual {
            return Err(format!("has scales of type {}, where {} has {usual}", scales.type_name, self.name));
        }
        match biases {
            Some(biases)
                if affine && (&biases.shape, &biases.type_name) == (&scales.shape, &scales.type_name) => {}
            None if !affine => {}
            Some(_) => return Err("has biases that do not go with its scales".into()),
            None => return Err("has scales, but no biases".into()),
        }
        let (words, rows) = codes.shape.split_last().ok_or("is a single number")?;
        let (groups, scale_rows) = scales.shape.split_last().ok_or("has a single scale")?;
        let columns = words.checked_mul(32).filter(|bits| bits % self.bits == 0).map(|bits| bits / self.bits);
        let columns =
            columns.filter(|&columns| groups.checked_mul(self.group) == Some(columns) && rows == scale_rows);
        let Some(columns) = columns else {
            return Err(format!(
                "{:?} words of codes and {:?} scales do not fit: {} bits in groups of {}",
                codes.shape, scales.shape, self.bits, self.group
            ));
        };
        if !columns.is_multiple_of(format.block_len) {
            return Err(format!(
                "has rows of {columns} weights, {} takes multiples of {}",
                format.name, format.block_len
            ));
        }
        let shape: Vec<usize> = rows.iter().copied().chain([columns]).collect();
        let weights =
            shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim)).ok_or("is too large")?;
        let len = format.bytes_for(weights).map_err(|error| error.to_string())?;
        let planes = Planes {
            codes: codes.data.clone(),
            scales: scales.data.clone(),
            biases: biases.map(|biases| biases.data.clone()),
            numbers,
            group_bytes: self.group * self.bits / 8,
        };
        let weave = self.weave;
        Ok(Entry {
            shape,
            type_name: format.name.to_ascii_uppercase(),
            format: Some(format),
            data: Bytes::woven(len, move || weave(&planes)),
            ..codes.clone()
        })
    }
}

/// See [`crate::quant::affine`].
fn affine(planes: &Planes) -> Vec<u8> {
    let size = planes.numbers.block_bytes;
    let biases = planes.biases.as_deref().unwrap_or_default();
    let groups = planes.codes.len() / planes.group_bytes;
    let mut out = Vec::with_capacity(groups * (8 + planes.group_bytes));
    let numbers = planes.scales.chunks_exact(size).zip(biases.chunks_exact(size));
    let mut number = [0.0];
    for (codes, (scale, bias)) in planes.codes.chunks_exact(planes.group_bytes).zip(numbers) {
        for stored in [scale, bias] {
            planes.numbers.decode(stored, &mut number).expect("one number");
            out.extend(number[0].to_le_bytes());
        }
        out.extend(codes);
    }
    out
}

/// Of 16 nibbles that follow each other the first 8 become low nibbles, the last 8 high ones; or 32, by 16.
fn split_nibbles<const BYTES: usize>(codes: &[u8]) -> [u8; BYTES] {
    let nibble = |i: usize| codes[i / 2] >> (4 * (i % 2)) & 15;
    std::array::from_fn(|j| nibble(j) | nibble(j + BYTES) << 4)
}

/// See [`crate::quant::mxfp4`].
fn mxfp4(planes: &Planes) -> Vec<u8> {
    let blocks = planes.scales.iter().zip(planes.codes.chunks_exact(16));
    blocks.flat_map(|(&scale, codes)| [scale].into_iter().chain(split_nibbles::<16>(codes))).collect()
}

/// See [`crate::quant::nvfp4`].
fn nvfp4(planes: &Planes) -> Vec<u8> {
    let mut out = Vec::with_capacity(planes.scales.len() + planes.codes.len());
    for (scales, codes) in planes.scales.chunks_exact(4).zip(planes.codes.chunks_exact(32)) {
        out.extend(scales);
        out.extend(codes.chunks_exact(8).flat_map(split_nibbles::<8>));
    }
    out
}

/// See [`crate::quant::trellis`].
fn trellis_code(planes: &Planes) -> Vec<u8> {
    let blocks = planes.scales.chunks_exact(2).zip(planes.codes.chunks_exact(planes.group_bytes));
    blocks.flat_map(|(scale, codes)| codes.iter().chain(scale).copied()).collect()
}

/// See [`crate::quant::mxfp8`].
fn mxfp8(planes: &Planes) -> Vec<u8> {
    let blocks = planes.scales.iter().zip(planes.codes.chunks_exact(32));
    blocks.flat_map(|(scale, codes)| [scale].into_iter().chain(codes).copied()).collect()
}
