//! `hadal eval choice`, `gsm` and `compare` on small files: scores, what is stored, going on.
#![allow(clippy::unwrap_used, reason = "a test that cannot do its steps must fail")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const CHOICE: &str = "tests/data/tasks/choice.jsonl";
const GSM: &str = "tests/data/tasks/gsm.jsonl";

fn eval(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hadal"));
    command.env_remove("HADAL_MODEL").arg("eval").args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn items_are_scored_stored_and_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, part] = ["whole", "part"].map(|name| folder.path().join(name));
    let found = json(&eval(&["choice", CHOICE, "--results", path(&whole), "-o", "json"]));
    assert_eq!(found["items"], 6);
    for name in ["acc", "acc_norm"] {
        // What a model of Austen's prose knows is little, but not nothing.
        let share = found[name].as_f64().unwrap();
        assert!(share > 0.0 && share <= 1.0, "{found}");
    }
    // Stopped after two items and in the middle of a line.
    let text = std::fs::read_to_string(&whole).unwrap();
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 7);
    std::fs::write(&part, lines[..3].concat() + "{\"corr").unwrap();
    let refused = eval(&["choice", CHOICE, "--results", path(&part)]);
    assert_eq!(refused.status.code(), Some(1));
    let again = json(&eval(&["choice", CHOICE, "--results", path(&part), "--resume", "-o", "json"]));
    assert_eq!(again, found);
    assert_eq!(std::fs::read_to_string(&part).unwrap(), text);
    let compared = json(&eval(&["compare", path(&whole), path(&part), "-o", "json"]));
    assert_eq!((&compared["difference"], &compared["p_value"]), (&0.0.into(), &1.0.into()));
}

#[test]
fn problems_are_solved_in_both_forms() {
    let raw = json(&eval(&["gsm", GSM, "--form", "raw", "--items", "1", "-o", "json"]));
    assert_eq!(raw["items"], 1);
    // The built-in model has no chat template.
    let refused = eval(&["gsm", GSM, "--items", "1"]);
    assert_eq!(refused.status.code(), Some(1));
    let wrong = eval(&["choice", GSM]);
    let message = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(message.contains("gsm.jsonl: line 1: not the fields of hellaswag"), "{message}");
}

#[test]
fn results_are_put_on_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bits: f64, kl: f64| {
        let file = folder.path().join(name);
        let figures = serde_json::json!({"bits_per_weight": bits, "mean_kl": kl, "median_kl": kl, "p99_kl": kl,
            "top1_agreement": 0.9});
        std::fs::write(&file, figures.to_string()).unwrap();
        file
    };
    let (first, second) = (file("q8_0.json", 8.5, 1e-3), file("q4_0.json", 4.5, 1e-1));
    let page = folder.path().join("page.html");
    let found = eval(&["report", path(&first), path(&second), "--html", path(&page)]);
    assert!(String::from_utf8_lossy(&found.stdout).contains("q4_0"));
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<circle").count(), 2, "{page}");
}
