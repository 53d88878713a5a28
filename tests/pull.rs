//! `hadal pull`, `list` and `rm` against a hub of our own.
#![allow(clippy::unwrap_used, reason = "a test that cannot do its steps must fail")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// A file and its SHA-256.
const SMALL: &[u8] = b"hello";
const SMALL_HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
/// Its hash as a blob of Git, and that of the Austen model.
const SMALL_BLOB: &str = "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0";
const AUSTEN_BLOB: &str = "7a65d2ab41c657b4b8b967dab51d826ea7d572d2";

/// What the hub holds and was asked.
#[derive(Default)]
struct State {
    files: HashMap<String, (Vec<u8>, String)>,
    /// Answers to GET stop after so many bytes, once.
    cut: Option<usize>,
    /// Request lines, with the range and the token.
    asked: Vec<String>,
}

#[derive(Clone)]
struct Hub {
    state: Arc<Mutex<State>>,
    address: String,
}

impl Hub {
    fn new(files: &[(&str, &[u8], &str)]) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let files =
            files.iter().map(|(name, bytes, hash)| ((*name).into(), (bytes.to_vec(), (*hash).into())));
        let hub = Hub {
            state: Arc::new(Mutex::new(State { files: files.collect(), ..State::default() })),
            address,
        };
        let served = hub.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                std::thread::spawn(move || served.answer(stream));
            }
        });
        hub
    }

    /// One request, then the connection is closed.
    fn answer(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let request = lines.next().unwrap().unwrap();
        let headers: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        let header = |name: &str| {
            let found = headers
                .iter()
                .find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)));
            found.map(|(_, value)| value.to_owned())
        };
        let mut state = self.state.lock().unwrap();
        let (range, token) = (header("range"), header("authorization"));
        state.asked.push(format!(
            "{request} {} {}",
            range.as_deref().unwrap_or("-"),
            token.as_deref().unwrap_or("-")
        ));
        let path = request.split(' ').nth(1).unwrap();
        if path.starts_with("/api/models/owner/model/revision/main") {
            let names: Vec<_> =
                state.files.keys().map(|name| serde_json::json!({"rfilename": name})).collect();
            let body = serde_json::json!({"sha": COMMIT, "siblings": names}).to_string();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            return;
        }
        let name = path.strip_prefix(&format!("/owner/model/resolve/{COMMIT}/"));
        let Some((bytes, hash)) = name.and_then(|name| state.files.get(name)).cloned() else {
            write!(stream, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .unwrap();
            return;
        };
        let from: usize = range.map_or(0, |range| range[6..range.len() - 1].parse().unwrap());
        let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
        let body = &bytes[from..];
        write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\netag: \"{hash}\"\r\nconnection: close\r\n\r\n",
            body.len()
        )
        .unwrap();
        if request.starts_with("GET") {
            let end = state.cut.take().unwrap_or(body.len()).min(body.len());
            let _ = stream.write_all(&body[..end]);
        }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }

    fn hadal(&self, home: &Path, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_hadal"))
            .args(arguments)
            .env("HF_ENDPOINT", &self.address)
            .env("HF_HOME", home)
            .env("HF_TOKEN", "secret")
            .env_remove("HF_HUB_CACHE")
            .env_remove("HADAL_MODEL")
            .output()
            .unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_broken_download_is_gone_on_with() {
    let home = tempfile::tempdir().unwrap();
    let hub = Hub::new(&[("m-Q4_K_M.gguf", SMALL, SMALL_HASH), ("m-Q8_0.gguf", b"x", SMALL_HASH)]);
    hub.state.lock().unwrap().cut = Some(2);
    let result = hub.hadal(home.path(), &["pull", "owner/model:q4_k_m"]);
    assert_eq!(result.status.code(), Some(1));
    assert!(text(&result.stderr).contains("pull again"), "{}", text(&result.stderr));
    assert!(hub.hadal(home.path(), &["list"]).stdout.iter().filter(|&&byte| byte == b'\n').count() == 1);
    hub.asked();

    let result = hub.hadal(home.path(), &["pull", "owner/model:q4_k_m"]);
    assert!(result.status.success(), "{}", text(&result.stderr));
    let asked = hub.asked();
    assert!(asked.last().unwrap().ends_with("bytes=2- Bearer secret"), "{asked:?}");
    let model = home.path().join("hub/models--owner--model");
    let file = model.join("snapshots").join(COMMIT).join("m-Q4_K_M.gguf");
    assert_eq!(text(&result.stdout).trim(), file.display().to_string());
    assert_eq!(std::fs::read(&file).unwrap(), SMALL);
    assert_eq!(std::fs::read(model.join("blobs").join(SMALL_HASH)).unwrap(), SMALL);
    assert_eq!(std::fs::read_to_string(model.join("refs/main")).unwrap(), COMMIT);

    // What is there is not asked for again.
    hub.hadal(home.path(), &["pull", "owner/model:q4_k_m"]);
    assert!(hub.asked().iter().all(|line| !line.starts_with("GET /owner")));
    assert!(text(&hub.hadal(home.path(), &["list"]).stdout).contains("owner/model  m-Q4_K_M.gguf      5"));
    let result = hub.hadal(home.path(), &["rm", "owner/model:q4_k_m"]);
    assert_eq!(text(&result.stdout), "removed m-Q4_K_M.gguf\n");
    assert!(!file.exists() && !model.join("blobs").join(SMALL_HASH).exists());
    assert!(hub.hadal(home.path(), &["rm", "owner/model"]).status.success());
    assert_eq!(hub.hadal(home.path(), &["rm", "owner/model"]).status.code(), Some(1));
}

#[test]
fn damage_and_absence_are_told() {
    let home = tempfile::tempdir().unwrap();
    let hub = Hub::new(&[("m-Q8_0.gguf", b"HELLO", SMALL_HASH), ("m-Q6_K.gguf", b"HELLO", SMALL_BLOB)]);
    let cases: [(&[&str], &str); 5] = [
        (&["pull", "owner/model:q8_0"], "the download is damaged"),
        (&["pull", "owner/model:q6_k"], "its hash is "),
        (
            &["pull", "owner/model:q2_k"],
            "has no GGUF file with \"q2_k\" in its name: m-Q6_K.gguf, m-Q8_0.gguf",
        ),
        (&["pull", "owner/other"], "there is no such model"),
        (&["run", "-m", "owner/model:q8_0", "x"], "`hadal pull owner/model:q8_0` brings it"),
    ];
    for (arguments, message) in cases {
        let result = hub.hadal(home.path(), arguments);
        assert_eq!(result.status.code(), Some(1), "{arguments:?}");
        assert!(text(&result.stderr).contains(message), "{}", text(&result.stderr));
    }
    assert_eq!(hub.hadal(home.path(), &["pull", "model"]).status.code(), Some(2));
}

/// A pulled model runs by its name.
#[test]
fn models_are_run_by_name() {
    let home = tempfile::tempdir().unwrap();
    let bytes = std::fs::read("models/austen/austen-q8_0.gguf").unwrap();
    let hub = Hub::new(&[("austen-Q8_0.gguf", &bytes, AUSTEN_BLOB)]);
    let result = hub.hadal(home.path(), &["pull", "owner/model"]);
    assert!(result.status.success(), "{}", text(&result.stderr));
    let arguments = [
        "eval",
        "ppl",
        "-m",
        "owner/model:q8_0",
        "tests/data/austen/heldout.txt",
        "--chunks",
        "1",
        "-o",
        "json",
    ];
    let result = hub.hadal(home.path(), &arguments);
    assert!(result.status.success(), "{}", text(&result.stderr));
    assert!(text(&result.stdout).contains("perplexity"));

    // Every command that takes a model takes its name.
    let out = home.path().join("out");
    let out = out.to_str().unwrap();
    let gguf = format!("{out}.gguf");
    let commands: [(&[&str], &str); 7] = [
        (&["quantize", "NAME", "--type", "q4_0", "-o", &gguf], "bits per weight"),
        (&["convert", "NAME", "-o", out], ""),
        (&["inspect", "NAME"], "Q8_0"),
        (&["fit", "NAME"], "context"),
        (&["tokenize", "--ids", "-m", "NAME", "Emma"], ""),
        (&["run", "-m", "NAME", "-n", "1", "Emma"], ""),
        (
            &[
                "eval",
                "kl",
                "-m",
                "NAME",
                "--reference",
                "NAME",
                "tests/data/austen/heldout.txt",
                "--chunks",
                "1",
            ],
            "mean kl",
        ),
    ];
    for (arguments, expected) in commands {
        let [named, missing] = ["owner/model:q8_0", "owner/model:q6_k"].map(|name| {
            let arguments: Vec<_> =
                arguments.iter().map(|&argument| if argument == "NAME" { name } else { argument }).collect();
            hub.hadal(home.path(), &arguments)
        });
        assert!(named.status.success(), "{arguments:?}: {}", text(&named.stderr));
        assert!(text(&named.stdout).contains(expected), "{arguments:?}: {}", text(&named.stdout));
        assert_eq!(missing.status.code(), Some(1), "{arguments:?}");
        assert!(
            text(&missing.stderr).contains("`hadal pull owner/model:q6_k` brings it"),
            "{}",
            text(&missing.stderr)
        );
    }
    assert!(Path::new(&gguf).is_file() && Path::new(out).join("model.safetensors").is_file());
}
