//! Any bytes are judged as the reference crate judges them; what opens can be read.
#![no_main]

use hadal::file::Weights;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let reference = safetensors::SafeTensors::deserialize(bytes).is_ok();
    match Weights::from_safetensors("fuzz.safetensors", bytes.to_vec()) {
        Ok(weights) => {
            assert!(reference);
            for name in weights.tensors.keys() {
                if let Ok(tensor) = weights.tensor(name) {
                    tensor.to_f32().expect("an accepted tensor has its bytes");
                }
            }
        }
        Err(error) => assert!(!reference && !error.to_string().contains('\n')),
    }
});
