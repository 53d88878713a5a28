//! Folders quantized by MLX: their matrices are rows of `FORMATS`, with the weights that MLX decodes.

#![allow(clippy::unwrap_used, reason = "a test that cannot do its steps must fail")]

use std::path::Path;

use hadal::file::Weights;
use hadal::quant::FORMATS;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value as Json, json};

#[path = "support/golden.rs"]
mod golden;
#[path = "support/mlx.rs"]
mod mlx;

use golden::Golden;

const MODULE: &str = "model.layers.0.mlp.down_proj";
const OURS: &str = "blk.0.ffn_down.weight";

/// Tensors of a folder: name, type, shape, bytes.
type Tensors = Vec<(String, Dtype, Vec<usize>, Vec<u8>)>;

fn folder(config: &Json, tensors: &Tensors) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, &folder.path().join("model.safetensors")).unwrap();
    folder
}

fn config(quantization: &Json) -> Json {
    json!({"model_type": "llama", "quantization": quantization})
}

/// The parts of golden `prefix`, as the module's.
fn parts(file: &str, prefix: &str) -> Tensors {
    let bytes = std::fs::read(Path::new("tests/data/mlx").join(file)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let part = |name: &str, part: &str| {
        let view = file.tensor(&format!("{prefix}.{part}")).ok()?;
        Some((format!("{MODULE}.{name}"), view.dtype(), view.shape().to_vec(), view.data().to_vec()))
    };
    [part("weight", "packed"), part("scales", "scales"), part("biases", "biases")]
        .into_iter()
        .flatten()
        .collect()
}

fn decoded(file: &str, name: &str, dtype: &str) -> Vec<f32> {
    let golden = Golden::open(file);
    match dtype {
        "f32" => golden.get::<f32>(name).values,
        "f16" => golden.get::<half::f16>(name).values.iter().map(|value| value.to_f32()).collect(),
        _ => golden.get::<half::bf16>(name).values.iter().map(|value| value.to_f32()).collect(),
    }
}

/// Bits that products and sums in this type are rounded to, and its smallest step.
fn precision(dtype: &str) -> (f32, f32) {
    match dtype {
        "f32" => (0.0, 0.0),
        "f16" => (1.0 / 2048.0, 1.0 / (1 << 24) as f32),
        _ => (1.0 / 256.0, 0.0),
    }
}

#[test]
fn affine_modules_have_the_weights_of_mlx() {
    for dtype in ["f32", "f16", "bf16"] {
        for (bits, group) in FORMATS.iter().filter_map(|format| mlx::affine(format)) {
            let prefix = format!("{dtype}.b{bits}g{group}");
            let parts = parts("mlx_affine.safetensors", &prefix);
            let folder = folder(&config(&json!({"bits": bits, "group_size": group})), &parts);
            let weights = Weights::open(folder.path()).unwrap();
            let tensor = weights.tensor(OURS).unwrap();
            assert_eq!(tensor.format().name, format!("affine{bits}_g{group}"));
            assert_eq!(tensor.shape(), [6, 256]);
            assert_eq!(weights.tensors.len(), 1);
            if group != 64 {
                continue;
            }
            let expected = decoded("mlx/mlx_affine.safetensors", &format!("{prefix}.dequant"), dtype);
            let (relative, smallest) = precision(dtype);
            // MLX rounds the product and the sum to the type; the product may be twice the largest weight.
            let found = tensor.to_f32().unwrap();
            for (found, expected) in found.chunks(64).zip(expected.chunks(64)) {
                let largest = expected.iter().fold(0.0f32, |most, value| most.max(value.abs()));
                let limit = 4.0 * relative * largest + smallest;
                for (found, expected) in found.iter().zip(expected) {
                    assert!((found - expected).abs() <= limit, "{prefix}: {found} {expected}");
                }
            }
        }
    }
}

#[test]
fn float_modules_have_the_weights_of_mlx() {
    for (mode, bits, group) in [("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)] {
        for dtype in ["f32", "f16", "bf16"] {
            let prefix = format!("{dtype}.{mode}");
            let parts = parts("mlx_fp_modes.safetensors", &prefix);
            let settings = json!({"bits": bits, "group_size": group, "mode": mode});
            let folder = folder(&config(&settings), &parts);
            let tensor = Weights::open(folder.path()).unwrap().tensor(OURS).unwrap();
            assert_eq!(tensor.format().name, mode);
            let expected = decoded("mlx/mlx_fp_modes.safetensors", &format!("{prefix}.dequant"), dtype);
            for (i, (found, expected)) in tensor.to_f32().unwrap().iter().zip(&expected).enumerate() {
                let limit = if dtype == "f16" { 1.0 / (1 << 24) as f32 } else { 0.0 };
                assert!((found - expected).abs() <= limit, "{prefix} {i}: {found} {expected}");
            }
        }
    }
}

#[test]
fn modules_have_settings_of_their_own() {
    let parts = parts("mlx_affine.safetensors", "f16.b3g32");
    let own = |own: Json| json!({"bits": 4, "group_size": 64, "mode": "mxfp4", MODULE: own});
    for name in [MODULE, "language_model.model.layers.0.mlp.down_proj"] {
        let mut settings = own(Json::Null);
        settings.as_object_mut().unwrap().shift_remove(MODULE);
        settings[name] = json!({"bits": 3, "group_size": 32});
        let folder = folder(&config(&settings), &parts);
        let weights = Weights::open(folder.path()).unwrap();
        assert_eq!(weights.tensor(OURS).unwrap().format().name, "affine3_g32", "{name}");
    }
    let refused = |settings: Json, parts: &Tensors| {
        let folder = folder(&config(&settings), parts);
        Weights::open(folder.path()).unwrap_err().to_string()
    };
    let without = |name: &str| -> Tensors {
        parts.iter().filter(|part| part.0 != format!("{MODULE}.{name}")).cloned().collect()
    };
    let three = json!({"bits": 3, "group_size": 32});
    for (settings, parts, words) in [
        (own(json!(false)), parts.clone(), "says that it is not quantized"),
        (own(json!({"bits": 7})), parts.clone(), "has 7 bits in groups of 64 as affine"),
        (own(json!({"bits": 3, "group_size": 48})), parts.clone(), "has 3 bits in groups of 48"),
        (own(json!({"bits": "three"})), parts.clone(), "gives it bits"),
        (own(json!({"bits": 4})), parts.clone(), "do not fit"),
        (own(json!({"mode": "trellis9"})), parts.clone(), "quantized as trellis9"),
        (three.clone(), without("biases"), "no biases"),
        (three.clone(), without("weight"), "is missing"),
        (json!({"bits": 8, "group_size": 32, "mode": "mxfp8"}), without("biases"), "where mxfp8 has U8"),
    ] {
        let message = refused(settings, &parts);
        assert!(message.contains(words) && message.contains(MODULE), "{message}");
    }
    let folder = folder(&json!({"model_type": "llama"}), &parts);
    let message = Weights::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("config.json has no quantization"), "{message}");
}
