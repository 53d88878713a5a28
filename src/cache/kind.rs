//! How keys and values may be stored: [`KINDS`], a row each, and [`CacheType`], a choice of two of them.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::quant::turbo::{self, keys, values};
use crate::quant::{Format, affine, bf16, f16, f32, q4_0, q8_0};

/// A row of the table: one way to store the rows of keys, of values or of both.
#[derive(Debug)]
pub struct Kind {
    /// As a user types it.
    pub name: &'static str,
    /// What a row of keys becomes; `None` if keys can't be stored so.
    pub keys: Option<Store>,
    /// What a row of values becomes.
    pub values: Option<Store>,
    /// One line for people.
    pub about: &'static str,
}

/// How one row of one head is stored.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    /// What it is encoded in.
    pub format: &'static Format,
    /// Whether it is turned first, see [`turbo::rotate`].
    pub turned: bool,
}

/// Every kind, from most bits to least within a family.
pub static KINDS: &[&Kind] = &[
    &F32, &F16, &BF16, &Q8_0, &Q8_0_ROT, &Q4_0, &Q4_0_ROT, &AFFINE8, &AFFINE4, &TURBO8, &TURBO5, &TURBO4,
    &TURBO3, &TURBO2,
];

static F32: Kind = Kind::of("f32", &f32::FORMAT, false, "full floats, the reference");
static F16: Kind = Kind::of("f16", &f16::FORMAT, false, "halves, no measurable loss");
static BF16: Kind = Kind::of("bf16", &bf16::FORMAT, false, "the upper halves of floats");
static Q8_0: Kind = Kind::of("q8_0", &q8_0::FORMAT, false, "8 bits, ggml's blocks of 32");
static Q8_0_ROT: Kind = Kind::of("q8_0:rot", &q8_0::FORMAT, true, "q8_0 of turned rows");
static Q4_0: Kind = Kind::of("q4_0", &q4_0::FORMAT, false, "4 bits, ggml's blocks of 32");
static Q4_0_ROT: Kind = Kind::of("q4_0:rot", &q4_0::FORMAT, true, "q4_0 of turned rows");
static AFFINE8: Kind = Kind::of("affine8", &affine::A8, false, "8 bits, MLX's blocks of 64");
static AFFINE4: Kind = Kind::of("affine4", &affine::A4, false, "4 bits, MLX's blocks of 64");
static TURBO8: Kind = Kind::turbo("turbo8", Some(&keys::K8), &values::V8, "TurboQuant, 8 bits");
static TURBO5: Kind = Kind::turbo("turbo5", Some(&keys::K5), &values::V5, "TurboQuant, 5 bits");
static TURBO4: Kind = Kind::turbo("turbo4", Some(&keys::K4), &values::V4, "TurboQuant, 4 bits");
static TURBO3: Kind = Kind::turbo("turbo3", None, &values::V3, "TurboQuant, 3 bits: values only");
static TURBO2: Kind = Kind::turbo("turbo2", Some(&keys::K2), &values::V2, "TurboQuant, 2 bits");

impl Kind {
    const fn of(name: &'static str, format: &'static Format, turned: bool, about: &'static str) -> Self {
        let store = Some(Store { format, turned });
        Kind { name, keys: store, values: store, about }
    }

    /// Keys as they are, values turned.
    const fn turbo(
        name: &'static str,
        keys: Option<&'static Format>,
        values: &'static Format,
        about: &'static str,
    ) -> Self {
        let keys = match keys {
            Some(format) => Some(Store { format, turned: false }),
            None => None,
        };
        Kind { name, keys, values: Some(Store { format: values, turned: true }), about }
    }

    /// The row named `name`, whatever its case.
    ///
    /// # Errors
    /// [`Error::Option`] lists the names.
    pub fn by_name(name: &str) -> Result<&'static Kind> {
        KINDS.iter().copied().find(|kind| kind.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
            let message = format!(
                "{name:?} is not one of {}, nor turbo, kXvY or turbo:kXvY, nor two of them as KEYS/VALUES",
                names.join(", ")
            );
            Error::option("--kv", message)
        })
    }

    /// Whether rows stay numbers one by one, at 16 bits or more.
    pub fn is_dense(&self) -> bool {
        self.values.is_some_and(|store| store.format.block_len == 1)
    }
}

impl Store {
    /// Whether codes stand for the numbers of a codebook.
    pub fn has_codebook(self) -> bool {
        values::ALL.iter().any(|&format| std::ptr::eq(format, self.format))
    }

    /// Bytes of a row of `dim` elements.
    ///
    /// # Errors
    /// [`Error::Option`] for heads that can't be stored so.
    pub fn row_bytes(self, dim: usize) -> Result<usize> {
        let name = self.format.name;
        if self.turned && !turbo::DIMS.contains(&dim) {
            let dims = turbo::DIMS.map(|dim| dim.to_string()).join(", ");
            let message =
                format!("{name} of turned rows needs heads of {dims} elements, the model's have {dim}");
            return Err(Error::option("--kv", message));
        }
        let message = || {
            format!(
                "{name} needs heads of a multiple of {} elements, the model's have {dim}",
                self.format.block_len
            )
        };
        self.format.bytes_for(dim).map_err(|_| Error::option("--kv", message()))
    }
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug)]
pub struct CacheType {
    keys: &'static Kind,
    values: &'static Kind,
}

impl CacheType {
    /// IEEE halves: half the memory, no measurable loss.
    pub const F16: CacheType = CacheType { keys: &F16, values: &F16 };
    /// Full floats: the reference.
    pub const F32: CacheType = CacheType { keys: &F32, values: &F32 };
    /// TurboQuant as its authors ship it: keys of 8 bits, values of 3.
    pub const TURBO: CacheType = CacheType { keys: &TURBO8, values: &TURBO3 };

    /// Each kind that stores keys and values alike, then [`CacheType::TURBO`]: what tables list.
    pub fn all() -> impl Iterator<Item = CacheType> {
        let same = KINDS.iter().filter_map(|kind| CacheType::new(kind, kind).ok());
        same.chain([CacheType::TURBO])
    }

    /// Keys as `keys` says, values as `values`.
    ///
    /// # Errors
    /// [`Error::Option`] if `keys` is for values only.
    pub fn new(keys: &'static Kind, values: &'static Kind) -> Result<Self> {
        if keys.keys.is_none() {
            let message = format!("{0} stores values only: give KEYS/{0}", keys.name);
            return Err(Error::option("--kv", message));
        }
        Ok(CacheType { keys, values })
    }

    /// The kind of the keys.
    pub fn keys(self) -> &'static Kind {
        self.keys
    }

    /// The kind of the values.
    pub fn values(self) -> &'static Kind {
        self.values
    }

    /// How rows of keys and of values are stored.
    pub fn stores(self) -> [Store; 2] {
        let keys = self.keys.keys.expect("`new` makes no other");
        [keys, self.values.values.expect("every kind stores values")]
    }

    /// Whether neither keys nor values are quantized.
    pub fn is_dense(self) -> bool {
        self.keys.is_dense() && self.values.is_dense()
    }

    /// What a layer with a sliding window stores instead: its few rows stay dense.
    pub fn of_window(self) -> Self {
        let dense = |kind: &'static Kind| if kind.is_dense() { kind } else { &F16 };
        CacheType { keys: dense(self.keys), values: dense(self.values) }
    }
}

impl Default for CacheType {
    fn default() -> Self {
        CacheType::F16
    }
}

impl PartialEq for CacheType {
    fn eq(&self, other: &Self) -> bool {
        self.keys.name == other.keys.name && self.values.name == other.values.name
    }
}

impl Eq for CacheType {}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = |kind: &Kind| kind.name.strip_prefix("turbo");
        match (bits(self.keys), bits(self.values)) {
            (Some(keys), Some(values)) => write!(f, "turbo:k{keys}v{values}"),
            _ if self.keys.name == self.values.name => f.write_str(self.keys.name),
            _ => write!(f, "{}/{}", self.keys.name, self.values.name),
        }
    }
}

impl FromStr for CacheType {
    type Err = Error;

    /// `KIND`, `KEYS/VALUES`, `turbo`, `kXvY` or `turbo:kXvY`.
    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        if lower == "turbo" {
            return Ok(CacheType::TURBO);
        }
        if let Some((keys, values)) = lower.split_once('/') {
            return CacheType::new(Kind::by_name(keys)?, Kind::by_name(values)?);
        }
        let bits = lower.strip_prefix("turbo:").unwrap_or(&lower).strip_prefix('k');
        if let Some((keys, values)) = bits.and_then(|bits| bits.split_once('v')) {
            let kind = |bits: &str| KINDS.iter().copied().find(|kind| kind.name == format!("turbo{bits}"));
            return match (kind(keys).filter(|kind| kind.keys.is_some()), kind(values)) {
                (Some(keys), Some(values)) => CacheType::new(keys, values),
                _ => {
                    let message =
                        format!("{text:?}: keys of turbo take 2, 4, 5 or 8 bits, values 2, 3, 4, 5 or 8");
                    Err(Error::option("--kv", message))
                }
            };
        }
        let kind = Kind::by_name(&lower)?;
        CacheType::new(kind, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_and_written() {
        for (text, name) in [
            ("f16", "f16"),
            ("F32", "f32"),
            ("turbo", "turbo:k8v3"),
            ("turbo:k4v2", "turbo:k4v2"),
            ("k8v8", "turbo:k8v8"),
            ("turbo4", "turbo:k4v4"),
            ("q8_0/turbo3", "q8_0/turbo3"),
            ("q4_0:rot", "q4_0:rot"),
            ("q8_0/q8_0", "q8_0"),
        ] {
            let kind: CacheType = text.parse().expect(text);
            assert_eq!(kind.to_string(), name, "{text}");
            assert_eq!(name.parse::<CacheType>().expect(name), kind);
        }
    }

    #[test]
    fn wrong_choices_say_what_there_is() {
        for (text, words) in [
            ("q5", "\"q5\" is not one of f32, f16, bf16, q8_0,"),
            ("q8_0/nope", "\"nope\" is not one of"),
            ("turbo3", "turbo3 stores values only: give KEYS/turbo3"),
            ("k3v3", "keys of turbo take 2, 4, 5 or 8 bits, values 2, 3, 4, 5 or 8"),
            ("turbo:k8v6", "keys of turbo take"),
            ("", "\"\" is not one of"),
        ] {
            let error = text.parse::<CacheType>().expect_err(text).to_string();
            assert!(error.starts_with("--kv: ") && error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn heads_that_do_not_fit_are_refused() {
        for (kind, dim, words) in [
            ("q8_0", 80, "q8_0 needs heads of a multiple of 32 elements, the model's have 80"),
            ("affine4", 96, "a multiple of 64"),
            ("q4_0:rot", 32, "q4_0 of turned rows needs heads of 64, 128, 256, 512 elements"),
            ("turbo", 96, "turbo_v3 of turned rows"),
        ] {
            let kind: CacheType = kind.parse().expect(kind);
            let results: Vec<_> = kind.stores().iter().map(|store| store.row_bytes(dim)).collect();
            let error = results.into_iter().find_map(Result::err).expect("a refusal").to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
