//! Chat templates against the reference: jinja2 set up as `transformers` does. `tests/data/templates/generate.py` wrote the
//! cases and says how.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use hadal::Error;
use hadal::template::{Context, Message, Template};
use serde_json::Value;

#[path = "support/vocabulary.rs"]
mod vocabulary;

fn context(json: &Value, now: &str) -> Context {
    let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
    Context {
        add_generation_prompt: json["add_generation_prompt"].as_bool().unwrap_or(false),
        bos_token: text("bos_token"),
        eos_token: text("eos_token"),
        tools: json["tools"].as_array().cloned().unwrap_or_default(),
        now: Some(now.parse().unwrap()),
        extra: json["extra"].as_object().cloned().unwrap_or_default(),
    }
}

/// Renders every case of a file and tells of all that differ.
fn check(path: &Path) {
    let file = std::fs::read_to_string(path).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    let now = file["now"].as_str().unwrap();
    let mut failures = Vec::new();
    for case in file["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let messages: Vec<Message> = serde_json::from_value(case["messages"].clone()).unwrap();
        let template = Template::new(case["template"].as_str().unwrap());
        let found = template.and_then(|template| template.render(&messages, &context(&case["context"], now)));
        let right = match (&found, case["expected"].as_str(), &case["error"]) {
            (Ok(found), Some(expected), _) => found == expected,
            // The template's own words are kept to the letter; of other errors only that there is one.
            (Err(Error::Template(found)), None, Value::String(expected)) => found == expected,
            (Err(Error::Template(_)), None, _) => true,
            _ => false,
        };
        if !right {
            failures.push(format!(
                "{name}\n   found {found:?}\nexpected {:?}",
                case["expected"].as_str().or(case["error"].as_str())
            ));
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn templates_render_like_the_reference() {
    check(Path::new("tests/data/templates/cases.json"));
}

/// `generate.py target/models` writes the file.
#[test]
fn real_templates_render_like_the_reference() {
    if let Some(path) = vocabulary::model("templates.json") {
        check(&path);
    }
}
