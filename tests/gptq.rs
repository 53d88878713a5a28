//! GPTQ: its golden data (`tests/data/mlx/gptq.safetensors`), every format, and the Austen model layer by layer.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use hadal::backend::cpu::pool::Pool;
use hadal::convert::for_gguf;
use hadal::engine::Engine;
use hadal::eval::Windows;
use hadal::eval::kl::Divergences;
use hadal::file::Weights;
use hadal::quant::{FORMATS, Format};
use hadal::quantize::{
    Calibrated, Calibration, Fallback, Feedback, Made, Method, Plan, Recipe, Settings, Start, sensitivity,
};
use hadal::tensor::Bytes;
use hadal::tokenizer::Special;
use hadal::{Error, Options};
use indexmap::IndexMap;

#[path = "support/golden.rs"]
mod golden;
use golden::{Failures, Golden, decode, is_plain_float};

/// tr(E H E^T) of the errors E of some rows.
fn loss(found: &[f32], rows: &[f32], hessian: &[f64], columns: usize) -> f64 {
    let mut loss = 0.0;
    for (found, row) in found.chunks(columns).zip(rows.chunks(columns)) {
        let errors: Vec<f64> = found.iter().zip(row).map(|(a, b)| f64::from(*a) - f64::from(*b)).collect();
        for (i, error) in errors.iter().enumerate() {
            let products = errors.iter().zip(&hessian[i * columns..]).map(|(e, h)| e * h);
            loss += error * products.sum::<f64>();
        }
    }
    loss
}

fn encoded(feedback: &Feedback, format: &Format, rows: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; format.bytes_for(rows.len()).unwrap()];
    feedback.encode_rows(format, rows, None, &mut bytes).unwrap();
    bytes
}

/// Codes, scales and biases of the reference, which computed in f64, of all four cases.
#[test]
fn the_golden_codes_are_found() {
    let golden = Golden::open("mlx/gptq.safetensors");
    let rows = golden.get::<f32>("W");
    let (columns, rows) = (rows.columns, rows.values);
    let hessian: Vec<f64> = golden.get::<f32>("H").values.iter().map(|value| f64::from(*value)).collect();
    let pool = Pool::new(2).unwrap();
    let mut failures = Failures::default();
    for (case, name, expected) in [
        ("b4g64", "affine4_g64", 18.531047436572994),
        ("b3g32", "affine3_g32", 109.65170317906757),
        ("b2g128", "affine2_g128", 519.11107228842),
        ("b8g64", "affine8_g64", 0.06675827670622429),
    ] {
        let format = Format::by_name(name).unwrap();
        let feedback = Feedback::gptq(&pool, &hessian, columns, format).unwrap();
        assert_eq!(feedback.damping(), 0.01);
        let bytes = encoded(&feedback, format, &rows);
        let numbers = |key: &str| golden.get::<f32>(&format!("{case}.{key}")).values;
        let (scales, biases) = (numbers("scales"), numbers("biases"));
        let packed = golden.get::<u32>(&format!("{case}.packed")).values;
        let packed: Vec<u8> = packed.iter().flat_map(|word| word.to_le_bytes()).collect();
        let groups = bytes.chunks_exact(format.block_bytes);
        for (group, codes) in groups.clone().zip(packed.chunks_exact(format.block_bytes - 8)) {
            failures.check(group[8..] == *codes, || format!("{case}: other codes"));
        }
        for (group, (scale, bias)) in groups.zip(scales.iter().zip(&biases)) {
            let number = |at: usize| f32::from_le_bytes(group[at..at + 4].try_into().unwrap());
            for (found, expected) in [(number(0), scale), (number(4), bias)] {
                let near = (found - expected).abs() <= 1e-5 * expected.abs().max(scale.abs());
                failures.check(near, || format!("{case}: {found}, not {expected}"));
            }
        }
        let lost = loss(&decode(format, &bytes), &rows, &hessian, columns);
        failures
            .check((lost / expected - 1.0).abs() < 1e-3, || format!("{case}: loss {lost}, not {expected}"));
    }
}

/// Of every format whose weights have codes of their own: outputs lose less than by rounding, and less than with feedback
/// among whole blocks. Where a block has several groups, whose scales have to be fixed before, it is less of a gain.
#[test]
fn outputs_lose_less_in_every_format_with_codes() {
    let columns = 512;
    let mut random = fastrand::Rng::with_seed(4);
    let mut noise = |count: usize| -> Vec<f32> {
        (0..count).map(|_| (0..4).map(|_| random.f32() - 0.5).sum::<f32>()).collect()
    };
    let (rows, mut inputs) = (noise(8 * columns), noise(2048 * columns));
    inputs.chunks_mut(columns).for_each(|row| (1..columns).for_each(|i| row[i] += 0.8 * row[i - 1]));
    let mut hessian = vec![0.0f64; columns * columns];
    for input in inputs.chunks(columns) {
        for (i, row) in input.iter().zip(hessian.chunks_mut(columns)) {
            row.iter_mut().zip(input).for_each(|(sum, j)| *sum += f64::from(i * j));
        }
    }
    let pool = Pool::new(2).unwrap();
    let mut failures = Failures::default();
    let joint = ["iq1", "iq2", "iq3", "trellis", "tq1"];
    let codes = |format: &&&Format| {
        let weights = format.dot.is_some() && format.has_encoder() && !is_plain_float(format);
        weights && !joint.iter().any(|joint| format.name.starts_with(joint))
    };
    for format in FORMATS.iter().filter(codes) {
        let mut alone = vec![0; format.bytes_for(rows.len()).unwrap()];
        format.encode_for_file(&rows, None, &mut alone).unwrap();
        let gptq = Feedback::gptq(&pool, &hessian, columns, format).unwrap();
        let ldlq = Feedback::ldlq(&pool, &hessian, columns, format.block_len).unwrap();
        let lost = |bytes: &[u8]| loss(&decode(format, bytes), &rows, &hessian, columns);
        let [alone, gptq, ldlq] =
            [alone, encoded(&gptq, format, &rows), encoded(&ldlq, format, &rows)].map(|bytes| lost(&bytes));
        let groups = format.block_len == 256 || format.name == "nvfp4";
        let limit = if groups { 1.0 } else { 0.8 } * alone.min(ldlq);
        let message = || format!("{}: {gptq} with feedback, {ldlq} by blocks, {alone} without", format.name);
        println!("{}", message());
        failures.check(gptq < limit, message);
    }
}

fn austen() -> Weights {
    for_gguf(Weights::open("tests/data/austen").unwrap()).unwrap()
}

/// Windows of a half of the text.
fn windows(weights: &Weights, half: usize, most: usize, length: usize) -> Vec<Vec<u32>> {
    let text = std::fs::read_to_string("tests/data/austen/heldout.txt").unwrap();
    let middle = text.len() / 2;
    let half = [&text[..middle], &text[middle..]][half];
    let options = Options { context: Some(length), threads: Some(2), ..Options::default() };
    let engine = Engine::from_weights(weights, &options).unwrap();
    let tokens = engine.tokenizer().encode_prompt(half, Special::Text).unwrap();
    Windows { most, ..Windows::halves(length) }.cut(&engine, &tokens).unwrap()
}

fn formats(weights: &Weights, name: &str) -> IndexMap<String, &'static Format> {
    let format = Format::by_name(name).unwrap();
    sensitivity::matrices(weights).map(|name| (name.to_owned(), format)).collect()
}

fn calibration(weights: &Weights, format: &str, windows: Vec<Vec<u32>>) -> Calibration<'static> {
    let formats = formats(weights, format);
    Calibration { method: Method::Gptq, text: "a text".into(), windows, formats, imatrix: None }
}

/// All steps; what was made, and the bytes of all matrices.
fn run(weights: &Weights, calibration: &Calibration) -> (Vec<Made>, Weights) {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out");
    let mut work = Calibrated::new(weights, calibration.clone(), &target, Some(2), Start::Anew).unwrap();
    let mut made = Vec::new();
    while work.done() < work.steps() {
        made.extend(work.step(|_| Ok(())).unwrap());
    }
    let found = work.weights().clone();
    (made, found)
}

fn all_finite(weights: &Weights) -> bool {
    weights
        .tensors
        .keys()
        .all(|name| weights.tensor(name).unwrap().to_f32().unwrap().iter().all(|value| value.is_finite()))
}

fn kl(reference: &Weights, found: &Weights, windows: &[Vec<u32>]) -> f64 {
    let how = Windows::halves(512);
    let options = Options { context: Some(512), threads: Some(2), ..Options::default() };
    let mut engines = [reference, found].map(|weights| Engine::from_weights(weights, &options).unwrap());
    let mut divergences = Divergences::default();
    for window in windows {
        let [expected, found] = engines.each_mut().map(|engine| how.logits(engine, window).unwrap());
        divergences.add(&expected, &found).unwrap();
    }
    divergences.divergence().mean_kl
}

/// The claim that it is all about: text that was not calibrated with is predicted better than by rounded weights.
#[test]
fn the_austen_model_loses_less_than_by_rounding() {
    let weights = austen();
    let (made, found) = run(&weights, &calibration(&weights, "affine4_g64", windows(&weights, 0, 8, 512)));
    assert!(made.iter().all(|made| made.fallback.is_none() && made.skipped == 0), "{made:?}");
    let mut rounded = weights.clone();
    let names: Vec<String> = sensitivity::matrices(&weights).map(str::to_owned).collect();
    for name in names {
        let format = Format::by_name("affine4_g64").unwrap();
        let values = weights.tensor(&name).unwrap().to_f32().unwrap();
        let mut bytes = vec![0; format.bytes_for(values.len()).unwrap()];
        format.encode_for_file(&values, None, &mut bytes).unwrap();
        let entry = &mut rounded.tensors[&name];
        (entry.format, entry.data) = (Some(format), Bytes::Owned(bytes.into()));
    }
    let heldout = windows(&weights, 1, 4, 512);
    let (gptq, rtn) = (kl(&weights, &found, &heldout), kl(&weights, &rounded, &heldout));
    assert!(gptq < 0.85 * rtn, "{gptq} with feedback, {rtn} without");
}

/// Stopped after any step, and in the middle of one, with other threads: the same bytes. With other settings it is refused.
#[test]
fn what_was_stopped_goes_on_with_the_same_bytes() {
    let weights = austen();
    let asked = calibration(&weights, "q4_k", windows(&weights, 0, 2, 64));
    let (_, expected) = run(&weights, &asked);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out");
    let begin = |asked: &Calibration<'static>, threads: usize| {
        Calibrated::new(&weights, asked.clone(), &target, Some(threads), Start::Resume)
    };
    let mut found = None;
    for step in 0.. {
        let mut work = begin(&asked, 1 + step % 3).unwrap();
        assert_eq!(work.done(), step);
        if step == work.steps() {
            found = Some(work.weights().clone());
            break;
        }
        let mut ticks = 0;
        let stopped = work.step(|_| {
            ticks += 1;
            if ticks == 3 { Err(Error::option("a test", "stops")) } else { Ok(()) }
        });
        assert!(stopped.is_err() || ticks < 3);
        if stopped.is_err() {
            begin(&asked, 2).unwrap().step(|_| Ok(())).unwrap();
        }
    }
    for (name, entry) in &found.unwrap().tensors {
        assert!(entry.data[..] == expected.tensors[name].data[..], "{name}");
    }
    let other = [
        ("--method", Calibration { method: Method::Ldlq, ..asked.clone() }),
        ("--calibration", Calibration { text: "another".into(), ..asked.clone() }),
        ("--calibration", Calibration { windows: windows(&weights, 1, 2, 64), ..asked.clone() }),
        ("--calibration", Calibration { windows: windows(&weights, 0, 1, 64), ..asked.clone() }),
        ("--type", Calibration { formats: formats(&weights, "q5_k"), ..asked.clone() }),
    ];
    for (name, other) in other {
        let error = begin(&other, 1).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("begin without --resume"), "{error}");
    }
    let journal = folder.path().join("out.partial.layers");
    std::fs::write(journal.join("002"), "cut off").unwrap();
    let error = begin(&asked, 1).unwrap_err().to_string();
    assert!(error.contains("002") && error.contains("7 bytes"), "{error}");
    begin(&asked, 1).unwrap_err();
    Calibrated::new(&weights, asked, &target, Some(1), Start::Anew).unwrap().remove();
    assert!(!journal.exists());
}

/// Three tokens are few, and enough.
#[test]
fn three_tokens_make_a_model() {
    let weights = austen();
    let (made, found) = run(&weights, &calibration(&weights, "affine3_g64", vec![vec![5, 6, 7]]));
    assert_eq!(
        made.len(),
        sensitivity::matrices(&weights).count() + 1,
        "the embedding is the output matrix, too"
    );
    assert!(all_finite(&found));
}

/// The weights of a norm, replaced by `value`.
fn with_norm(name: &str, value: f32) -> Weights {
    let mut weights = austen();
    let bytes: Vec<u8> = vec![value; 256].iter().flat_map(|value| value.to_le_bytes()).collect();
    weights.tensors[name].data = Bytes::Owned(bytes.into());
    weights
}

/// Inputs that are all zero, or too large for f32: those matrices are rounded, and say why; nothing else is touched by it
/// that does not read what they make.
#[test]
fn inputs_of_no_use_are_told() {
    let asked = |weights: &Weights| calibration(weights, "q4_0", windows(weights, 0, 1, 64));
    let why = |made: &[Made], name: &str| made.iter().find(|made| made.name == name).unwrap().fallback;
    let zero = with_norm("blk.1.ffn_norm.weight", 0.0);
    let (made, found) = run(&zero, &asked(&zero));
    for name in ["blk.1.ffn_gate.weight", "blk.1.ffn_up.weight", "blk.1.ffn_down.weight"] {
        assert_eq!(why(&made, name), Some(Fallback::Zero), "{name}");
    }
    assert_eq!(made.iter().filter(|made| made.fallback.is_some()).count(), 3, "{made:?}");
    assert!(all_finite(&found));
    let endless = with_norm("blk.1.ffn_norm.weight", f32::MAX);
    let (made, found) = run(&endless, &asked(&endless));
    assert_eq!(why(&made, "blk.1.attn_q.weight"), None);
    for name in ["blk.1.ffn_gate.weight", "blk.2.attn_q.weight", "blk.4.ffn_down.weight"] {
        assert_eq!(why(&made, name), Some(Fallback::NotFinite), "{name}");
    }
    let skipped = made.iter().find(|made| made.name == "blk.4.ffn_down.weight").unwrap().skipped;
    assert_eq!(skipped, 64);
    assert!(all_finite(&found));
}

/// A file of several formats: what the plan says becomes what the layers make, and nothing is left for the writer to encode.
#[test]
fn a_mixture_is_made_as_planned() {
    let weights = austen();
    let settings = Settings::new(Recipe::by_name("q3_k_m"));
    let mut plan = Plan::new(&weights, &settings, None).unwrap();
    let planned: Vec<String> = plan.conversions.iter().map(|conversion| conversion.type_name()).collect();
    let asked = Calibration {
        formats: plan.block_formats(),
        ..calibration(&weights, "q4_0", vec![vec![1, 2, 3, 4]])
    };
    let (_, made) = run(&weights, &asked);
    plan.take(&made, &asked);
    for (conversion, planned) in plan.conversions.iter().zip(planned) {
        assert_eq!(made.tensors[&conversion.name].type_name, planned, "{}", conversion.name);
        assert!(conversion.to.is_none(), "{}", conversion.name);
    }
    assert_eq!(plan.file.metadata.str("hadal.quantize.method").unwrap(), Some("gptq"));
}
