//! Which vector instructions run: detected once, overridden by `HADAL_ISA`, handed down as an [`Isa`] so that
//! nothing below asks again.

use crate::error::{Error, Result};

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

/// An instruction set that kernels are written for. All of them give the same bits; they differ in speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust: the specification that the others are tested against.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C (Haswell, Zen and later).
    Avx2,
}

impl Isa {
    /// Every instruction set that we have kernels for, slowest first.
    pub const ALL: [Isa; 2] = [Isa::Scalar, Isa::Avx2];

    /// The name that `HADAL_ISA` takes and `bench` prints.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
        }
    }

    /// Whether this CPU can run it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 => false,
        }
    }

    /// The instruction sets of this CPU, slowest first.
    pub fn available() -> impl Iterator<Item = Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// The fastest one of this CPU, or the one that the environment variable `HADAL_ISA` names.
    ///
    /// # Errors
    /// [`Error::Option`] if `HADAL_ISA` names none that this CPU can run.
    pub fn detect() -> Result<Isa> {
        match std::env::var("HADAL_ISA") {
            Ok(name) => Isa::available().find(|isa| isa.name() == name).ok_or_else(|| {
                let known: Vec<_> = Isa::available().map(Isa::name).collect();
                Error::option("HADAL_ISA", format!("{name:?} is not one of {}", known.join(", ")))
            }),
            Err(_) => Ok(Isa::available().last().unwrap_or(Isa::Scalar)),
        }
    }
}
