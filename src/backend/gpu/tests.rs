//! Every permutation that the backend may ask for is good WGSL, and good in the languages of all drivers.

use std::collections::BTreeMap;

use naga::Module;
use naga::valid::{ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

use super::WORKGROUP;
use super::compose::Permutation;
use super::kernels::{KERNELS, Kernel};
use crate::quant::{FORMATS, Format};
use translate::{TARGETS, Target};

mod codes;
mod translate;

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
        "matvec" => cross(&[&["", "CODES"], source, &["", "BIAS"], &["", "ADD"]]),
        "matmul" => cross(&[&["", "INT8"], &["", "BIAS"], &["", "ADD"]]),
        "prepare" => cross(&[source, &["", "CODES"]]),
        "norm_add" => vec![vec!["NORMED"]],
        "append" => cross(&[&["", "F16"], &["", "NORMED"], &["", "INTERLEAVED"]]),
        "attention" => cross(&[&["", "F16"], &["", "SINKS", "SPLIT"]]),
        "combine" => cross(&[&["", "SINKS"]]),
        "best" => cross(&[&["", "PAIRS"]]),
        _ => vec![vec![]],
    }
}

fn formats(kernel: &Kernel, flags: &[&str]) -> Vec<Option<&'static str>> {
    let imports = ["embed", "matvec", "matmul"].contains(&kernel.name);
    let integer = flags.contains(&"CODES") || flags.contains(&"INT8");
    let fits = |format: &&&Format| {
        format.shader.is_some() && !(integer && ["f32", "f16", "bf16", "mxfp8"].contains(&format.name))
    };
    if imports { FORMATS.iter().filter(fits).map(|format| Some(format.name)).collect() } else { vec![None] }
}

fn consts(quant: Option<&str>) -> Vec<(&'static str, u32)> {
    let dot = quant.and_then(Format::by_name).and_then(|format| format.dot.as_ref());
    let input = dot.map_or(256, |dot| dot.input.block_len as u32);
    let sizes =
        [("K", 256), ("LANES", 8), ("ROWS", 32), ("TOKENS", 32), ("DIM", 64), ("INPUT", input), ("EACH", 48)];
    let heads = [("HEADS", 6), ("KV_HEADS", 2), ("PAIRS", 32), ("CAPACITY", 512), ("WORKGROUP", WORKGROUP)];
    let tiles = [("QUERIES", 8), ("KEYS", 32)];
    sizes.into_iter().chain(heads).chain(tiles).collect()
}

/// Every permutation, with flags beyond the floor or without, and what naga makes of it.
fn each_permutation(
    beyond: &[&'static str],
    mut check: impl FnMut(&Kernel, &Permutation, Result<Module, String>),
) {
    for kernel in KERNELS {
        for flags in flag_sets(kernel) {
            for quant in formats(kernel, &flags) {
                let permutation =
                    Permutation { quant, flags: [&flags[..], beyond].concat(), consts: consts(quant) };
                let composed = kernel.compose(&permutation).map_err(|error| error.to_string());
                let parse = |composed| kernel.parse(&composed).map_err(|error| error.to_string());
                check(kernel, &permutation, composed.and_then(parse));
            }
        }
    }
}

fn validate(module: &Module, target: &Target) -> Result<ModuleInfo, String> {
    let mut validator = Validator::new(ValidationFlags::all(), target.capabilities);
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    validator.validate(module).map_err(|error| error.emit_to_string(""))
}

#[test]
fn every_permutation_is_valid_and_translated() {
    let (mut count, mut wrong) = (0, Vec::new());
    for target in &TARGETS {
        each_permutation(target.flags, |kernel, permutation, module| {
            count += 1;
            let check = |module: &Module| {
                let info = validate(module, target)?;
                translate::all(module, &info, kernel.name, target)
            };
            if let Err(error) = module.as_ref().map_err(Clone::clone).and_then(check) {
                let Permutation { quant, flags, .. } = permutation;
                wrong.push(format!("{}, {} {quant:?} {flags:?}: {error}", target.name, kernel.name));
            }
        });
    }
    assert!(wrong.is_empty(), "{} of {count}: {}", wrong.len(), wrong[..wrong.len().min(12)].join("\n"));
    assert!(count > 1000, "{count}");
}

/// One line an interface, with the permutations that have it counted.
#[test]
fn interfaces_are_as_they_were() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    each_permutation(&[], |_, _, module| {
        let interface = module.map_or_else(|error| error, |module| translate::interface(&module));
        *found.entry(interface).or_default() += 1;
    });
    let lines: Vec<_> = found.iter().map(|(interface, count)| format!("{interface} ({count})")).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn every_format_of_weights_has_a_shader() {
    for format in FORMATS.iter().filter(|format| format.dot.is_some()) {
        assert!(format.shader.is_some(), "{}", format.name);
    }
}
