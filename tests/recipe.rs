//! `hadal recipe` and the flags of `quantize` that it is made of, on the Austen model.

use std::path::Path;

use assert_cmd::Command;
use hadal::quantize::Sensitivity;

fn hadal(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::cargo_bin("hadal").expect("the program");
    command.args(arguments).env_remove("HADAL_MODEL").output().expect("it runs")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// The number in the row of the page that begins with `name`.
fn figure(page: &str, name: &str) -> f64 {
    let row = page.lines().find(|line| line.starts_with(&format!("| {name}"))).expect(name);
    let cell = row.split('|').nth(2).expect("a second cell");
    cell.split_whitespace().next().expect("a figure").parse().expect("a number")
}

#[test]
fn a_recipe_makes_a_model_and_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("small.gguf");
    let texts = "tests/data/austen/heldout.txt";
    let run = hadal(&[
        "recipe",
        "rot-q3k",
        "tests/data/austen",
        "--calibration",
        texts,
        "--text",
        texts,
        "--windows",
        "2",
        "-o",
        text(&output),
    ]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let page = std::fs::read_to_string(folder.path().join("small.md")).expect("a page");
    let (bits, kl) = (figure(&page, "bits per weight"), figure(&page, "mean KL"));
    assert!((3.4..5.0).contains(&bits), "{page}");
    assert!(kl > 0.0 && kl < 0.2, "{page}");
    assert!(output.exists() && !folder.path().join("small.rotated.gguf").exists(), "only the result is left");
}

#[test]
fn flags_that_make_no_sense_together_are_refused() {
    let cases: [&[&str]; 4] = [
        &["--method", "ldlq"],
        &["--method", "gptq"],
        &["--method", "awq", "--calibration", "tests/data/austen/heldout.txt"],
        &["--seed", "1"],
    ];
    for flags in cases {
        let all = [&["quantize", "tests/data/austen", "--type", "q4_0", "-o", "never.gguf"], flags].concat();
        let run = hadal(&all);
        assert_eq!(run.status.code(), Some(2), "{flags:?}: {}", String::from_utf8_lossy(&run.stderr));
    }
}

/// One matrix of the Austen model: fewer bits lose more, what was measured stays, and a file of another text is refused.
#[test]
fn sensitivity_is_measured_matrix_by_matrix() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("sensitivity.json");
    let run = |only: &str, windows: &str| {
        let (source, held) = ("tests/data/austen", "tests/data/austen/heldout.txt");
        let flags = ["--type", "trellis_k3", "--text", held, "--windows", windows, "--only", only];
        hadal(&[&["sensitivity", source, "-o", text(&output)], &flags[..]].concat())
    };
    let first = run("blk.0.ffn_down", "1");
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let known = Sensitivity::open(&output).expect("losses");
    let loss = |format: &str| known.tensors["blk.0.ffn_down.weight"][format];
    assert!(loss("trellis_k1") > loss("trellis_k2") && loss("trellis_k2") > loss("trellis_k4"), "{known:?}");
    assert!(loss("q8_0") >= 0.0 && loss("q8_0") < loss("trellis_k4") / 10.0, "{known:?}");

    assert!(run("blk.0.attn_k", "1").status.success());
    let both = Sensitivity::open(&output).expect("losses");
    assert_eq!(both.tensors.len(), 2);
    assert_eq!(both.tensors["blk.0.ffn_down.weight"], known.tensors["blk.0.ffn_down.weight"]);
    assert!(!run("blk.0.attn_k", "2").status.success(), "of other windows");
}
