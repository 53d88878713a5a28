//! Real models through [`Engine`]: the Austen model against the logits it was trained with, SmolLM2, Gemma 3 and Qwen2.5
//! against another engine, where their files are present.

use std::path::Path;

use hadal::backend::cpu::Activations;
use hadal::cache::CacheType;
use hadal::engine::{Engine, Options};
use hadal::tokenizer::Special;
use serde_json::Value as Json;

#[path = "support/golden.rs"]
mod golden;
#[path = "support/real.rs"]
mod models;

use golden::Golden;
use models::{GEMMA, QWEN, SMOLLM2, real};

fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn austen_gives_the_logits_it_was_trained_with() {
    let golden = Golden::open("austen/logits.safetensors");
    let options = Options { cache: CacheType::F32, ..Options::default() };
    let mut engine = Engine::open_with("tests/data/austen", &options).expect("the f32 model");
    let ids: Vec<u32> = golden.ids("ids");
    let found = engine.score(&ids).expect("a forward pass");
    let difference = max_difference(found.values(), &golden.get::<f32>("logits").values);
    assert!(difference < 1e-4, "{difference}");

    let greedy: Vec<u32> = golden.ids("greedy_ids");
    let prompt = engine.tokenizer().encode(&golden.metadata("greedy_prompt"), Special::Text);
    let prompt = prompt.expect("ordinary text");
    assert_eq!(prompt, greedy[..prompt.len()]);
    engine.reset();
    let settings =
        hadal::Sampling { max_tokens: Some(greedy.len() - prompt.len()), ..hadal::Sampling::greedy() };
    let text: String = engine
        .generate(&golden.metadata("greedy_prompt"), &settings)
        .expect("a prompt that fits")
        .map(|piece| piece.expect("no numeric trouble"))
        .collect();
    assert_eq!(format!("{}{text}", golden.metadata("greedy_prompt")), golden.metadata("greedy_text"));
}

/// One step of `tests/data/generation`: the token that was chosen, and logits that were recorded.
struct Step {
    id: u32,
    recorded: Vec<(usize, f32)>,
    /// Top-1 minus top-2.
    margin: f32,
}

fn json(file: &str) -> Json {
    let text = std::fs::read_to_string(Path::new("tests/data/generation").join(file)).expect(file);
    serde_json::from_str(&text).expect("JSON")
}

fn list(value: &Json) -> &[Json] {
    value.as_array().expect("an array")
}

fn number(value: &Json) -> f64 {
    value.as_f64().expect("a number")
}

/// Prompt tokens and steps of a golden. A file in `teacher_forced/` repeats the tokens of the golden that its name
/// begins with through another path of that engine: its `at` are the logits of the golden's five best tokens.
fn generation(file: &str) -> (Vec<u32>, Vec<Step>) {
    let own = json(file);
    let name = file.rsplit('/').next().expect("a name");
    let golden = match file.contains('/') {
        true => json(&format!("{}.json", name.splitn(3, '.').take(2).collect::<Vec<_>>().join("."))),
        false => own.clone(),
    };
    let mut steps = Vec::new();
    for (golden, own) in list(&golden["steps"]).iter().zip(list(&own["steps"])) {
        let top = list(&golden["top5"]);
        let logit = |pair: &Json| number(&pair[1]) as f32;
        let logits: Vec<f32> = match own["at"].as_array() {
            Some(at) => at.iter().map(|value| number(value) as f32).collect(),
            None => top.iter().map(logit).collect(),
        };
        steps.push(Step {
            id: number(&golden["id"]) as u32,
            margin: logit(&top[0]) - logit(&top[1]),
            recorded: top.iter().map(|pair| number(&pair[0]) as usize).zip(logits).collect(),
        });
    }
    let prompt = list(&golden["prompt_tokens"]).iter().map(|id| number(id) as u32).collect();
    (prompt, steps)
}

/// How logits of ours differ from recorded ones along a golden text.
struct Difference {
    max: f32,
    rms: f32,
    /// Margins of the steps where our best token is another one.
    flips: Vec<f32>,
}

fn teacher_forced(engine: &mut Engine, file: &str) -> Difference {
    let (prompt, steps) = generation(file);
    engine.reset();
    let mut tokens = prompt.clone();
    tokens.extend(steps.iter().map(|step| step.id));
    tokens.pop();
    let scored = engine.score(&tokens).expect("a forward pass");
    let rows = scored.values().chunks_exact(scored.columns()).skip(prompt.len() - 1);
    let (mut max, mut squares, mut count, mut flips) = (0.0f32, 0.0f64, 0, Vec::new());
    for (row, step) in rows.zip(&steps) {
        for &(id, logit) in &step.recorded {
            let difference = row[id] - logit;
            max = max.max(difference.abs());
            squares += f64::from(difference) * f64::from(difference);
            count += 1;
        }
        let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("a vocabulary");
        if best != step.id as usize {
            flips.push(step.margin);
        }
    }
    Difference { max, rms: (squares / f64::from(count)).sqrt() as f32, flips }
}

/// The golden files whose names begin with `start` and end with `end`.
fn goldens(folder: &str, start: &str, end: &str) -> Vec<String> {
    let entries = std::fs::read_dir(Path::new("tests/data/generation").join(folder)).expect("the goldens");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut found: Vec<_> = names
        .filter(|name| name.starts_with(start) && name.ends_with(end))
        .map(|name| Path::new(folder).join(name).to_string_lossy().into_owned())
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no golden {folder}/{start}*{end}");
    found
}

/// Float weights, float activations, float cache: only rounding of sums differs.
#[test]
fn smollm2_in_floats_matches_the_exact_graph() {
    let Some(path) = real(SMOLLM2) else { return };
    let options = Options { activations: Activations::Float, cache: CacheType::F32, ..Options::default() };
    let mut engine = Engine::open_with(path, &options).expect("SmolLM2");
    for file in goldens("teacher_forced", "smollm2_q4_1", ".f32w_f32kv_nofa.json") {
        let found = teacher_forced(&mut engine, &file);
        println!("{file}: max {} rms {}", found.max, found.rms);
        assert!(found.max <= 0.05, "{file}: {}", found.max);
    }
}

/// 8-bit activations: the reference engine differs from itself by as much between its kernels.
#[test]
fn real_models_match_the_reference_engine() {
    for (model, start) in [(SMOLLM2, "smollm2_q4_1"), (GEMMA, "gemma3_270m_q4_k_m")] {
        let Some(path) = real(model) else { continue };
        let mut engine = Engine::open(path).expect(model);
        for file in goldens("", start, ".json") {
            let found = teacher_forced(&mut engine, &file);
            println!("{file}: max {} rms {} flips {:?}", found.max, found.rms, found.flips);
            assert!(found.rms <= 0.35, "{file}: rms {}", found.rms);
            assert!(found.flips.len() <= 4, "{file}: flips {:?}", found.flips);
            assert!(found.flips.iter().all(|&margin| margin <= 1.0), "{file}: flips {:?}", found.flips);
        }
    }
}

/// Every decoded file gives sensible text: Qwen has no goldens, so a question with one answer has to do.
#[test]
fn qwen_answers() {
    let Some(path) = real(QWEN) else { return };
    let mut engine = Engine::open(path).expect(QWEN);
    let mut chat = engine.chat();
    let settings = hadal::Sampling { max_tokens: Some(24), ..hadal::Sampling::greedy() };
    let answer: String =
        chat.send("What is the capital of France?", &settings).map(|piece| piece.expect("text")).collect();
    assert!(answer.contains("Paris"), "{answer}");
}

/// Perplexity on the reference text within 1 % of the figures in `tests/data/generation/README.md`.
#[test]
fn smollm2_perplexity_is_the_reference_engines() {
    let Some(path) = real(SMOLLM2) else { return };
    let readme = std::fs::read_to_string("tests/data/generation/README.md").expect("the figures");
    let figure = |row: &str| -> f64 {
        let line = readme.lines().find(|line| line.starts_with(row)).expect("a row of the table");
        line.split('|').nth(2).and_then(|cell| cell.trim().parse().ok()).expect("a number")
    };
    let text = std::fs::read_to_string("tests/data/generation/ppl_text.txt").expect("the text");
    let mut engine = Engine::open(path).expect("SmolLM2");
    let tokens = engine.tokenizer().encode(&text, Special::Text).expect("ordinary text");
    let found = hadal::eval::perplexity(&mut engine, &tokens, 512, 8).expect("eight chunks");
    let expected = figure("| q4_1");
    println!("perplexity {} ± {}, reference {expected}", found.perplexity, found.standard_error);
    assert!((found.perplexity / expected - 1.0).abs() < 0.01, "{} against {expected}", found.perplexity);
}
