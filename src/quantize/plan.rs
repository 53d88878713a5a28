//! Which tensor becomes what.

use indexmap::IndexMap;

use super::recipe::{self, Case, Recipe, Role};
use super::{
    Calibration, Imatrix, QUANTIZATION_VERSION, Rotation, Settings, allocate, imatrix as importance,
};
use crate::error::{Error, Result};
use crate::file::gguf::Declared;
use crate::file::{Entry, Metadata, Value, Weights, gguf};
use crate::quant::{Format, f16, f32, q3_k, q4_k, q5_k, q8_0};

/// What becomes of one tensor.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// Its name in the file.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Its type in the source.
    pub from: String,
    /// The format that it gets; `None` if it is copied.
    pub to: Option<&'static Format>,
    /// The format that was wanted but does not fit the rows.
    pub replaced: Option<&'static Format>,
    /// Bytes that it will take.
    pub bytes: u64,
}

impl Conversion {
    /// Weights.
    pub fn weights(&self) -> u64 {
        self.shape.iter().fold(1, |product, &dim| product.saturating_mul(dim as u64))
    }

    /// The type that it will have.
    pub fn type_name(&self) -> String {
        self.to.map_or_else(|| self.from.clone(), |format| format.name.to_ascii_uppercase())
    }
}

/// A file to be made from another one.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The source.
    pub weights: &'a Weights,
    /// Importance of columns, where there is some.
    pub imatrix: Option<&'a Imatrix>,
    /// How tensors are turned before they are encoded.
    pub rotation: Option<&'a Rotation>,
    /// What becomes of each tensor, in file order.
    pub conversions: Vec<Conversion>,
    /// What will be written.
    pub file: gguf::Plan,
}

impl<'a> Plan<'a> {
    /// Decides on every tensor of `weights`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if a format is wanted that can't be made, [`Error::Tensor`] for a tensor that can't be
    /// written or, if that is wanted, one whose format has to be replaced; [`Error::Option`] for a target out of reach, and
    /// for formats that need importance where there is none.
    pub fn new(weights: &'a Weights, settings: &Settings, imatrix: Option<&'a Imatrix>) -> Result<Plan<'a>> {
        let mut formats = Chooser::new(weights, settings, imatrix.is_some()).formats();
        if let Some(target) = settings.target_bpw {
            allocate::allocate(weights, settings, imatrix, target, &mut formats)?;
        }
        for ((name, entry), format) in weights.tensors.iter().zip(&mut formats) {
            // Norms and biases of folders: GGUF's engines expect f32.
            if format.is_none() && entry.type_id.is_none() && !is_matrix(name, entry) {
                *format = Some(&f32::FORMAT);
            } else if format.is_none() && entry.format.is_some_and(|own| own.gguf_id.is_none()) {
                // MLX's own formats, of which GGUF knows nothing.
                *format = Some(&f16::FORMAT);
            }
        }
        let tensors = weights.tensors.iter().zip(formats);
        let conversions: Vec<_> =
            tensors.map(|((name, entry), format)| conversion(name, entry, format)).collect::<Result<_>>()?;
        check(&conversions, settings, imatrix)?;
        let declared =
            conversions.iter().zip(weights.tensors.values()).map(|(conversion, entry)| match conversion.to {
                Some(format) => Declared::new(&conversion.name, &conversion.shape, format),
                None => Declared::of(&conversion.name, entry),
            });
        let tensors: Vec<_> = declared.collect::<Result<_>>()?;
        let file = gguf::Plan {
            metadata: metadata(weights, settings, imatrix),
            parts: vec![tensors.len()],
            tensors,
        };
        Ok(Plan { weights, imatrix, rotation: None, conversions, file })
    }

    /// Cuts the file where the source is cut.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the source can't be written.
    pub fn keep_split(&mut self) -> Result<()> {
        self.file.parts = gguf::Plan::of(self.weights)?.parts;
        Ok(())
    }

    /// The formats of matrices that are to be made of blocks, by name: what can be calibrated.
    pub fn block_formats(&self) -> IndexMap<String, &'static Format> {
        let blocks = |conversion: &Conversion| {
            Some((conversion.name.clone(), conversion.to.filter(|to| to.block_len > 1)?))
        };
        self.conversions.iter().filter_map(blocks).collect()
    }

    /// Takes what `calibration` made instead of making it: `made` is the source with other tensors. The file says so, and whoever
    /// resumes it finds out if that was another text.
    pub fn take(&mut self, made: &'a Weights, calibration: &Calibration) {
        self.weights = made;
        for conversion in &mut self.conversions {
            let format = made.tensors.get(&conversion.name).and_then(|entry| entry.format);
            conversion.to = conversion.to.filter(|to| format.is_none_or(|format| format.name != to.name));
        }
        let Calibration { method, text, windows, .. } = calibration;
        let metadata = &mut self.file.metadata;
        metadata.set("hadal.quantize.method", Value::String(method.name().into()));
        let text = format!("{text}, {} windows", windows.len());
        metadata.set("hadal.quantize.calibration", Value::String(text));
    }

    /// Weights of all tensors.
    pub fn weights(&self) -> u64 {
        self.conversions.iter().map(Conversion::weights).sum()
    }

    /// Stored bits for each weight, of all tensors together.
    pub fn bits_per_weight(&self) -> f64 {
        let bytes: u64 = self.conversions.iter().map(|conversion| conversion.bytes).sum();
        bytes as f64 * 8.0 / self.weights().max(1) as f64
    }

    /// Tensors whose format was replaced.
    pub fn replaced(&self) -> impl Iterator<Item = &Conversion> {
        self.conversions.iter().filter(|conversion| conversion.replaced.is_some())
    }

    /// Tensors that are quantized already and will be quantized again, to another format.
    pub fn requantized(&self) -> usize {
        let again = |(conversion, entry): &(&Conversion, &Entry)| {
            let from_blocks = entry.format.is_some_and(|format| format.block_len > 1);
            from_blocks && conversion.to.is_some_and(|format| format.block_len > 1)
        };
        self.conversions.iter().zip(self.weights.tensors.values()).filter(again).count()
    }
}

/// Whether a tensor is a matrix of weights: norms, biases, routers, positions and convolutions keep their type.
pub(super) fn is_matrix(name: &str, entry: &Entry) -> bool {
    const KEPT: &[&str] = &[
        "_norm.weight",
        "ffn_gate_inp.weight",
        "altup",
        "laurel",
        "ssm_conv1d",
        "shortconv.conv.weight",
        "time_mix_",
        "attn_rel_b.weight",
        "position_embd.weight",
        "token_types.weight",
    ];
    let matrix = entry.shape.len() >= 2 && name.ends_with("weight") && entry.format.is_some();
    matrix && !KEPT.iter().any(|part| name.contains(part))
}

/// Chooses formats as the recipe and the flags say.
struct Chooser<'a> {
    weights: &'a Weights,
    settings: &'a Settings,
    /// Whether the output matrix is the embedding.
    tied: bool,
    case: Case,
    layers: usize,
}

impl<'a> Chooser<'a> {
    fn new(weights: &'a Weights, settings: &'a Settings, weighted: bool) -> Self {
        let metadata = &weights.metadata;
        let architecture = metadata.str("general.architecture").ok().flatten().unwrap_or_default();
        let size = |name: &str| metadata.usize(&format!("{architecture}.{name}")).ok().flatten();
        let heads = size("attention.head_count").unwrap_or(1);
        let kv_heads = size("attention.head_count_kv").unwrap_or(heads).max(1);
        Chooser {
            weights,
            settings,
            tied: !weights.tensors.contains_key("output.weight"),
            case: Case {
                index: 0,
                count: 0,
                sharing: heads / kv_heads,
                experts: size("expert_count").unwrap_or(0),
                weighted,
            },
            layers: size("block_count").unwrap_or(0),
        }
    }

    /// A format for every tensor; `None` for those that are kept.
    fn formats(&self) -> Vec<Option<&'static Format>> {
        let tensors = &self.weights.tensors;
        tensors.iter().map(|(name, entry)| self.format(name).filter(|_| is_matrix(name, entry))).collect()
    }

    fn format(&self, name: &str) -> Option<&'static Format> {
        let Settings { output, embedding, tensors, .. } = self.settings;
        if let Some((_, format)) = tensors.iter().find(|(pattern, _)| pattern.is_in(name)) {
            return Some(format);
        }
        let is_embedding = name == "token_embd.weight";
        let is_output = name == "output.weight" || (self.tied && is_embedding);
        match (embedding.filter(|_| is_embedding), output.filter(|_| is_output)) {
            (Some(format), _) | (None, Some(format)) => Some(format),
            (None, None) => self.settings.recipe.map(|recipe| self.mixture(&recipe, name, is_output)),
        }
    }

    /// What `recipe` says.
    fn mixture(&self, recipe: &Recipe, name: &str, is_output: bool) -> &'static Format {
        if self.settings.pure {
            return recipe.base;
        }
        if is_output {
            let columns = self.weights.tensors[name].shape.last().copied().unwrap_or(1);
            let fits = columns.is_multiple_of(recipe.base.block_len) || recipe.base.block_len == 1;
            return if fits { recipe.output } else { &q8_0::FORMAT };
        }
        let Some(role) = Role::of(name) else { return recipe.base };
        let (index, count) = self.place(name, role);
        let format = recipe.format(role, Case { index, count, ..self.case });
        // Llama 2 70B and its like: eight query heads share a key head, so that more bits cost little.
        let large = self.layers == 80 && self.case.sharing > 1 && role == Role::Value;
        let few_bits = [&q3_k::FORMAT, &q4_k::FORMAT].iter().any(|few| few.name == format.name);
        if large && few_bits { &q5_k::FORMAT } else { format }
    }

    /// Which of the tensors of its role this one is, and how many there are: layers count, not the order in the file.
    fn place(&self, name: &str, role: Role) -> (usize, usize) {
        let own = (layer(name), name);
        let same = self.weights.tensors.keys().filter(|other| Role::of(other) == Some(role));
        let places: Vec<_> = same.map(|other| (layer(other), other.as_str())).collect();
        (places.iter().filter(|place| **place < own).count(), places.len())
    }
}

/// The number in `blk.N.`.
fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

pub(super) fn conversion(name: &str, entry: &Entry, wanted: Option<&'static Format>) -> Result<Conversion> {
    let mut format = wanted;
    let columns = entry.shape.last().copied().unwrap_or(1);
    while let Some(chosen) = format.filter(|format| !columns.is_multiple_of(format.block_len)) {
        format = recipe::substitute(chosen);
    }
    let replaced = wanted.filter(|wanted| format.is_some_and(|format| format.name != wanted.name));
    let to = format.filter(|format| entry.format.is_none_or(|own| own.name != format.name));
    let bytes = match to {
        Some(format) => Declared::new(name, &entry.shape, format)?.bytes,
        None => entry.data.len() as u64,
    };
    Ok(Conversion {
        name: name.into(),
        shape: entry.shape.clone(),
        from: entry.type_name.clone(),
        to,
        replaced,
        bytes,
    })
}

/// Refuses what can't be made, and what has to be replaced if that is asked for.
fn check(conversions: &[Conversion], settings: &Settings, imatrix: Option<&Imatrix>) -> Result<()> {
    for conversion in conversions {
        if let Some(format) = conversion.to.filter(|format| !format.has_encoder()) {
            let hint = "weights of this format can be run, not made";
            return Err(Error::unsupported("encoding to", format.name, hint));
        }
        let columns = imatrix.and_then(|imatrix| imatrix.columns(&conversion.name));
        if let Some(format) = conversion.to.filter(|format| format.needs_importance)
            && columns.is_none()
            && !settings.unweighted
        {
            let message = format!(
                "{} of {} needs to know which columns count: measure it with `hadal imatrix`, or force it with \
                 --allow-unweighted",
                format.name, conversion.name
            );
            return Err(Error::option("--imatrix", message));
        }
        if let (true, Some(wanted)) = (settings.strict, conversion.replaced) {
            let columns = conversion.shape.last().copied().unwrap_or(1);
            let message = format!(
                "rows of {columns} are no whole number of blocks of {} ({})",
                wanted.block_len, wanted.name
            );
            return Err(Error::tensor(&conversion.name, message));
        }
        if let Some(columns) = columns {
            importance::check(&conversion.name, &conversion.shape, columns)?;
        }
    }
    Ok(())
}

fn metadata(weights: &Weights, settings: &Settings, imatrix: Option<&Imatrix>) -> Metadata {
    let mut metadata = weights.metadata.clone();
    metadata.set("general.quantization_version", Value::U32(QUANTIZATION_VERSION));
    let file_type =
        settings.recipe.and_then(|recipe| recipe.file_type).filter(|_| settings.target_bpw.is_none());
    match file_type {
        Some(file_type) => metadata.set("general.file_type", Value::U32(file_type)),
        None if settings.recipe.is_none() && settings.target_bpw.is_none() => {}
        None => drop(metadata.0.shift_remove("general.file_type")),
    }
    if let Some(imatrix) = imatrix {
        imatrix.describe(&mut metadata);
    }
    metadata
}
