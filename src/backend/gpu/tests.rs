//! Every permutation that the backend may ask for is good WGSL, and good in the languages of all drivers.

use std::collections::BTreeMap;

use naga::Module;
use naga::valid::{ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

use super::WORKGROUP;
use super::cache::DeviceCache;
use super::compose::Permutation;
use super::kernels::{KERNELS, Kernel};
use crate::cache::{CacheType, KINDS, LayerCache, LayerShape};
use crate::quant::{FORMATS, Format};
use translate::{TARGETS, Target};

mod codes;
mod stored;
mod translate;

/// Flag sets that exclude each other, and what stands beside them and the flags `beyond` the floor.
fn flag_sets(kernel: &Kernel, beyond: &[&str]) -> Vec<Vec<&'static str>> {
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
    if beyond.contains(&"COOPERATIVE") {
        let products = || cross(&[&["INT8"], &["", "SIXTEEN"], &["", "BIAS"], &["", "ADD"]]);
        return if kernel.name == "matmul" { products() } else { vec![] };
    }
    match kernel.name {
        "matvec" => {
            let mut sets = cross(&[&["", "CODES"], source, &["", "BIAS"], &["", "ADD"]]);
            sets.extend(cross(&[&["PREPARED"], &["", "BIAS"], &["", "ADD"]]));
            sets
        }
        "matmul" => cross(&[&["", "INT8"], &["", "BIAS"], &["", "ADD"]]),
        "prepare" => cross(&[source, &["", "CODES"]]),
        "norm_add" => vec![vec!["NORMED"]],
        "append" => cross(&[&["", "NORMED"], &["", "INTERLEAVED"]]),
        "attention" => cross(&[&["", "SINKS", "SPLIT"]]),
        "combine" => cross(&[&["", "SINKS"], &["", "TURNED"]]),
        "best" => cross(&[&["", "PAIRS"]]),
        _ => vec![vec![]],
    }
}

fn formats(kernel: &Kernel, flags: &[&str]) -> Vec<Option<&'static str>> {
    let imports = ["embed", "matvec", "matmul"].contains(&kernel.name);
    let integer = ["CODES", "PREPARED", "INT8"].iter().any(|flag| flags.contains(flag));
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
    let tiles = [("QUERIES", 8), ("KEYS", 32), ("LOADED", 16)];
    sizes.into_iter().chain(heads).chain(tiles).collect()
}

/// Caches whose shaders are composed: each kind alike for keys and values, and what mixes.
fn caches(kernel: &Kernel) -> Vec<Option<LayerCache>> {
    if !["append", "attention"].contains(&kernel.name) {
        return vec![None];
    }
    let mixed = ["q8_0/turbo2", "q4_0:rot/f16", "f32/turbo5", "turbo8/bf16"];
    let kinds = CacheType::all().chain(mixed.map(|kind| kind.parse().expect("a kind")));
    let shape = LayerShape { heads: 2, dim: 64, window: None };
    kinds.map(|kind| Some(LayerCache::new(shape, kind, 512).expect("a small cache"))).collect()
}

/// `permutation` for `cache`.
fn with_cache(mut permutation: Permutation, kernel: &Kernel, cache: Option<&LayerCache>) -> Permutation {
    let Some(cache) = cache else { return permutation };
    let of_cache = DeviceCache::permutation(cache).expect("heads that fit");
    permutation.cache = of_cache.cache;
    permutation.consts.extend(of_cache.consts);
    if kernel.name == "append" {
        permutation.flags.extend(DeviceCache::turn_flags(cache));
    } else {
        permutation.flags.extend(DeviceCache::read_flags(cache));
    }
    permutation
}

/// Each kind of row made of halves, and halves of each.
fn conversions() -> Vec<Permutation> {
    let half = CacheType::F16.stores()[0];
    let stores = KINDS.iter().flat_map(|kind| [kind.keys, kind.values]).flatten();
    let both = stores.flat_map(|store| [(half, store), (store, half)]);
    both.map(|(from, to)| DeviceCache::conversion(from, to, 64).expect("heads that fit")).collect()
}

fn permutations(kernel: &Kernel, beyond: &[&'static str]) -> Vec<Permutation> {
    let mut found = Vec::new();
    for flags in flag_sets(kernel, beyond) {
        if kernel.name == "convert" {
            found.extend(conversions());
            continue;
        }
        for cache in caches(kernel) {
            for quant in formats(kernel, &flags) {
                let flags = flags.clone();
                let permutation =
                    Permutation { quant, flags, consts: consts(quant), ..Permutation::default() };
                found.push(with_cache(permutation, kernel, cache.as_ref()));
            }
        }
    }
    found.iter_mut().for_each(|permutation| permutation.flags.extend(beyond));
    found
}

/// Every permutation, with flags beyond the floor or without, and what naga makes of it.
fn each_permutation(
    beyond: &[&'static str],
    mut check: impl FnMut(&Kernel, &Permutation, Result<Module, String>),
) {
    for kernel in KERNELS {
        for permutation in permutations(kernel, beyond) {
            let composed = kernel.compose(&permutation).map_err(|error| error.to_string());
            let parse = |composed| kernel.parse(&composed).map_err(|error| error.to_string());
            check(kernel, &permutation, composed.and_then(parse));
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
                let Permutation { quant, cache, flags, .. } = permutation;
                wrong
                    .push(format!("{}, {} {quant:?} {cache:?} {flags:?}: {error}", target.name, kernel.name));
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
    for (beyond, note) in [(&[][..], ""), (&["COOPERATIVE"], " by cooperative matrices")] {
        each_permutation(beyond, |_, _, module| {
            let interface = module.map_or_else(|error| error, |module| translate::interface(&module));
            *found.entry(interface + note).or_default() += 1;
        });
    }
    let lines: Vec<_> = found.iter().map(|(interface, count)| format!("{interface} ({count})")).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn every_format_of_weights_has_a_shader() {
    for format in FORMATS.iter().filter(|format| format.dot.is_some()) {
        assert!(format.shader.is_some(), "{}", format.name);
    }
}

#[test]
fn every_kind_of_cache_has_shaders() {
    for store in KINDS.iter().flat_map(|kind| [kind.keys, kind.values]).flatten() {
        let format = store.format;
        assert!(format.shader.is_some() && format.encode_shader.is_some(), "{}", format.name);
    }
}
