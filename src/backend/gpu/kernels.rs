//! [`KERNELS`], the table of shaders: one WGSL file and one row each.

use super::compose::{Composed, Permutation, compose};
use crate::cache::KINDS;
use crate::error::{Error, Result};
use crate::quant::Format;

/// A row of the table.
#[derive(Debug)]
pub struct Kernel {
    /// File and entry point.
    pub name: &'static str,
    /// Path and text of the file.
    file: (&'static str, &'static str),
}

macro_rules! files {
    ($($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../../wgsl/", $path, ".wgsl")))),*]
    };
}

macro_rules! kernels {
    ($($constant:ident $name:literal)*) => {
        $(
            #[doc = concat!("`", $name, ".wgsl`.")]
            pub static $constant: Kernel = Kernel {
                name: $name,
                file: (
                    concat!("kernels/", $name),
                    include_str!(concat!("../../../wgsl/kernels/", $name, ".wgsl")),
                ),
            };
        )*
        /// Every kernel.
        pub static KERNELS: &[&Kernel] = &[$(&$constant),*];
    };
}

kernels! {
    EMBED "embed"
    PREPARE "prepare"
    MATVEC "matvec"
    MATMUL "matmul"
    NORM_ADD "norm_add"
    APPEND "append"
    CONVERT "convert"
    ATTENTION "attention"
    COMBINE "combine"
    SOFTCAP "softcap"
    BEST "best"
}

/// What kernels and formats import.
static LIBRARY: &[(&str, &str)] = files![
    "lib/affine" "lib/bytes" "lib/cache" "lib/codebook" "lib/cooperative" "lib/divide" "lib/dots" "lib/e2m1" "lib/encode"
    "lib/fives" "lib/floats" "lib/grid" "lib/halves" "lib/iq4" "lib/k" "lib/lanes" "lib/nibbles" "lib/pairs" "lib/source" "lib/stream" "lib/tables"
    "lib/to_stream" "lib/trellis" "lib/turn" "lib/unpacked" "lib/weights" "lib/words"
];

/// The format, of weights or of caches only.
fn format(name: &str) -> Option<&'static Format> {
    let stores = KINDS.iter().flat_map(|kind| [kind.keys, kind.values]).flatten();
    Format::by_name(name).or_else(|| stores.map(|store| store.format).find(|format| format.name == name))
}

fn file(path: &str) -> Option<(&'static str, &'static str)> {
    if let Some(name) = path.strip_prefix("quant/") {
        let format = format(name)?;
        return Some((format.name, format.shader?));
    }
    if let Some(name) = path.strip_prefix("encode/") {
        let format = format(name)?;
        return Some((format.name, format.encode_shader?));
    }
    let kernels = KERNELS.iter().map(|kernel| kernel.file);
    LIBRARY.iter().copied().chain(kernels).find(|(name, _)| *name == path)
}

impl Kernel {
    /// The shader of a permutation.
    ///
    /// # Errors
    /// [`Error::Shader`] with file and line.
    pub fn compose(&self, permutation: &Permutation) -> Result<Composed> {
        compose(self.file.0, permutation, &file)
    }

    /// The composed shader as naga reads it.
    ///
    /// # Errors
    /// [`Error::Shader`] with file and line of the original.
    pub fn parse(&self, composed: &Composed) -> Result<naga::Module> {
        naga::front::wgsl::parse_str(&composed.text).map_err(|error| {
            let line = error.location(&composed.text).map_or(0, |location| location.line_number as usize);
            Error::Shader { place: composed.origin(line), message: error.message().to_string() }
        })
    }
}
