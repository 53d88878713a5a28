//! Rotations folded into weights: signs, transforms and folds against the seed's numbers (`tests/data/mlx`), and logits that
//! stay.

#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::path::Path;

use hadal::cache::CacheType;
use hadal::convert::for_gguf;
use hadal::engine::{Engine, Options};
use hadal::file::Weights;
use hadal::math::hadamard;
use hadal::quantize::{Plan, Recipe, Rotation, Run, Settings, Start, signs};
use hadal::simd::Isa;
use half::bf16;

#[path = "support/golden.rs"]
mod golden;
use golden::{Golden, same};

#[test]
fn signs_are_those_of_the_stream() {
    let golden = Golden::open("mlx/rotation.safetensors");
    for (seed, n, lane) in [
        (0, 64, 0),
        (1, 96, 0),
        (123, 256, 17),
        (2_147_483_648, 64, 64),
        (42, 128, 3),
        (42, 2048, 0),
        (42, 5120, 0),
        (42, 64, 0),
        (42, 64, 1),
        (u32::MAX, 64, 0),
    ] {
        let found: Vec<i8> = signs(seed, n, lane).iter().map(|&sign| sign as i8).collect();
        assert_eq!(found, golden.get::<i8>(&format!("sign.{seed}.{n}.{lane}")).values, "{seed} {n} {lane}");
    }
}

#[test]
fn transforms_of_every_order_have_the_bits_of_the_reference() {
    let golden = Golden::open("mlx/hadamard.safetensors");
    for n in [64, 96, 128, 160, 224, 256, 512, 1024, 1536, 2048, 2560, 5120, 7168] {
        let (x, y) = (golden.get::<f32>(&format!("x.{n}")), golden.get::<f32>(&format!("y.{n}")));
        for isa in Isa::available() {
            for (x, y) in x.iter().zip(y.iter()) {
                let mut found = x.to_vec();
                hadamard::transform_order(isa, &mut found);
                let wrong = found.iter().zip(y).position(|(found, y)| !same(*found, *y));
                assert!(
                    wrong.is_none(),
                    "{n} {isa:?} {wrong:?}: {} {}",
                    found[wrong.unwrap()],
                    y[wrong.unwrap()]
                );
            }
        }
    }
    for n in [0, 9, 576, 36, 44] {
        assert!(!hadamard::has_order(n), "{n}");
    }
}

/// Makes a file of `source`, rotated or not.
fn write(source: &Path, target: &Path, recipe: &str, seed: Option<u32>) -> hadal::Result<()> {
    let mut weights = for_gguf(Weights::open(source)?)?;
    let rotation = seed.map(|seed| Rotation::new(&mut weights, seed)).transpose()?;
    let mut plan = Plan::new(&weights, &Settings::new(Some(Recipe::by_name(recipe).unwrap())), None)?;
    plan.rotation = rotation.as_ref();
    let mut run = Run::new(&plan, target, Some(2), Start::Anew)?;
    run.by_ref().try_for_each(|step| step.map(drop))?;
    run.finish()
}

/// A tiny Llama as a folder.
fn llama(folder: &Path) {
    let golden = Golden::open("mlx/model_llama3_tied.safetensors");
    golden.write_weights(&folder.join("model.safetensors"));
    std::fs::write(folder.join("config.json"), golden.metadata("config")).unwrap();
}

/// Names there and here.
const NAMES: &[(&str, &str)] = &[
    ("mlp.down_proj", "ffn_down"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
];

#[test]
fn a_folded_llama_has_the_weights_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    llama(folder.path());
    let mut weights = Weights::open(folder.path()).unwrap();
    let rotation = Rotation::new(&mut weights, 42).unwrap();
    let settings = Settings::new(Some(Recipe::by_name("bf16").unwrap()));
    let mut plan = Plan::new(&weights, &settings, None).unwrap();
    plan.rotation = Some(&rotation);
    let target = folder.path().join("folded.gguf");
    let mut run = Run::new(&plan, &target, Some(2), Start::Anew).unwrap();
    run.by_ref().try_for_each(|step| step.map(drop)).unwrap();
    run.finish().unwrap();

    let golden = Golden::open("mlx/llama_folded.safetensors");
    let folded = Weights::open(&target).unwrap();
    let check = |there: &str, here: &str| {
        let expected: Vec<f32> =
            golden.get::<bf16>(there).values.iter().map(|value| value.to_f32()).collect();
        let tensor = folded.tensor(here).unwrap();
        let mut found = vec![0.0; expected.len()];
        tensor.format().decode(tensor.bytes(), &mut found).unwrap();
        let wrong = found.iter().zip(&expected).filter(|(found, expected)| found != expected).count();
        assert_eq!(wrong, 0, "{here}: {wrong} of {}", found.len());
    };
    check("model.embed_tokens.weight", "token_embd.weight");
    check("lm_head.weight", "output.weight");
    check("model.norm.weight", "output_norm.weight");
    for layer in 0..2 {
        for (there, here) in NAMES {
            check(&format!("model.layers.{layer}.{there}.weight"), &format!("blk.{layer}.{here}.weight"));
        }
    }
}

#[test]
fn a_folded_model_keeps_its_logits() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new("tests/data/austen");
    let (plain, folded) = (folder.path().join("plain.gguf"), folder.path().join("folded.gguf"));
    write(source, &plain, "f32", None).unwrap();
    write(source, &folded, "f32", Some(42)).unwrap();
    let options = Options { cache: CacheType::F32, ..Options::default() };
    let ids: Vec<u32> = Golden::open("austen/logits.safetensors").ids("ids");
    let score = |path: &Path| Engine::open_with(path, &options).unwrap().score(&ids).unwrap();
    let (expected, found) = (score(&plain), score(&folded));
    let differences = expected.values().iter().zip(found.values()).map(|(a, b)| (a - b).abs());
    let most = differences.fold(0.0, f32::max);
    assert!(most < 1e-4, "{most}");
    // And not because nothing was done.
    let table =
        |path: &Path| Weights::open(path).unwrap().tensor("token_embd.weight").unwrap().bytes().to_vec();
    assert_ne!(table(&plain), table(&folded));
    let message = write(&folded, &folder.path().join("twice.gguf"), "f32", Some(1)).unwrap_err().to_string();
    assert!(message.contains("rotated already"), "{message}");
}

#[test]
fn quantized_models_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let few = folder.path().join("few.gguf");
    write(Path::new("tests/data/austen"), &few, "q8_0", None).unwrap();
    let message = write(&few, &folder.path().join("folded.gguf"), "f32", Some(42)).unwrap_err().to_string();
    assert!(message.contains("Q8_0 already") && message.contains("--type f32"), "{message}");
}
