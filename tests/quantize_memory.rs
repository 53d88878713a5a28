//! What quantizing takes of the heap: about one tensor, however large the model. The source is in a map, whose pages the system
//! takes back as it likes.

use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

use hadal::file::Weights;
use hadal::quant::{Format, f16};
use hadal::quantize::folder::{Folder, Target};
use hadal::quantize::{Plan, Recipe, Run, Settings, Start};

#[path = "support/counting.rs"]
mod counting;
#[expect(dead_code, reason = "others use the rest")]
#[path = "support/real.rs"]
mod models;

use counting::Counting;
use models::{SMOLLM2, real};

/// What all threads hold, and the most that they held.
static HELD: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);

fn count(bytes: isize) {
    let held = HELD.fetch_add(bytes, Relaxed) + bytes;
    MOST.fetch_max(held, Relaxed);
}

#[global_allocator]
static ALLOCATOR: Counting = Counting(count);

/// The most bytes that `work` held beyond what there was before.
fn extra(work: impl FnOnce()) -> u64 {
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    work();
    u64::try_from(MOST.load(Relaxed) - before).expect("a maximum")
}

const MIB: u64 = 1 << 20;

/// One test, since all that runs in this process is counted.
#[test]
fn quantizing_holds_one_tensor() {
    let Some(path) = real(SMOLLM2) else { return };
    let place = tempfile::tempdir().expect("a folder");
    let weights = Weights::open(&path).expect("SmolLM2");
    for name in ["q8_0", "q4_k_m", "f16"] {
        let plan = Plan::new(&weights, &Settings::new(Recipe::by_name(name)), None).expect("a plan");
        // Those that keep their format are copied from the map.
        let made = plan.conversions.iter().filter(|conversion| conversion.to.is_some());
        let largest = made.map(|conversion| conversion.bytes).max().expect("tensors");
        let file = plan.file.bytes().expect("a size");
        let found = extra(|| {
            let mut run = Run::new(&plan, &place.path().join(name), Some(2), Start::Anew).expect("a start");
            run.by_ref().for_each(|step| {
                step.expect("a step");
            });
            run.finish().expect("an end");
        });
        // Beside it a row for each thread, and before it the head of the file, which has the vocabulary.
        let head = 5 * MIB;
        println!("{name}: {found} bytes for tensors of at most {largest}, in a file of {file}");
        assert!(
            (largest..largest + head).contains(&found),
            "{name}: {found}, the largest tensor has {largest}"
        );
        assert!(found < file / 3);
    }
    // MLX's way is by the folder's floats: one tensor as halves, as blocks and as the parts of blocks.
    let target = Target {
        matrices: Format::by_name("affine4_g64").expect("a format"),
        floats: &f16::FORMAT,
        shard: u64::MAX,
    };
    let folder = Folder::new(&weights, target).expect("a plan");
    let largest = 2 * weights
        .tensors
        .values()
        .map(|entry| entry.shape.iter().product::<usize>())
        .max()
        .expect("tensors") as u64;
    let found = extra(|| {
        folder.write(&place.path().join("mlx"), Some(2), Start::Anew, |_| Ok(())).expect("a folder");
    });
    println!("affine4_g64: {found} bytes for tensors of at most {largest} as halves");
    assert!((largest..largest * 2).contains(&found), "{found}, the largest tensor has {largest}");
}
