//! Which vector instructions run: detected once, overridden by `HADAL_ISA`, handed down as an [`Isa`] so that
//! nothing below asks again.

use crate::error::{Error, Result};

pub(crate) mod vector;

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) mod wasm32;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

/// An instruction set that kernels are written for. All of them give the same bits; they differ in speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust: the specification that the others are tested against.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C (Haswell, Zen and later).
    Avx2,
    /// `Avx2` with AVX-VNNI: sums of four products of bytes, 32 bytes at once (Alder Lake, Zen 5 and later).
    AvxVnni,
    /// `Avx2` with AVX-512 F, BW, DQ, VL and VNNI (Ice Lake, Zen 4 and later).
    Avx512,
    /// aarch64: NEON is part of it.
    Neon,
    /// `Neon` with SDOT and UDOT: sums of four products of bytes (Cortex-A76, Apple M1 and later).
    Dotprod,
    /// `Dotprod` with I8MM: 2x8 by 8x2 products of byte matrices (Neoverse V1, Apple M2 and later).
    I8mm,
    /// wasm32 compiled with `-C target-feature=+simd128`: a module cannot ask what runs it.
    Simd128,
}

impl Isa {
    /// Every instruction set, those of one architecture slowest first.
    pub const ALL: [Isa; 8] =
        [Isa::Scalar, Isa::Avx2, Isa::AvxVnni, Isa::Avx512, Isa::Neon, Isa::Dotprod, Isa::I8mm, Isa::Simd128];

    /// The name that `HADAL_ISA` takes and `bench` prints.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avxvnni",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
            Isa::Dotprod => "dotprod",
            Isa::I8mm => "i8mm",
            Isa::Simd128 => "simd128",
        }
    }

    /// Whether this CPU can run it. One that is named as an addition to another is available only with that.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => Isa::Avx2.is_available() && is_x86_feature_detected!("avxvnni"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => true,
            #[cfg(target_arch = "aarch64")]
            Isa::Dotprod => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(target_arch = "aarch64")]
            Isa::I8mm => Isa::Dotprod.is_available() && std::arch::is_aarch64_feature_detected!("i8mm"),
            #[cfg(target_arch = "wasm32")]
            Isa::Simd128 => cfg!(target_feature = "simd128"),
            _ => false, // of another architecture
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
