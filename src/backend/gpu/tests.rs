//! Every permutation that the backend may ask for is good WGSL.

use super::WORKGROUP;
use super::compose::Permutation;
use super::kernels::{KERNELS, Kernel};
use crate::quant::{FORMATS, Format};

/// Flag sets that exclude each other, and what stands beside them.
fn flag_sets(kernel: &Kernel) -> Vec<Vec<&'static str>> {
    let cross = |groups: &[&[&'static str]]| {
        groups.iter().fold(vec![vec![]], |sets: Vec<Vec<_>>, group| {
            let with = |set: &Vec<&'static str>, flag: &&'static str| {
                let mut set = set.clone();
                set.extend((!flag.is_empty()).then_some(*flag));
                set
            };
            sets.iter().flat_map(|set| group.iter().map(move |flag| with(set, flag))).collect()
        })
    };
    let source: &[&str] = &["", "NORMED", "SILU", "GELU"];
    match kernel.name {
        "matvec" => cross(&[source, &["", "BIAS"], &["", "ADD"]]),
        "matmul" => cross(&[&["", "INT8"], &["", "BIAS"], &["", "ADD"]]),
        "prepare" => cross(&[source, &["", "INT8"]]),
        "norm_add" => vec![vec!["NORMED"]],
        "append" => cross(&[&["", "F16"], &["", "NORMED"], &["", "INTERLEAVED"]]),
        "attention" => cross(&[&["", "F16"], &["", "SINKS"]]),
        _ => vec![vec![]],
    }
}

fn formats(kernel: &Kernel, flags: &[&str]) -> Vec<Option<&'static str>> {
    let imports = ["embed", "matvec", "matmul"].contains(&kernel.name);
    let integer = kernel.name == "matvec" || flags.contains(&"INT8");
    let fits = |format: &&&Format| {
        format.shader.is_some() && !(integer && ["f32", "f16", "bf16"].contains(&format.name))
    };
    if imports { FORMATS.iter().filter(fits).map(|format| Some(format.name)).collect() } else { vec![None] }
}

fn consts() -> Vec<(&'static str, u32)> {
    let sizes = [("K", 256), ("LANES", 8), ("ROWS", 32), ("TOKENS", 32), ("DIM", 64)];
    let heads = [("HEADS", 6), ("KV_HEADS", 2), ("PAIRS", 32), ("CAPACITY", 512), ("WORKGROUP", WORKGROUP)];
    sizes.into_iter().chain(heads).collect()
}

#[test]
fn every_permutation_is_valid_at_the_floor() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for kernel in KERNELS {
        for flags in flag_sets(kernel) {
            for quant in formats(kernel, &flags) {
                let permutation = Permutation { quant, flags: flags.clone(), consts: consts() };
                count += 1;
                if let Err(error) = validate(kernel, &permutation) {
                    wrong.push(format!("{} {quant:?} {flags:?}: {error}", kernel.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}: {}", wrong.len(), wrong[..wrong.len().min(12)].join("\n"));
    assert!(count > 500, "{count}");
}

fn validate(kernel: &Kernel, permutation: &Permutation) -> Result<(), String> {
    let composed = kernel.compose(permutation).map_err(|error| error.to_string())?;
    let module = kernel.parse(&composed).map_err(|error| error.to_string())?;
    let capabilities = naga::valid::Capabilities::empty();
    let mut validator = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities);
    validator.validate(&module).map_err(|error| error.emit_to_string(&composed.text))?;
    let names: Vec<_> = module.entry_points.iter().map(|entry| entry.name.as_str()).collect();
    if names == [kernel.name] { Ok(()) } else { Err(format!("entry points {names:?}")) }
}

#[test]
fn every_format_of_weights_has_a_shader() {
    for format in FORMATS.iter().filter(|format| format.dot.is_some()) {
        assert!(format.shader.is_some(), "{}", format.name);
    }
}
