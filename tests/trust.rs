//! GPUs that fail, and what the program says then. Tests that lose devices on purpose stand apart from those that listen
//! for complaints.

#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::process::{Command, Output};
use std::sync::Arc;

use hadal::backend::Backend;
use hadal::backend::cpu::Activations;
use hadal::backend::gpu::{Adapter, Device, Gpu, Reach};
use hadal::engine::{self, Engine, Options};
use hadal::file::Weights;
use hadal::template::Template;
use hadal::tensor::Tensor;
use hadal::{Error, Sampling};

#[path = "support/gpu.rs"]
mod gpu;

use gpu::found;

static AUSTEN: &[u8] = include_bytes!("../models/austen/austen-q8_0.gguf");

const TEMPLATE: &str = "{% for m in messages %}{{ m.content }}\n{% endfor %}";

/// The Austen model on a device of its own, which can be lost.
fn austen(adapter: &Adapter, device: engine::Device) -> (Arc<Device>, Engine) {
    let opened = Arc::new(Device::open(adapter, Reach::Floor).unwrap());
    let options = Options { device, context: Some(256), ..Options::default() };
    let weights = Weights::from_static("austen", AUSTEN).unwrap();
    let mut engine = Engine::on_device(&weights, &options, &opened).unwrap();
    engine.set_template(Template::new(TEMPLATE).unwrap());
    (opened, engine)
}

fn short() -> Sampling {
    Sampling { max_tokens: Some(8), ..Sampling::greedy() }
}

#[test]
fn the_cpu_takes_over_in_the_middle_of_an_answer() {
    for adapter in found() {
        let (device, mut engine) = austen(adapter, engine::Device::Auto);
        let mut generation = engine.generate("It was a dark night", &short()).unwrap();
        let mut text = generation.next().unwrap().unwrap();
        device.destroy();
        for piece in generation.by_ref() {
            text += &piece.unwrap();
        }
        assert_eq!(generation.stats().generated_tokens, 8);
        drop(generation);
        assert_eq!((engine.device(), engine.gpu_layers()), ("cpu", 0));
        // What the CPU's cache holds is what was said, not what a lost device left of it.
        let mut cpu = Engine::embedded(&Options { context: Some(256), ..Options::default() }).unwrap();
        let expected = cpu.prefill(engine.tokens()).unwrap().to_vec();
        let tokens = engine.tokens().to_vec();
        engine.truncate(tokens.len() - 1);
        assert_eq!(engine.step(*tokens.last().unwrap()).unwrap(), expected, "{text}");
    }
}

#[test]
fn a_lost_device_is_an_error_that_loses_no_conversation() {
    for adapter in found() {
        let (device, mut engine) = austen(adapter, engine::Device::Gpu(None));
        let mut chat = engine.chat();
        chat.send("How do you do?", &short()).for_each(|piece| drop(piece.unwrap()));
        let before = chat.messages().to_vec();
        assert_eq!(before.len(), 2);
        let mut reply = chat.send("And your sisters?", &short());
        reply.next().unwrap().unwrap();
        device.destroy();
        let error = reply.find_map(Result::err).unwrap();
        assert!(matches!(&error, Error::Gpu { device: name, .. } if name == device.name()), "{error}");
        assert!(error.to_string().contains("lost"), "{error}");
        drop(reply);
        assert_eq!(chat.messages(), before);
        assert!(chat.send("Again?", &short()).any(|piece| piece.is_err()));
        assert_eq!(chat.messages(), before);
        let mut cpu = Engine::embedded(&Options::default()).unwrap();
        cpu.set_template(Template::new(TEMPLATE).unwrap());
        let mut chat = cpu.chat();
        chat.set_messages(before);
        chat.send("And your sisters?", &short()).for_each(|piece| drop(piece.unwrap()));
        assert_eq!(chat.messages().len(), 4);
    }
}

/// A kernel for `device`, compiled and run.
fn embed(device: &Arc<Device>) {
    let table = Tensor::from_f32("t", vec![4, 32], &[0.5; 128]).unwrap();
    let gpu = Gpu::new(Arc::clone(device), Activations::default());
    let row = gpu.fetch(gpu.embed(&table, &[2], 2.0).unwrap()).unwrap();
    assert_eq!(row.values(), [1.0; 32]);
}

#[test]
fn compiled_kernels_are_kept_and_damaged_files_are_not_used() {
    for adapter in found() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("new/pipelines");
        let files = || -> Vec<_> {
            let entries = std::fs::read_dir(&place).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).collect()
        };
        let open = || Arc::new(Device::open(adapter, Reach::Adapter).unwrap().with_pipelines_in(&place));
        let device = open();
        embed(&device);
        assert!(device.compile_stats().pipelines == 1 && !device.compile_stats().time.is_zero());
        let keeps = device.keeps_pipelines();
        drop(device);
        assert_eq!(files().len(), usize::from(keeps));
        for file in files() {
            let whole = std::fs::read(&file).unwrap();
            for damaged in [&[][..], &whole[..whole.len() - 1], &[7; 100]] {
                std::fs::write(&file, damaged).unwrap();
                embed(&open());
                assert_eq!(std::fs::read(&file).unwrap()[..8], whole[..8], "written again");
            }
        }
    }
}

fn hadal(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hadal"));
    for name in ["HADAL_MODEL", "HADAL_DEVICE", "HADAL_GPU_LAYERS", "HADAL_GPU_MEMORY", "HADAL_GPU_LIMITS"] {
        command.env_remove(name);
    }
    let cache = tempfile::tempdir().unwrap();
    command.env("HADAL_CACHE_DIR", cache.path()).envs(variables.iter().copied());
    command.args(arguments).output().unwrap()
}

#[test]
fn the_program_chooses_and_says_why() {
    if found().is_empty() {
        return;
    }
    let error = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let run = ["run", "-n", "2", "-c", "64", "A dark night"];
    let with = |flags: &[&'static str]| [&run[..], flags].concat();
    let wrong = [
        (with(&["--device", "gpu:no such thing"]), vec![], "--device: no GPU like that; there is: "),
        (with(&[]), vec![("HADAL_DEVICE", "npu")], "must be cpu, gpu, gpu:NAME or auto"),
        (
            with(&["--device", "gpu"]),
            vec![("HADAL_GPU_LIMITS", "none")],
            "not one of floor, adapter, experimental",
        ),
        (with(&["--device", "gpu", "-ngl", "x"]), vec![], "a whole number, all or auto"),
        (with(&["--device", "gpu", "--gpu-memory", "1M"]), vec![], "no memory for "),
        (with(&["--device", "gpu", "-ngl", "all", "--gpu-memory", "1M"]), vec![], "--gpu-layers"),
    ];
    for (arguments, variables, expected) in wrong {
        let output = hadal(&arguments, &variables);
        assert!(!output.status.success() && error(&output).contains(expected), "{arguments:?}: {output:?}");
    }
    let software = found().iter().all(|adapter| !hadal::backend::gpu::is_hardware(adapter));
    let auto = hadal(&with(&["--device", "auto"]), &[]);
    assert!(auto.status.success() && error(&auto).contains("runs on the CPU") == software, "{auto:?}");
    let some = hadal(&with(&["-ngl", "2"]), &[("HADAL_DEVICE", "gpu"), ("HADAL_GPU_LIMITS", "floor")]);
    assert!(some.status.success(), "{some:?}");
    let doctor = hadal(&["doctor"], &[("HADAL_GPU_LIMITS", "floor")]);
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let expected = [
        "buffer 256 MiB, binding 128 MiB",
        "HADAL_GPU_LIMITS=floor",
        "cooperative matrices: ",
        "self-test of attention: ok",
        "GB/s",
        "kernels",
    ];
    let missing: Vec<_> = expected.iter().filter(|part| !text.contains(**part)).collect();
    assert!(doctor.status.success() && missing.is_empty(), "{missing:?} in {text}");
}
