//! Damaged files: a valid file, cut, flipped and spliced at random, opens or is refused and never panics.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hadal::file::Weights;
use proptest::prelude::*;
use proptest::sample::Index;

mod support {
    pub mod gguf;
}
use support::gguf::{File, Value};

/// Files that use every part of the format.
fn valid() -> Vec<Vec<u8>> {
    let keys = File::new()
        .key("general.architecture", Value::text("llama"))
        .key("tokens", Value::texts(&["a", "bc", ""]))
        .key("scores", Value::Array(6, vec![Value::F32(0.0); 5]))
        .key("nested", Value::Array(9, vec![Value::Array(7, vec![Value::Bool(true)])]))
        .key("n", Value::U64(3));
    let tensors =
        keys.clone().f32("a", &[1.0; 4]).tensor("q", &[32, 2], 2, vec![7; 36]).tensor("x", &[3], 200, vec![]);
    let shared = File::new().tensor("s", &[128, 8], 42, vec![1; 272]).tensor("tiny", &[128], 42, vec![1; 34]);
    let split = File::new().aligned(8).key("split.count", Value::U16(2)).f32("a", &[1.0]);
    [tensors, shared, split, keys].iter().map(File::bytes).collect()
}

#[derive(Clone, Debug)]
enum Damage {
    Cut(Index),
    Flip(Index, u8),
    /// A copy of a stretch over another place.
    Splice {
        from: Index,
        length: usize,
        to: Index,
    },
    /// A number where the file may have a count, a size or an offset.
    Number(Index, u64),
}

fn damage() -> impl Strategy<Value = Damage> {
    let number = prop_oneof![
        any::<u64>(),
        (0u32..64).prop_map(|shift| 1 << shift),
        (0u32..64).prop_map(|shift| u64::MAX >> shift),
    ];
    prop_oneof![
        1 => any::<Index>().prop_map(Damage::Cut),
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        2 => (any::<Index>(), 1usize..64, any::<Index>())
            .prop_map(|(from, length, to)| Damage::Splice { from, length, to }),
        4 => (any::<Index>(), number).prop_map(|(at, number)| Damage::Number(at, number)),
    ]
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match self {
            Damage::Cut(at) => bytes.truncate(at.index(length)),
            Damage::Flip(at, bits) => bytes[at.index(length)] ^= bits,
            Damage::Splice { from, length: stretch, to } => {
                let (from, to) = (from.index(length), to.index(length));
                let stretch = (*stretch).min(length - from).min(length - to);
                bytes.copy_within(from..from + stretch, to);
            }
            Damage::Number(at, number) => {
                let at = at.index(length);
                let number = number.to_le_bytes();
                let stretch = number.len().min(length - at);
                bytes[at..at + stretch].copy_from_slice(&number[..stretch]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn damaged_files_never_panic(file in 0..4usize, damages in prop::collection::vec(damage(), 1..6)) {
        let mut bytes = valid().swap_remove(file);
        for damage in &damages {
            damage.apply(&mut bytes);
        }
        match Weights::from_bytes("damaged.gguf", bytes) {
            Ok(weights) => {
                for name in weights.tensors.keys() {
                    // What was accepted must also be readable.
                    if let Ok(tensor) = weights.tensor(name) {
                        tensor.to_f32().unwrap();
                    }
                }
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}
