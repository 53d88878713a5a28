//! Any config.json, beside tensors of an MLX-quantized module and of a plain one: what opens can be read, or says in one line
//! why not.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use hadal::file::Weights;
use hadal::model;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

const MODULE: &str = "model.layers.0.mlp.down_proj";

/// Codes, scales and biases that fit 4 bits in groups of 64, 8 in groups of 32 or of 128, and their like, by shape alone.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("hadal-fuzz-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (codes, numbers) = (vec![0x5a; 4 * 2 * 32], vec![0x2a; 2 * 2 * 4]);
    let tensors = [
        (format!("{MODULE}.weight"), TensorView::new(Dtype::U32, vec![2, 32], &codes)),
        (format!("{MODULE}.scales"), TensorView::new(Dtype::F16, vec![2, 4], &numbers)),
        (format!("{MODULE}.biases"), TensorView::new(Dtype::F16, vec![2, 4], &numbers)),
        ("model.norm.weight".to_owned(), TensorView::new(Dtype::F16, vec![8], &numbers)),
    ];
    let views = tensors.into_iter().map(|(name, view)| (name, view.expect("as many bytes as it says")));
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).expect("a file");
    folder
});

libfuzzer_sys::fuzz_target!(|config: &[u8]| {
    std::fs::write(FOLDER.join("config.json"), config).expect("a file");
    match Weights::open(&*FOLDER) {
        Ok(weights) => {
            for name in weights.tensors.keys() {
                if let Ok(tensor) = weights.tensor(name) {
                    tensor.to_f32().expect("an accepted tensor has its bytes");
                }
            }
            drop(model::load(&weights));
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
