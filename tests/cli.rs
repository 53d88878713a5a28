//! The `hadal` program from outside: what it prints, where, and how it ends.
#![allow(clippy::unwrap_used, reason = "a test that cannot do its steps must fail")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The program with nothing of the tester's environment that it would heed.
fn hadal() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hadal"));
    command.env_remove("HADAL_MODEL").env_remove("HADAL_DEVICE").env_remove("HADAL_ISA").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    hadal().args(arguments).output().unwrap()
}

/// Standard output of a run that must succeed.
fn text(arguments: &[&str]) -> String {
    succeeded(arguments, &run(arguments))
}

fn succeeded(arguments: &[&str], output: &Output) -> String {
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs with `input` on standard input.
fn piped(arguments: &[&str], input: &str) -> Output {
    let mut command = hadal();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn austen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/austen/austen-q8_0.gguf")
}

/// The built-in model as one to chat with: it goes on with what was said. It never says that it is done.
fn chat_arguments(folder: &Path) -> Vec<String> {
    let template = folder.join("template.jinja");
    std::fs::write(&template, "{% for message in messages %}{{ message.content }}\n{% endfor %}").unwrap();
    let template = template.to_str().unwrap();
    ["chat", "--chat-template", template, "--temp", "0", "--logit-bias", "0-inf"].map(String::from).to_vec()
}

/// A failure is one line on standard error that begins with `error: `.
fn fault(arguments: &[&str], output: &Output, code: i32, expected: &str) -> Option<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let one_line = stderr.starts_with("error: ") && stderr.trim_end().lines().count() == 1;
    let right = output.status.code() == Some(code) && one_line && stderr.contains(expected);
    (!right).then(|| format!("{arguments:?}: not code {code} with {expected:?}, but {output:?}"))
}

#[test]
fn bad_input_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let whole = std::fs::read(austen()).unwrap();
    let absent = folder.path().join("absent.gguf").to_str().unwrap().to_owned();
    let plain = file("plain.txt", b"It is a truth universally acknowledged");
    let empty = file("empty.gguf", b"");
    let header = file("header.gguf", &whole[..100]);
    let cut = file("cut.gguf", &whole[..whole.len() - 1]);
    let latin1 = file("latin1.txt", b"caf\xe9");
    let directory = folder.path().to_str().unwrap().to_owned();
    let cases: &[(i32, &str, &[&str])] = &[
        (2, "--ctx-size", &["run", "x", "-c", "0"]),
        (2, "--ctx-size", &["run", "x", "-c", "-5"]),
        (2, "trained for 512", &["run", "x", "-c", "100000"]),
        (2, "--threads", &["run", "x", "-t", "0"]),
        (2, "--temp: NaN is not a number of at least 0", &["run", "x", "--temp", "NaN"]),
        (2, "--temp: -1 is not a number of at least 0", &["run", "x", "--temp", "-1"]),
        (2, "--temp", &["run", "x", "--temp", "warm"]),
        (2, "--top-p: 2 is not a number from 0 to 1", &["run", "x", "--top-p", "2"]),
        (2, "--top-p: NaN is not a number from 0 to 1", &["run", "x", "--top-p", "nan"]),
        (2, "--min-p: -0.5 is not", &["run", "x", "--min-p", "-0.5"]),
        (2, "--typical: 7 is not", &["run", "x", "--typical", "7"]),
        (2, "--top-k", &["run", "x", "--top-k", "-3"]),
        (2, "--repeat-penalty: 0 is not", &["run", "x", "--repeat-penalty", "0"]),
        (2, "--repeat-last-n", &["run", "x", "--repeat-last-n", "-2"]),
        (2, "--dry-base: 0.5 is not", &["run", "x", "--dry-base", "0.5"]),
        (2, "--xtc-probability: 2 is not", &["run", "x", "--xtc-probability", "2"]),
        (2, "--logit-bias", &["run", "x", "--logit-bias", "5"]),
        (2, "--logit-bias: token 99999999 does not exist", &["run", "x", "--logit-bias", "99999999+1"]),
        (2, "--predict", &["run", "x", "-n", "-5"]),
        (2, "--seed", &["run", "x", "--seed", "luck"]),
        (2, "--stop", &["run", "x", "--stop", ""]),
        (2, "quantized, float", &["run", "x", "--activations", "half"]),
        (2, "f32, f16, bf16, q8_0", &["run", "x", "--cache-type", "f8"]),
        (2, "turbo3 stores values only: give KEYS/turbo3", &["run", "x", "--kv", "turbo3"]),
        (2, "turbo3 stores values only", &["run", "x", "-ctk", "turbo3"]),
        (2, "\"q3\" is not one of", &["run", "x", "-ctv", "q3"]),
        (2, "--chat", &["run", "x", "--raw", "--chat"]),
        (2, "--tempo", &["run", "x", "--tempo", "1"]),
        (2, "frobnicate", &["frobnicate"]),
        (2, "--repetitions", &["bench", "-r", "0"]),
        (2, "trained for 512", &["bench", "-p", "600"]),
        (2, "--n-prompt", &["bench", "-p", "x"]),
        (2, "must be one of f32, f16, q4_0", &["bench", "--kernels", "--format", "q4_0,q9"]),
        (2, "must be one of scalar", &["bench", "--kernels", "--isa", "mmx"]),
        (2, "but two are compared", &["bench", "--kernels", "--compare", "scalar"]),
        (2, "no whole number of blocks", &["bench", "--kernels", "--shape", "8x100"]),
        (2, "at most", &["bench", "--kernels", "--rows", "1000000000000"]),
        (2, "--kernels", &["bench", "--format", "q4_0"]),
        (2, "--n-gen", &["bench", "--kernels", "-n", "8"]),
        (2, "shell", &["completions", "cmd.exe"]),
        (1, "no chat template", &["run", "x", "--chat"]),
        (1, "no chat template", &["run", "x", "--system", "y"]),
        (1, "hadal run", &["chat"]),
        (1, "absent.gguf", &["run", "x", "-m", &absent]),
        (1, &directory, &["run", "x", "-m", &directory]),
        (1, "plain.txt", &["run", "x", "-m", &plain]),
        (1, "empty.gguf", &["run", "x", "-m", &empty]),
        (1, "header.gguf", &["run", "x", "-m", &header]),
        (1, "cut.gguf", &["run", "x", "-m", &cut]),
        (1, "cut.gguf", &["bench", "-m", &cut]),
        (1, "plain.txt", &["tokenize", "x", "-m", &plain]),
        (1, "absent.gguf", &["run", "-f", &absent]),
        (1, "latin1.txt", &["run", "-f", &latin1]),
        (1, "512", &["run", &"word ".repeat(2000)]),
        (1, "token", &["tokenize", "--decode", "1 x"]),
        (1, "99999999", &["tokenize", "--decode", "99999999"]),
    ];
    let failures: Vec<_> = cases
        .iter()
        .filter_map(|(code, expected, arguments)| fault(arguments, &run(arguments), *code, expected))
        .collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn an_unknown_instruction_set_is_refused() {
    let output = hadal().args(["run", "x"]).env("HADAL_ISA", "abacus").output().unwrap();
    assert_eq!(fault(&["HADAL_ISA"], &output, 2, "abacus"), None);
}

#[test]
fn help_and_version_go_to_standard_output() {
    assert!(text(&[]).contains("hadal run \""));
    assert!(text(&["--help"]).contains("tokenize"));
    assert!(text(&["run", "--help"]).contains("--repeat-penalty"));
    assert_eq!(text(&["--version"]), format!("hadal {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(text(&["completions", shell]).contains("tokenize"), "{shell}");
    }
}

#[test]
fn doctor_tests_what_it_finds() {
    let report = text(&["doctor"]);
    assert!(report.starts_with("hadal ") && report.contains("\ncpu: "), "{report}");
    assert!(report.contains("\ngpu: ") && !report.contains("WRONG"), "{report}");
}

#[test]
fn formats_lists_every_row() {
    let table = text(&["formats"]);
    for format in hadal::quant::FORMATS {
        assert!(
            table.lines().any(|line| line.split_whitespace().next() == Some(format.name)),
            "{}",
            format.name
        );
    }
}

#[test]
fn tokens_become_text_again() {
    let sentence = "It is a truth, \"universally\" acknowledged.\n";
    let ids = text(&["tokenize", "--ids", sentence]);
    assert_eq!(text(&["tokenize", "--decode", &ids]), format!("{sentence}\n"));
    assert_eq!(succeeded(&["tokenize"], &piped(&["tokenize", "--ids"], &format!("{sentence}\n"))), ids);
    let list: Value = serde_json::from_str(&text(&["tokenize", "--json", sentence])).unwrap();
    let from_json: Vec<String> =
        list.as_array().unwrap().iter().map(|token| token["id"].to_string()).collect();
    assert_eq!(from_json.join(" "), ids.trim_end());
    let pieces: Vec<&str> =
        list.as_array().unwrap().iter().map(|token| token["piece"].as_str().unwrap()).collect();
    assert_eq!(pieces.concat(), sentence);
    assert_eq!(text(&["tokenize", sentence]).lines().count(), from_json.len());
}

#[test]
fn a_seed_repeats_the_text() {
    let generate = |seed| text(&["run", "-q", "-n", "40", "--seed", seed, "It is a truth"]);
    let first = generate("7");
    assert!(first.starts_with("It is a truth") && first.ends_with('\n'), "{first:?}");
    assert_eq!(first, generate("7"));
    assert_ne!(first, generate("8"));
}

#[test]
fn greedy_text_begins_as_the_reference_does() {
    let bytes =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/austen/logits.safetensors"))
            .unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    let prompt = &metadata["greedy_prompt"];
    let found = text(&["run", "--quiet", "--temp", "0", "-n", "16", prompt]);
    // The reference has f32 weights, the built-in file 8-bit ones: far along the texts may part.
    let expected: String = metadata["greedy_text"].chars().take(prompt.chars().count() + 15).collect();
    assert!(found.starts_with(&expected), "{found:?} does not begin with {expected:?}");
}

#[test]
fn prompts_come_from_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prompt.txt");
    std::fs::write(&file, "It was\n").unwrap();
    let file = file.to_str().unwrap();
    let options = ["run", "-q", "--temp", "0", "-n", "8"];
    let with = |rest: &[&'static str]| [&options[..], rest].concat();
    let expected = text(&with(&["It was"]));
    assert_eq!(text(&with(&["-p", "It was"])), expected);
    assert_eq!(text(&[&options[..], &["-f", file]].concat()), expected);
    assert_eq!(succeeded(&["-"], &piped(&with(&["-"]), "It was\n")), expected);
    assert_eq!(succeeded(&["pipe"], &piped(&with(&[]), "It was")), expected);
    assert_eq!(text(&with(&["--escape", "It\\twas"])).split_at(6).0, "It\twas");
    assert_eq!(text(&with(&["It\\twas"])).split_at(7).0, "It\\twas");
    let hidden = text(&with(&["--no-display-prompt", "It was"]));
    assert_eq!(format!("It was{hidden}"), expected);
}

#[test]
fn a_stop_string_ends_the_text() {
    let options = ["run", "-q", "--temp", "0", "-n", "24", "--no-display-prompt", "It was"];
    let whole = text(&options);
    let stop: String = whole.chars().skip(10).take(7).collect();
    let cut = text(&[&options[..], &["--stop", &stop]].concat());
    let expected = &whole[..whole.find(&stop).unwrap()];
    assert_eq!(cut.strip_suffix('\n').unwrap(), expected.strip_suffix('\n').unwrap_or(expected));
}

#[test]
fn speed_is_told_on_standard_error() {
    let output = run(&["run", "-n", "4", "--seed", "1", "It was"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stderr.lines().count() == 1 && stderr.contains("tokens/s"),
        "{output:?}"
    );
    assert!(run(&["run", "-q", "-n", "4", "It was"]).stderr.is_empty());
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let mut command = hadal();
    command.args(["run", "-q", "It was"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_130() {
    let mut command = hadal();
    command.args(["run", "--seed", "3", "--logit-bias", "0-inf", "It was"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // The prompt, and some of the answer.
    stdout.read_exact(&mut [0; 12]).unwrap();
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(rest.ends_with('\n'), "the last line is finished: {rest:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("tokens/s"), "{output:?}");
}

/// Lines on standard input are messages and commands; standard output holds the answers only.
#[test]
fn a_chat_reads_lines_from_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("talk.json");
    let mut arguments = chat_arguments(folder.path());
    arguments.extend(["-n", "6", "--system", "Be terse."].map(String::from));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let chat = |input: &str| {
        let output = piped(&arguments, &input.replace("FILE", saved.to_str().unwrap()));
        (succeeded(&arguments, &output), String::from_utf8(output.stderr).unwrap())
    };
    let messages = || -> Vec<(String, String)> {
        let list: Value = serde_json::from_str(&std::fs::read_to_string(&saved).unwrap()).unwrap();
        let field = |message: &Value, name: &str| message[name].as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(|m| (field(m, "role"), field(m, "content"))).collect()
    };

    let (answers, told) = chat("Name a colour.\n/save FILE\n");
    assert!(answers.trim().len() > 1 && told.is_empty(), "{answers:?} {told:?}");
    let first = messages();
    let roles: Vec<&str> = first.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant"]);
    assert_eq!((first[0].1.as_str(), first[1].1.as_str()), ("Be terse.", "Name a colour."));
    assert_eq!(first[2].1.trim_end_matches('\n'), answers.trim_end_matches('\n'));

    // The same message again, in two lines, after everything that takes messages away.
    let (again, told) = chat(
        "Hello\n/undo\n/undo\n/stats\n/nope\n/set temp 9x\n/set top-p 2\n/load FILE\n/regen\n/clear\nName a \\\ncolour.\n/stats\n/save FILE\n/exit\nunread",
    );
    assert!(again.contains(&answers), "/regen answers as before: {again:?}");
    assert_eq!(messages()[1].1, "Name a \ncolour.");
    assert_eq!(messages().len(), 3);
    let told: Vec<&str> = told.lines().collect();
    let expected = [
        "error: there is nothing to take back",
        "tokens/s",
        "error: /nope is no",
        "error: invalid value '9x'",
        "error: --top-p: 2",
        "tokens/s",
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (line, expected) in told.iter().zip(expected) {
        assert!(line.contains(expected), "{line} has no {expected}");
    }
}

/// In a terminal Ctrl-C stops the answer and not the program, which only a terminal can show: `script` makes one.
#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_in_a_chat_stops_the_answer() {
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped: there is no script command");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let words = chat_arguments(folder.path()).iter().map(|word| format!("'{word}' ")).collect::<String>();
    let status = folder.path().join("status");
    // `script` may look for its child's status before there is one, so the shell writes it down; the terminal sends
    // SIGINT to the shell too.
    let program =
        format!("trap : INT; '{}' {words}; echo $? > '{}'", env!("CARGO_BIN_EXE_hadal"), status.display());
    // A chat that does not end is a failure and not a test that runs for ever.
    let mut command = Command::new("timeout");
    command.args(["--foreground", "60", "script", "-qfc", &program, "/dev/null"]);
    command.env_remove("HADAL_MODEL").env_remove("HADAL_DEVICE").env("XDG_DATA_HOME", folder.path());
    command.env("TERM", "xterm").env("SHELL", "/bin/sh");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut wait_for = |text: &str| {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(text) {
            let mut byte = [0];
            screen.read_exact(&mut byte).unwrap_or_else(|_| panic!("{text:?} is not in {seen:?}"));
            seen.push(byte[0]);
        }
        String::from_utf8_lossy(&seen).into_owned()
    };
    wait_for("> ");
    keys.write_all(b"It was\r").unwrap();
    wait_for("\r\n");
    // Some of the answer, which would fill the context of 512 tokens.
    wait_for(" ");
    wait_for(" ");
    keys.write_all(b"\x03").unwrap();
    wait_for("> ");
    keys.write_all(b"/stats\r").unwrap();
    wait_for("answer ");
    let tokens: usize = wait_for(" ").trim().parse().unwrap();
    assert!(tokens < 450, "{tokens} tokens, so it was not stopped");
    // Before the next prompt the terminal would take the Ctrl-D for the end of a line that nobody reads.
    wait_for("> ");
    keys.write_all(b"\x04").unwrap();
    screen.read_to_end(&mut Vec::new()).unwrap();
    child.wait().unwrap();
    assert_eq!(std::fs::read_to_string(status).unwrap(), "0\n");
    let history = std::fs::read_to_string(folder.path().join("hadal/history")).unwrap();
    assert!(history.contains("It was"), "{history:?}");
}

/// Kinds of caches: what fits, what a token takes, and what they cost.
#[test]
fn caches_are_measured() {
    let model = austen();
    let model = model.to_str().unwrap();
    let fit = |memory: &str| -> Value {
        serde_json::from_str(&text(&["fit", model, "--memory", memory, "--json"])).unwrap()
    };
    let row = |fit: &Value, name: &str| -> Value {
        let rows = fit["caches"].as_array().unwrap();
        rows.iter().find(|row| row["cache"] == name).unwrap().clone()
    };
    let ample = fit("1GiB");
    // 2 heads of 64: keys of 64 + 8 bytes, values of 24 + 4, against 128 each.
    let (f16, turbo) = (row(&ample, "f16"), row(&ample, "turbo:k8v3"));
    let (halves, turbo) = (&f16["token_bytes"], &turbo["token_bytes"]);
    assert_eq!(halves.as_u64().unwrap() * 100, turbo.as_u64().unwrap() * 256);
    // Memory for half of the 512 tokens as halves.
    let half = ample["weight_bytes"].as_u64().unwrap() + f16["bytes"].as_u64().unwrap() / 2;
    let tight = fit(&half.to_string());
    assert_eq!(
        (&row(&tight, "f16")["context"], &row(&tight, "turbo:k8v3")["context"]),
        (&256.into(), &512.into())
    );
    let inspected: Value = serde_json::from_str(&text(&["inspect", model, "--json"])).unwrap();
    let caches = inspected["caches"].as_array().unwrap();
    assert!(caches.iter().any(|cache| cache["token_bytes"] == *turbo), "{caches:?}");

    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("curve.svg");
    let heldout = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/austen/heldout.txt");
    let (heldout, plot_name) = (heldout.to_str().unwrap(), plot.to_str().unwrap());
    let cut = ["eval", "kv", "-f", heldout, "--tokens", "48", "--steps", "16", "--prompts", "2"];
    let rest = ["--kinds", "f32,f16,k8v3", "--speed", "40", "--json", "--plot", plot_name];
    let found: Value = serde_json::from_str(&text(&[&cut[..], &rest].concat())).unwrap();
    let mean = |index: usize| found["caches"][index]["mean_kl"].as_f64().unwrap();
    assert!(mean(0) == 0.0 && mean(1) < mean(2), "{found}");
    assert_eq!(found["caches"][2]["bits"], 6.25);
    assert!(found["caches"][2]["speeds"][0]["tokens_per_second"].as_f64().unwrap() > 0.0);
    assert!(std::fs::read_to_string(&plot).unwrap().contains("turbo:k8v3"));

    // A page, of numbers without what rounded activations add.
    let plot = folder.path().join("curve.html");
    let rest = ["--kinds", "f16,k8v3", "--activations", "float", "--json", "--plot", plot.to_str().unwrap()];
    let floats: Value = serde_json::from_str(&text(&[&cut[..], &rest].concat())).unwrap();
    assert!(floats["caches"][0]["mean_kl"].as_f64().unwrap() < mean(1) / 2.0, "{floats}");
    let page = std::fs::read_to_string(&plot).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("turbo:k8v3"), "{page}");
}
