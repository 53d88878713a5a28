//! Hostile headers cost no memory: opening a small file allocates at most 1 MiB beyond the file's own size.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;

use hadal::file::Weights;

mod support {
    pub mod counting;
    pub mod gguf;
}
use support::counting::Counting;
use support::gguf::{File, Value};

thread_local! {
    /// What this thread holds, and the most that it held: two cells that are made without allocating.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    MOST.set(MOST.get().max(held));
}

#[global_allocator]
static ALLOCATOR: Counting = Counting(count);

/// The most bytes that opening `bytes` held beyond `bytes` itself.
fn extra(bytes: Vec<u8>) -> isize {
    let before = HELD.get();
    MOST.set(before);
    drop(Weights::from_bytes("hostile.gguf", bytes));
    MOST.get() - before
}

const MIB: isize = 1 << 20;

#[test]
fn counting_counts() {
    let before = HELD.get();
    MOST.set(before);
    drop(std::hint::black_box(vec![0u8; 3 << 20]));
    assert!(MOST.get() - before >= 3 * MIB);
}

#[test]
fn hostile_files_allocate_little() {
    let counts = |tensors, keys| {
        let mut file = File::new();
        (file.tensor_count, file.key_count) = (Some(tensors), Some(keys));
        file
    };
    let array = |kind: u32, count: u64, rest: usize| {
        let header = [&kind.to_le_bytes()[..], &count.to_le_bytes(), &vec![0; rest]].concat();
        File::new().key("k", Value::Raw(9, header))
    };
    let many = 100_000;
    let empty_texts = Value::Raw(8, u64::MAX.to_le_bytes().to_vec());
    let mut cases = vec![
        ("tensors", counts(1 << 60, 0)),
        ("keys", counts(0, 1 << 61)),
        ("both", counts(u64::MAX, u64::MAX)),
        ("a text", File::new().key("k", empty_texts)),
        ("a large tensor", File::new().tensor("t", &[1 << 40], 0, vec![])),
        ("bytes widened to u64", array(0, many, many as usize)),
        ("empty texts", array(8, many / 8, many as usize)),
        ("empty arrays", array(9, many / 12, many as usize)),
    ];
    for kind in 0..14 {
        for count in [1 << 20, 1 << 40, 1 << 61, u64::MAX / 8, u64::MAX] {
            cases.push(("an array", array(kind, count, 100)));
        }
    }
    let mut failures = Vec::new();
    for (case, file) in cases {
        let bytes = file.bytes();
        let (length, extra) = (bytes.len(), extra(bytes));
        if extra > MIB {
            failures.push(format!("{case}: {extra} bytes beyond a file of {length}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Larger files: what an array becomes in memory stays within the file's size and 1 MiB, or it is refused.
#[test]
fn widened_arrays_stay_within_the_file_and_a_mebibyte() {
    for (case, kind, count, bytes) in
        [("bytes", 0u32, 4 << 20, 4 << 20), ("texts", 8, 1 << 20, 8 << 20), ("u16", 2, 4 << 20, 8 << 20)]
    {
        let value = [&kind.to_le_bytes()[..], &u64::to_le_bytes(count), &vec![0; bytes]].concat();
        let file = File::new().key("k", Value::Raw(9, value)).bytes();
        let (length, extra) = (file.len() as isize, extra(file));
        assert!(extra <= length + MIB, "{case}: {extra} bytes beyond a file of {length}");
    }
}
