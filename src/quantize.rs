//! Making quantized files: what a file will hold is planned first ([`Plan`]), then tensor after tensor is decoded, encoded
//! and written ([`Run`]), so that no more than one is in memory. The bytes are the same for any number of threads, and
//! whether the work was interrupted or not.

use crate::error::{Error, Result};
use crate::quant::Format;

mod allocate;
mod calibrate;
mod cholesky;
mod collect;
mod feedback;
pub mod folder;
mod guard;
mod hessian;
pub mod imatrix;
mod journal;
mod plan;
mod recipe;
mod rotate;
mod run;
pub mod sensitivity;
mod state;

pub use calibrate::{Calibrated, Calibration, Made};
pub use collect::Collector;
pub use feedback::{Feedback, Method};
pub use guard::Fallback;
pub use imatrix::Imatrix;
pub use plan::{Conversion, Plan};
pub use recipe::{RECIPES, Recipe};
pub use rotate::{Fold, Rotation, SEED_KEY, signs};
pub use run::{Run, Start};
pub use sensitivity::Sensitivity;

/// `general.quantization_version`: the layouts of ggml's blocks (`GGML_QNT_VERSION`).
const QUANTIZATION_VERSION: u32 = 2;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The mixture; without one, matrices keep their type.
    pub recipe: Option<Recipe>,
    /// One format for all matrices, whatever the recipe says.
    pub pure: bool,
    /// Instead of the recipe's: the output matrix, or the embedding where that is one and the same.
    pub output: Option<&'static Format>,
    /// Instead of the recipe's: the embedding.
    pub embedding: Option<&'static Format>,
    /// Instead of everything above: tensors whose name matches. The first that does counts.
    pub tensors: Vec<(NamePattern, &'static Format)>,
    /// Formats are chosen by what they cost in accuracy, so that the file has this many bits per weight at most.
    pub target_bpw: Option<f64>,
    /// What matrices cost in accuracy; without it, the errors of their weights are taken for it.
    pub sensitivity: Option<Sensitivity>,
    /// Refuse where a format has to be replaced by another.
    pub strict: bool,
    /// Make formats that need importance without it.
    pub unweighted: bool,
}

impl Settings {
    /// What `recipe` alone says.
    pub fn new(recipe: Option<Recipe>) -> Settings {
        Settings {
            recipe,
            pure: false,
            output: None,
            embedding: None,
            tensors: Vec::new(),
            target_bpw: None,
            sensitivity: None,
            strict: false,
            unweighted: false,
        }
    }
}

/// A regular expression that is looked for in tensor names.
#[derive(Clone, Debug)]
pub struct NamePattern(regex_automata::meta::Regex);

impl NamePattern {
    /// # Errors
    /// [`Error::Option`] if `pattern` is none.
    pub fn new(pattern: &str) -> Result<NamePattern> {
        let wrong = |error| Error::option("a pattern of names", format!("{pattern:?}: {error}"));
        regex_automata::meta::Regex::new(pattern).map(NamePattern).map_err(wrong)
    }

    /// Whether it is somewhere in `name`.
    pub fn is_in(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}
