//! Rows of caches as the device stores them: byte for byte what the CPU stores.

use std::sync::Arc;

use crate::backend::cpu::{Activations, Cpu};
use crate::backend::gpu::{Device, Gpu, Reach, Rows, adapters};
use crate::backend::{Backend, Heads, Hidden, Rotation};
use crate::cache::{CacheType, KvCache, LayerShape, LayerState};

const HEADS: usize = 2;
const TOKENS: usize = 24;
const CAPACITY: usize = 40;

/// Rows of all sizes: noise, and what rounds to between two codes; groups of zeros and of tiny numbers that are all alike.
fn rows(seed: u64, dim: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut values: Vec<f32> = (0..TOKENS * HEADS * dim).map(|_| random.f32() * 2.0 - 1.0).collect();
    for (index, group) in values.chunks_mut(32).enumerate() {
        let size = 2.0f32.powi(index as i32 % 29 - 14);
        match index % 5 {
            0 => group.iter_mut().for_each(|value| *value *= size),
            // Halves of steps, of symmetric codes and of others.
            1 => {
                group.iter_mut().for_each(|value| *value = (*value * 254.0).round() / 2.0);
                (group[index % 32], group[(index + 9) % 32]) = (127.0, -127.0);
            }
            2 => group.iter_mut().for_each(|value| *value = (*value * 15.0).round() / 2.0 + 10.0),
            3 => group.iter_mut().for_each(|value| *value = *value * 0.01 + size),
            _ => {}
        }
    }
    values[..128].fill(0.0);
    values[128..160].fill(1e-12);
    values
}

/// Queries (which are the keys), keys and values of the rows `from..to` side by side, as a device wants them.
fn heads(ops: &dyn Backend, dim: usize, from: usize, to: usize) -> Heads {
    let width = HEADS * dim;
    let [keys, values] = [1, 2].map(|seed| rows(seed, dim)[from * width..to * width].to_vec());
    let Some(gpu) = ops.gpu() else {
        let hidden = |values: &[f32]| Hidden::new(values.to_vec(), width);
        return Heads { query: hidden(&keys), key: hidden(&keys), value: hidden(&values) };
    };
    let joined = keys.chunks(width).zip(values.chunks(width));
    let joined: Vec<f32> = joined.flat_map(|(key, value)| [key, key, value].concat()).collect();
    let gpu = Gpu::new(Arc::clone(gpu), Activations::Float);
    let place =
        gpu.place(&ops.hold(Hidden::new(joined, 3 * width)).expect("rows")).expect("rows of a device");
    let part = |index| Gpu::hidden(to - from, width, Rows { offset: index * width, ..place.clone() });
    Heads { query: part(0), key: part(1), value: part(2) }
}

/// Appends the rows `from..to`, which nothing rotates.
fn append(ops: &dyn Backend, cache: &mut KvCache, dim: usize, from: usize, to: usize) {
    let turns = [vec![1.0; dim / 2], vec![0.0; dim / 2]].concat().repeat(to - from);
    let turns = ops.hold(Hidden::new(turns, dim)).expect("turns");
    let rotation = Rotation { turns, interleaved: false };
    let mut heads = heads(ops, dim, from, to);
    ops.append(cache.layer(0), &mut heads, [None, None], &rotation).expect("kernels that compile");
}

/// In pieces of at most `most` rows, some of them anew after a step back.
fn append_all(ops: &dyn Backend, cache: &mut KvCache, dim: usize, most: usize) {
    for (kept, from, to) in [(0, 0, 9), (9, 11, 20), (7, 7, 8), (8, 8, TOKENS)] {
        cache.truncate(kept);
        for first in (from..to).step_by(most) {
            append(ops, cache, dim, first, to.min(first + most));
        }
    }
}

#[test]
fn rows_are_those_of_the_cpu() {
    let cpu = Cpu::new(Some(1), None, Activations::Float).expect("a CPU");
    let open = |reach| {
        adapters().iter().map(|adapter| Device::open(adapter, reach).expect("a device").into()).collect()
    };
    let (floor, native): (Vec<Arc<Device>>, Vec<_>) = (open(Reach::Floor), open(Reach::Adapter));
    let more = ["turbo4/turbo5", "turbo5/turbo2", "turbo2/turbo8"].map(|kind| kind.parse().expect("a kind"));
    for kind in CacheType::all().chain(more) {
        // Kernels are compiled for each size, which takes a software device some seconds.
        let some = ["q8_0", "q4_0:rot", "turbo:k8v3"].contains(&kind.to_string().as_str());
        check(&cpu, &floor, kind, 64, TOKENS);
        for dim in [32, 128, 256, 512].into_iter().filter(|_| some) {
            check(&cpu, &native, kind, dim, TOKENS);
        }
    }
}

#[test]
fn rows_in_several_parts_are_those_of_the_cpu() {
    let cpu = Cpu::new(Some(1), None, Activations::Float).expect("a CPU");
    // 4 KiB hold 15 tokens in halves, 30 in Q8_0, and two rows of what is appended.
    let open = |adapter| Arc::new(Device::open_with_bindings(adapter, 4096).expect("a device"));
    let devices: Vec<_> = adapters().iter().map(open).collect();
    for kind in [CacheType::F32, CacheType::F16, CacheType::TURBO, "q8_0/bf16".parse().expect("a kind")] {
        check(&cpu, &devices, kind, 64, 2);
    }
}

/// Rows that were dense, or of codes that both decode alike, become what they become on the CPU: on devices with all they
/// have, at the floor, and with parts of other sizes before and after.
#[test]
fn converted_rows_are_those_of_the_cpu() {
    let cpu = Cpu::new(Some(1), None, Activations::Float).expect("a CPU");
    let cut = |adapter| Device::open_with_bindings(adapter, 4096);
    for adapter in &adapters() {
        let cut: Arc<Device> = cut(adapter).expect("a device").into();
        let native: Arc<Device> = Device::open(adapter, Reach::Adapter).expect("a device").into();
        for kind in CacheType::all() {
            convert(&cpu, &cut, CacheType::F16, kind, 64);
        }
        for kind in
            ["f32", "q8_0", "turbo:k4v2", "q4_0:rot/affine4"].map(|kind| kind.parse().expect("a kind"))
        {
            convert(&cpu, &native, CacheType::F32, kind, 128);
            convert(&cpu, &native, "q8_0/bf16".parse().expect("a kind"), kind, 128);
        }
    }
}

fn convert(cpu: &Cpu, device: &Arc<Device>, from: CacheType, to: CacheType, dim: usize) {
    let shape = LayerShape { heads: HEADS, dim, window: None };
    let gpu = Gpu::new(Arc::clone(device), Activations::Float);
    let convert = |ops: &dyn Backend| {
        let mut cache = KvCache::new(&[shape], from, CAPACITY).expect("a cache");
        append_all(ops, &mut cache, dim, 2);
        let before = ops.stored(&cache.layers()[0]).expect("rows");
        cache.convert(to, |_, layer| ops.convert(layer, to)).expect("heads that fit");
        assert_eq!((cache.kind(), cache.layers()[0].kind()), (to, to));
        (before, ops.stored(&cache.layers()[0]).expect("rows"))
    };
    let ((same_before, found), (before, expected)) = (convert(&gpu), convert(cpu));
    let what = format!("{from} to {to}, heads of {dim}, on {}", device.name());
    assert!(same_before == before, "{what}: other rows to begin with");
    assert_eq!((found.first, found.len), (expected.first, expected.len), "{what}");
    same(&format!("keys of {what}"), &found.keys, &expected.keys);
    same(&format!("values of {what}"), &found.values, &expected.values);
}

fn check(cpu: &Cpu, devices: &[Arc<Device>], kind: CacheType, dim: usize, most: usize) {
    let shape = LayerShape { heads: HEADS, dim, window: None };
    let Ok(mut expected) = KvCache::new(&[shape], kind, CAPACITY) else {
        return assert_eq!(dim, 32, "{kind}");
    };
    append_all(cpu, &mut expected, dim, most);
    let expected = cpu.stored(&expected.layers()[0]).expect("rows here");
    for device in devices {
        let gpu = Gpu::new(Arc::clone(device), Activations::Float);
        let mut found = KvCache::new(&[shape], kind, CAPACITY).expect("a cache");
        append_all(&gpu, &mut found, dim, most);
        let found = gpu.stored(&found.layers()[0]).expect("rows on the device");
        let what = format!("{kind}, heads of {dim}");
        assert_eq!((found.first, found.len), (expected.first, expected.len), "{what}");
        same(&format!("keys of {what}"), &found.keys, &expected.keys);
        same(&format!("values of {what}"), &found.values, &expected.values);
        let mut again = KvCache::new(&[shape], kind, CAPACITY).expect("a cache");
        let LayerState { first, len, keys, values } = &found;
        let state = LayerState { first: *first, len: *len, keys: &keys[..], values: &values[..] };
        gpu.store(again.layer(0), &state).expect("its own rows");
        assert!(gpu.stored(&again.layers()[0]).expect("rows on the device") == found, "{what}, stored");
    }
}

fn same(what: &str, found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let wrong: Vec<_> = (0..found.len()).filter(|&i| found[i] != expected[i]).collect();
    let show: Vec<_> = wrong.iter().take(8).map(|&i| (i, found[i], expected[i])).collect();
    assert!(wrong.is_empty(), "{what}: {} bytes differ: {show:?}", wrong.len());
}
