//! Models in files that are read in pieces when they are asked for, as a browser has them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hadal::file::Weights;
use hadal::file::gguf::{self, Plan};
use hadal::tensor::ReadAt;
use hadal::{Engine, Options};

/// A file in memory that counts what is read of it.
#[derive(Debug)]
struct Counted {
    bytes: Vec<u8>,
    read: AtomicU64,
}

impl ReadAt for Counted {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let part = self.bytes.get(offset as usize..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        self.read.fetch_add(into.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

type Named = (PathBuf, Arc<Counted>);

fn file(path: &Path) -> Named {
    let bytes = std::fs::read(path).expect("a file");
    (path.into(), Arc::new(Counted { bytes, read: AtomicU64::new(0) }))
}

fn open(files: &[Named]) -> hadal::Result<Weights> {
    Weights::from_files(files.iter().map(|(path, file)| (path.clone(), Arc::clone(file) as _)).collect())
}

fn austen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/austen/austen-q8_0.gguf")
}

fn logits(engine: hadal::Result<Engine>) -> Vec<u32> {
    let mut engine = engine.expect("a whole model");
    engine.prefill(&[3, 5, 8]).expect("room").iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn only_what_is_asked_for_is_read() {
    let files = [file(&austen())];
    let weights = open(&files).expect("a whole model");
    let read = || files[0].1.read.load(Ordering::Relaxed);
    assert!(read() < (1 << 20) + 64, "{} bytes for a header", read());
    let options = Options::default();
    let expected = logits(Engine::embedded(&options));
    assert_eq!(logits(Engine::from_weights(&weights, &options)), expected);
    // Both ends of each tensor for its fingerprint, and then each once.
    let all = files[0].1.size();
    assert!(read() > all && read() < all + (2 << 20), "{} of {all} bytes", read());
    for entry in weights.tensors.values() {
        entry.data.hold().expect("readable");
    }
}

#[test]
fn parts_of_a_split_model_are_given_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = Weights::open(austen()).expect("a model");
    let mut plan = Plan::of(&whole).expect("a model that can be written");
    plan.split(2 << 20);
    let mut writer = gguf::Writer::create(&folder.path().join("m.gguf"), &plan).expect("a place");
    for entry in whole.tensors.values() {
        writer.tensor(&entry.data).expect("as declared");
    }
    writer.finish().expect("room");
    let mut files: Vec<Named> =
        plan.paths(&folder.path().join("m.gguf")).iter().map(|path| file(path)).collect();
    assert!(files.len() > 2);
    let weights = open(&files).expect("all parts");
    let options = Options::default();
    assert_eq!(logits(Engine::from_weights(&weights, &options)), logits(Engine::embedded(&options)));

    files.swap(0, 1);
    let error = open(&files).expect_err("out of order").to_string();
    assert!(error.contains("its place in the list says part 1 of"), "{error}");
    let error = open(&files[..1]).expect_err("a part alone").to_string();
    assert!(error.contains("of a split model"), "{error}");
    assert!(open(&[]).is_err());
}

#[test]
fn a_file_that_is_cut_is_an_error() {
    let (path, whole) = file(&austen());
    let cut = |bytes: usize| {
        (path.clone(), Arc::new(Counted { bytes: whole.bytes[..bytes].to_vec(), read: AtomicU64::new(0) }))
    };
    for bytes in [0, 3, 24, 10_000, whole.bytes.len() - 64] {
        let error = open(&[cut(bytes)]).expect_err("a part of a file").to_string();
        assert!(error.contains("austen-q8_0.gguf"), "{error}");
    }
}
