//! Making files of other formats: which tensor becomes what, and that the bytes are those of the encoders whatever the
//! threads, the parts and the interruptions.

use std::path::Path;

use hadal::file::{Metadata, Value as Own, Weights};
use hadal::quant::{FORMATS, Format, f32};
use hadal::quantize::{
    Imatrix, NamePattern, Plan, Recipe, Run, Sensitivity, Settings, Start, imatrix::Sums, sensitivity,
};
use support::gguf::{File, Value};

mod support {
    pub mod gguf;
}

const F16: u32 = 1;

/// Numbers without a pattern, as f16.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let values = (0..count).map(|_| half::f16::from_f32(random.f32() - 0.5));
    values.flat_map(half::f16::to_le_bytes).collect()
}

/// A Llama of `layers` layers whose matrices are 16 × 256.
fn llama(layers: usize, kv_heads: u32) -> File {
    let mut file = File::new()
        .key("general.architecture", Value::text("llama"))
        .key("general.file_type", Value::U32(1))
        .key("llama.attention.head_count", Value::U32(8))
        .key("llama.attention.head_count_kv", Value::U32(kv_heads))
        .key("llama.block_count", Value::U32(layers as u32));
    let matrix = |file: File, name: &str| {
        let seed = name.bytes().fold(7, |sum: u64, byte| sum * 31 % 1_000_003 + u64::from(byte));
        file.tensor(name, &[256, 16], F16, noise(seed, 256 * 16))
    };
    file = matrix(file, "token_embd.weight");
    // In reverse, so that the order in the file is not that of the layers.
    for layer in (0..layers).rev() {
        for part in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
            file = matrix(file, &format!("blk.{layer}.{part}.weight"));
        }
        file = file.f32(&format!("blk.{layer}.attn_norm.weight"), &[1.0; 256]);
    }
    matrix(file, "output.weight").f32("output_norm.weight", &[1.0; 256])
}

fn weights(file: &File) -> Weights {
    Weights::from_bytes("test.gguf", file.bytes()).expect("a good file")
}

fn settings(name: &str) -> Settings {
    Settings::new(Some(Recipe::by_name(name).expect("a recipe")))
}

fn types(weights: &Weights, settings: &Settings) -> Vec<(String, String)> {
    let plan = Plan::new(weights, settings, None).expect("a plan");
    plan.conversions.iter().map(|conversion| (conversion.name.clone(), conversion.type_name())).collect()
}

fn type_of(types: &[(String, String)], name: &str) -> String {
    types.iter().find(|(own, _)| own == name).expect("the tensor").1.clone()
}

/// What llama-quantize makes of 16 layers.
#[test]
fn recipes_give_some_tensors_more_bits() {
    let weights = weights(&llama(16, 8));
    let more_bits = [0, 1, 4, 7, 10, 13, 14, 15];
    let cases: [(&str, &str, &[usize], &str, &str); 6] = [
        ("q4_k_m", "ffn_down", &more_bits, "Q6_K", "Q4_K"),
        ("Q4_K", "attn_v", &more_bits, "Q6_K", "Q4_K"),
        ("q4_k_s", "attn_v", &[0, 1, 2, 3], "Q5_K", "Q4_K"),
        ("q4_k_s", "ffn_down", &[0, 1], "Q5_K", "Q4_K"),
        ("q3_k_m", "ffn_down", &[0], "Q5_K", "Q4_K"),
        ("q5_k_m", "attn_q", &[], "", "Q5_K"),
    ];
    for (recipe, part, layers, more, base) in cases {
        let types = types(&weights, &settings(recipe));
        for layer in 0..16 {
            let expected = if layers.contains(&layer) { more } else { base };
            assert_eq!(
                type_of(&types, &format!("blk.{layer}.{part}.weight")),
                expected,
                "{recipe} {layer} {part}"
            );
        }
        assert_eq!(type_of(&types, "output.weight"), "Q6_K", "{recipe}");
        assert_eq!(type_of(&types, "blk.0.attn_norm.weight"), "F32", "{recipe}");
    }
    let shared = weights_shared();
    assert_eq!(type_of(&types(&shared, &settings("q2_k")), "blk.3.attn_v.weight"), "Q4_K");
    assert_eq!(type_of(&types(&weights, &settings("q2_k")), "blk.3.attn_v.weight"), "Q3_K");
    assert_eq!(type_of(&types(&weights, &settings("q8_0")), "output.weight"), "Q8_0");
}

/// Eight query heads on two key heads.
fn weights_shared() -> Weights {
    weights(&llama(4, 2))
}

#[test]
fn flags_come_before_recipes() {
    let weights = weights(&llama(8, 8));
    let q5_1 = Format::by_name("q5_1");
    let pattern = |text: &str| NamePattern::new(text).unwrap();
    let named = Settings {
        output: q5_1,
        embedding: Format::by_name("q4_1"),
        tensors: vec![
            (pattern(r"blk\.[01]\.ffn_down"), Format::by_name("q8_0").unwrap()),
            (pattern("ffn_down"), Format::by_name("q4_0").unwrap()),
        ],
        ..settings("q4_k_m")
    };
    let types = types(&weights, &named);
    assert_eq!(type_of(&types, "output.weight"), "Q5_1");
    assert_eq!(type_of(&types, "token_embd.weight"), "Q4_1");
    assert_eq!(type_of(&types, "blk.1.ffn_down.weight"), "Q8_0");
    assert_eq!(type_of(&types, "blk.2.ffn_down.weight"), "Q4_0");
    let pure = self::types(&weights, &Settings { pure: true, ..settings("q4_k_m") });
    assert!(
        pure.iter().all(|(name, kind)| kind == if name.contains("norm") { "F32" } else { "Q4_K" }),
        "{pure:?}"
    );
}

/// D26.
#[test]
fn rows_that_fit_no_block_get_another_format() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = File::new().key("general.architecture", Value::text("llama"));
    for (index, columns) in [4544, 14464, 1856, 96, 100].into_iter().enumerate() {
        let data = noise(index as u64, columns * 3);
        file = file.tensor(&format!("blk.{index}.ffn_up.weight"), &[columns as u64, 3], F16, data);
    }
    let source = weights(&file);
    let by_name = NamePattern::new("ffn_up").unwrap();
    let asked = [
        settings("q4_k_m"),
        Settings { tensors: vec![(by_name, &hadal::quant::q4_k::FORMAT)], ..settings("q8_0") },
    ];
    for settings in asked {
        let plan = Plan::new(&source, &settings, None).unwrap();
        let names: Vec<_> = plan.conversions.iter().map(|conversion| conversion.type_name()).collect();
        assert_eq!(names, ["Q5_0", "Q5_0", "Q5_0", "Q5_0", "F16"]);
        assert!(
            plan.replaced().count() == 5 && plan.replaced().all(|it| it.replaced.unwrap().name == "q4_k")
        );
        let bits = plan.conversions.iter().map(|it| it.bytes as f64 * 8.0).sum::<f64>();
        assert_eq!(plan.bits_per_weight(), bits / (3.0 * f64::from(4544 + 14464 + 1856 + 96 + 100)));
        let out = folder.path().join("out.gguf");
        make(&plan, &out, 2);
        let made = Weights::open(&out).unwrap();
        for (before, after) in source.tensors.values().zip(made.tensors.values()) {
            assert_eq!(before.shape, after.shape);
        }
        let error = Plan::new(&source, &Settings { strict: true, ..settings }, None).unwrap_err().to_string();
        assert!(error.contains("blk.0.ffn_up.weight") && error.contains("4544"), "{error}");
    }
}

fn make(plan: &Plan, out: &Path, threads: usize) {
    let mut run = Run::new(plan, out, Some(threads), Start::Anew).expect("a run");
    steps(&mut run, usize::MAX);
    run.finish().expect("a file");
}

fn steps(run: &mut Run, count: usize) {
    for step in run.take(count) {
        step.expect("a tensor");
    }
}

#[test]
fn every_format_is_its_encoders_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    let source = weights(&File::new().tensor("a.weight", &[512, 300], F16, noise(1, 512 * 300)));
    let values = source.tensor("a.weight").unwrap().to_f32().unwrap();
    let mut made = 0;
    let usable = |format: &&&Format| format.gguf_id.is_some() && format.has_encoder() && format.dot.is_some();
    for format in FORMATS.iter().filter(usable) {
        let asked = Settings { pure: true, unweighted: true, ..settings(format.name) };
        let plan = Plan::new(&source, &asked, None).unwrap();
        // The recipe IQ2_S has another format than its name for most matrices.
        let format = plan.conversions[0].to.unwrap_or(format);
        let mut expected = vec![0; format.bytes_for(values.len()).unwrap()];
        // Row by row: what a row's weights count for depends on its other weights.
        for (row, out) in values.chunks(512).zip(expected.chunks_mut(format.bytes_for(512).unwrap())) {
            format.encode_for_file(row, None, out).unwrap();
        }
        for threads in [1, 3] {
            make(&plan, &out, threads);
            let written = Weights::open(&out).unwrap();
            assert!(written.tensors["a.weight"].data[..] == expected, "{} {threads}", format.name);
        }
        made += 1;
    }
    assert!(made > 15, "{made} formats");
}

#[test]
fn numbers_that_are_none_are_told_by_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut data = noise(1, 512 * 300);
    data[(512 * 200 + 5) * 2..][..2].copy_from_slice(&half::f16::NAN.to_le_bytes());
    data[(512 * 100 + 7) * 2..][..2].copy_from_slice(&half::f16::INFINITY.to_le_bytes());
    let source = weights(&File::new().tensor("a.weight", &[512, 300], F16, data));
    let plan = Plan::new(&source, &settings("q4_0"), None).unwrap();
    let mut run = Run::new(&plan, &folder.path().join("out.gguf"), Some(3), Start::Anew).unwrap();
    let error = run.next().unwrap().unwrap_err().to_string();
    assert_eq!(error, "tensor a.weight: row 100, column 7 is inf, no finite number");
}

#[test]
fn what_was_stopped_is_resumed_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source.gguf");
    std::fs::write(&path, llama(3, 8).bytes()).unwrap();
    let source = Weights::open(&path).unwrap();
    let plan = Plan::new(&source, &settings("q4_k_m"), None).unwrap();
    let whole = folder.path().join("whole.gguf");
    make(&plan, &whole, 1);
    let whole = std::fs::read(whole).unwrap();
    assert_eq!(
        Plan::new(&source, &settings("q4_k_m"), None).unwrap().file.bytes().unwrap(),
        whole.len() as u64
    );

    let out = folder.path().join("out.gguf");
    let count = plan.conversions.len();
    for stop in [0, 1, 2, count / 2, count - 1, count] {
        let mut run = Run::new(&plan, &out, Some(2), Start::Anew).unwrap();
        steps(&mut run, stop);
        run.pause().unwrap();
        assert!(!out.exists());
        let mut run = Run::new(&plan, &out, Some(1), Start::Resume).unwrap();
        assert_eq!(run.done(), stop);
        steps(&mut run, usize::MAX);
        run.finish().unwrap();
        assert!(std::fs::read(&out).unwrap() == whole, "stopped after {stop}");
        std::fs::remove_file(&out).unwrap();
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "nothing is left over");

    // Another plan begins anew, another source is refused.
    let mut run = Run::new(&plan, &out, None, Start::Anew).unwrap();
    run.next().unwrap().unwrap();
    run.pause().unwrap();
    let other = Plan::new(&source, &settings("q8_0"), None).unwrap();
    assert_eq!(Run::new(&other, &out, None, Start::Resume).unwrap().done(), 0);
    std::fs::write(&path, llama(4, 8).bytes()).unwrap();
    let source = Weights::open(&path).unwrap();
    let plan = Plan::new(&source, &settings("q4_k_m"), None).unwrap();
    let error = Run::new(&plan, &out, None, Start::Resume).unwrap_err().to_string();
    assert!(error.contains("another source"), "{error}");
    let error = Run::new(&plan, &path, None, Start::Anew).unwrap_err().to_string();
    assert!(error.contains("is the source"), "{error}");
}

#[test]
fn splits_are_made_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source.gguf");
    std::fs::write(&path, llama(2, 8).bytes()).unwrap();
    let source = Weights::open(&path).unwrap();
    let mut plan = Plan::new(&source, &settings("q8_0"), None).unwrap();
    plan.file.split(10_000);
    let parts = plan.file.parts.len();
    assert!(parts > 5);
    make(&plan, &folder.path().join("split.gguf"), 2);
    let first = folder.path().join(format!("split-00001-of-{parts:05}.gguf"));
    let split = Weights::open(&first).unwrap();
    assert_eq!((split.parts.len(), split.tensors.len()), (parts, source.tensors.len()));

    let mut again = Plan::new(&split, &settings("q4_0"), None).unwrap();
    again.keep_split().unwrap();
    assert_eq!(again.file.parts, plan.file.parts);
    assert!(again.requantized() > 0);
    make(&again, &folder.path().join("again.gguf"), 2);
    assert!(folder.path().join(format!("again-{parts:05}-of-{parts:05}.gguf")).exists());

    let joined = Plan::new(&split, &settings("q8_0"), None).unwrap();
    make(&joined, &folder.path().join("joined.gguf"), 2);
    let whole = Plan::new(&source, &settings("q8_0"), None).unwrap();
    make(&whole, &folder.path().join("whole.gguf"), 2);
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert!(read("joined.gguf") == read("whole.gguf"));
}

#[test]
fn a_budget_is_kept_and_used() {
    let source = weights(&llama(6, 8));
    for target in [3.0, 4.0, 5.5, 8.0] {
        let asked = Settings { target_bpw: Some(target), ..settings("q4_k_m") };
        let plan = Plan::new(&source, &asked, None).unwrap();
        let bits = plan.bits_per_weight();
        assert!(bits <= target && bits > target - 0.25, "{target}: {bits}");
        assert!(plan.file.metadata.get("general.file_type").is_none(), "a mixture without a name");
    }
    let impossible = Settings { target_bpw: Some(1.0), ..settings("q4_k_m") };
    let error = Plan::new(&source, &impossible, None).unwrap_err().to_string();
    assert!(error.starts_with("--target-bpw: 1: ") && error.ends_with("is the least here"), "{error}");
}

/// Bits go where they were measured to help most, whatever the weights' errors say.
#[test]
fn measured_losses_decide_about_a_budget() {
    let source = weights(&llama(2, 8));
    let mut measured = Sensitivity { text: "a text".into(), windows: 1, ..Sensitivity::default() };
    let asked = settings("trellis_k3");
    for name in sensitivity::matrices(&source) {
        let weight = if name == "blk.1.ffn_up.weight" { 1.0 } else { 1.0 / 1024.0 };
        let loss = |format: &&Format| (format.name.to_owned(), weight * (16.0 - format.bits_per_weight()));
        let losses = sensitivity::ladder(asked.recipe).iter().map(loss).collect();
        measured.tensors.insert(name.into(), losses);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sensitivity.json");
    measured.save(&path).unwrap();
    assert_eq!(Sensitivity::open(&path).unwrap(), measured);

    // All at one bit but one at 8.5: with 16 matrices that is 1.53 bits, and norms are f32.
    let asked = Settings { target_bpw: Some(1.9), sensitivity: Some(measured.clone()), ..asked };
    let found = types(&source, &asked);
    assert_eq!(type_of(&found, "blk.1.ffn_up.weight"), "Q8_0");
    assert_eq!(type_of(&found, "blk.0.ffn_up.weight"), "TRELLIS_K1");

    measured.tensors.get_mut("output.weight").unwrap().remove("trellis_k2");
    let asked = Settings { sensitivity: Some(measured), ..asked };
    let error = Plan::new(&source, &asked, None).unwrap_err().to_string();
    assert_eq!(error, "--sensitivity: output.weight was not measured as trellis_k2");
}

#[test]
fn a_replaced_matrix_has_the_bytes_of_the_file() {
    let source = weights(&llama(1, 8));
    let folder = tempfile::tempdir().unwrap();
    let asked = Settings { pure: true, ..settings("q4_k") };
    let path = folder.path().join("q4_k.gguf");
    make(&Plan::new(&source, &asked, None).unwrap(), &path, 2);
    let made = Weights::open(&path).unwrap();
    let q4_k = Format::by_name("q4_k").unwrap();
    for name in sensitivity::matrices(&source) {
        let replaced = sensitivity::replacement(&source, name, q4_k, Some(2)).unwrap().unwrap();
        assert!(replaced.data[..] == made.tensors[name].data[..], "{name}");
        assert_eq!(replaced.type_name, "Q4_K");
    }
    assert!(sensitivity::replacement(&made, "output.weight", q4_k, None).unwrap().is_none(), "it is q4_k");
}

#[test]
fn importance_is_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("importance.gguf");
    let mut importance =
        Imatrix { chunks: 3, chunk_size: 512, datasets: vec!["a.txt".into()], ..Imatrix::default() };
    let sums = |count: usize| (0..count).map(|index| index as f32).collect::<Vec<_>>();
    importance.entries.insert("blk.0.ffn_up.weight".into(), Sums::new(sums(256), vec![2.0]));
    importance.entries.insert("blk.0.ffn_up_exps.weight".into(), Sums::new(sums(512), vec![4.0, 0.0]));
    importance.save(&path).unwrap();
    let read = Imatrix::open(&path).unwrap();
    assert_eq!(read, Imatrix { path: Some(path.clone()), ..importance });
    assert_eq!(read.columns("blk.0.ffn_up.weight").unwrap()[..3], [0.0, 0.5, 1.0]);
    let experts = read.columns("blk.0.ffn_up_exps.weight").unwrap();
    assert_eq!((experts[255], experts[256], experts[511]), (63.75, 1.0, 1.0), "no token came to the second");

    let source = weights(&llama(1, 8));
    let plan = Plan::new(&source, &settings("q4_0"), Some(&read)).unwrap();
    let metadata: &Metadata = &plan.file.metadata;
    assert_eq!(metadata.get("quantize.imatrix.entries_count"), Some(&Own::U32(2)));
    assert_eq!(metadata.get("general.quantization_version"), Some(&Own::U32(2)));
    assert_eq!(metadata.get("general.file_type"), Some(&Own::U32(2)));
    let narrow = weights(&File::new().tensor("blk.0.ffn_up.weight", &[512, 2], F16, noise(1, 1024)));
    let error = Plan::new(&narrow, &settings("q4_0"), Some(&read)).unwrap_err().to_string();
    assert!(error.contains("the importance is of 256 columns"), "{error}");
    assert!(
        Imatrix::open(Path::new("models/austen/austen-q8_0.gguf"))
            .unwrap_err()
            .to_string()
            .contains("imatrix")
    );
}

#[test]
fn every_recipe_has_a_name_and_a_use() {
    let names: Vec<_> = hadal::quantize::RECIPES.iter().map(|recipe| recipe.name).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    assert!(
        names.iter().all(|name| Recipe::by_name(&name.to_lowercase()).is_some_and(|it| it.name == *name))
    );
    assert_eq!(Recipe::by_name("f32").map(|recipe| recipe.base.name), Some(f32::FORMAT.name));
    assert!(Recipe::by_name("q8_1").is_none(), "for activations only");
}

/// Every recipe can be made; those of fewest bits only with importance.
#[test]
fn recipes_that_need_importance_say_so() {
    let weights = weights(&llama(4, 8));
    let names = weights.tensors.keys().map(|name| (name.clone(), Sums::new(vec![1.0; 256], vec![1.0])));
    let imatrix = Imatrix { entries: names.collect(), ..Imatrix::default() };
    let mut needing = Vec::new();
    for recipe in hadal::quantize::RECIPES {
        let asked = Settings::new(Some(*recipe));
        Plan::new(&weights, &asked, Some(&imatrix)).expect(recipe.name);
        Plan::new(&weights, &Settings { unweighted: true, ..asked.clone() }, None).expect(recipe.name);
        if let Err(error) = Plan::new(&weights, &asked, None) {
            assert!(error.to_string().contains("hadal imatrix"), "{error}");
            needing.push(recipe.name);
        }
    }
    assert_eq!(needing, ["IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"]);
}
