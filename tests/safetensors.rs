//! Safetensors files: what the reference crate accepts opens, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hadal::file::Weights;
use proptest::prelude::*;

mod support {
    pub mod safetensors;
}
use support::safetensors::{file, floats};

/// D08 and D09.
#[test]
fn what_the_reference_accepts_is_accepted() {
    let huge = [&(1u64 << 40).to_le_bytes()[..], b"{}"].concat();
    let long = [&1000u64.to_le_bytes()[..], b"{}"].concat();
    let order = r#"{"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let zero = r#"{"z":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#;
    let none = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,0]}}"#;
    let scalar = r#"{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;
    let gap = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    let cases = [
        ("D08 zero size", file(zero, 16), true),
        ("D08 no bytes", file(none, 0), false),
        ("D08 scalar", file(scalar, 4), true),
        ("D09 2^40", huge, false),
        ("D09 past the end", long, false),
        ("D09 order", file(order, 8), true),
        ("a hole", file(gap, 8), false),
        ("too long", file(scalar, 5), false),
        ("too short", file(scalar, 3), false),
        ("empty", vec![], false),
        ("no tensors", file("{}", 0), true),
    ];
    let mut failures = Vec::new();
    for (case, bytes, accepted) in cases {
        let reference = safetensors::SafeTensors::deserialize(&bytes).is_ok();
        let opened = Weights::from_safetensors("test.safetensors", bytes);
        if opened.is_ok() != accepted || reference != accepted {
            failures.push(format!("{case}: reference {reference}, here {opened:?}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn shapes_bytes_and_types_are_kept() {
    let header = r#"{"__metadata__":{"format":"pt"},"i":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},
        "h":{"dtype":"BF16","shape":[2,1],"data_offsets":[16,20]},"s":{"dtype":"F16","shape":[],"data_offsets":[20,22]},
        "q":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[22,25]}}"#;
    let mut bytes = file(header, 25);
    let start = bytes.len() - 25;
    bytes[start + 16..start + 20].copy_from_slice(&[0x80, 0x3f, 0x00, 0xc0]);
    bytes[start + 20..start + 22].copy_from_slice(&[0x00, 0x3c]);
    let weights = Weights::from_safetensors("test.safetensors", bytes).unwrap();
    assert_eq!(weights.metadata.str("format").unwrap(), Some("pt"));
    let listed: Vec<_> = weights
        .tensors
        .iter()
        .map(|(name, e)| (name.as_str(), e.type_name.as_str(), e.shape.as_slice(), e.offset, e.data.len()))
        .collect();
    let at = |offset: usize| (start + offset) as u64;
    let expected: [(&str, &str, &[usize], u64, usize); 4] = [
        ("i", "I64", &[2], at(0), 16),
        ("h", "BF16", &[2, 1], at(16), 4),
        ("s", "F16", &[], at(20), 2),
        ("q", "F8_E4M3", &[3], at(22), 3),
    ];
    assert_eq!(listed, expected);
    assert_eq!(weights.tensor("h").unwrap().to_f32().unwrap(), [1.0, -2.0]);
    assert_eq!(weights.tensor("s").unwrap().to_f32().unwrap(), [1.0]);
    assert!(weights.tensor("i").unwrap_err().to_string().contains("I64"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn damaged_files_are_judged_as_the_reference_does(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let mut bytes = floats(&[("a", &[2, 2], 1.0), ("b", &[], 2.0), ("c", &[0, 3], 3.0)]);
        for (at, bits) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        let reference = safetensors::SafeTensors::deserialize(&bytes).is_ok();
        let opened = Weights::from_safetensors("damaged.safetensors", bytes.clone());
        prop_assert_eq!(opened.is_ok(), reference);
        if let Err(error) = opened {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}
