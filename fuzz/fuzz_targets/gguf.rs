//! Any bytes open as GGUF or are refused in one line; what opens can be read.
#![no_main]

use hadal::file::Weights;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match Weights::from_bytes("fuzz.gguf", bytes.to_vec()) {
        Ok(weights) => {
            for name in weights.tensors.keys() {
                if let Ok(tensor) = weights.tensor(name) {
                    tensor.to_f32().expect("an accepted tensor has its bytes");
                }
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
