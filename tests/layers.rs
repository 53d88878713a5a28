//! The walls of the house: a module may use only modules that stand above it in the list of `docs/architecture.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The list in the architecture page: `name.rs` at the start of a line inside the block that follows "## Layers".
fn layers() -> Vec<String> {
    let page = std::fs::read_to_string("docs/architecture.md").expect("the page is part of the repository");
    let (_, section) = page.split_once("## Layers").expect("the page has the section");
    let block = section.split("```").nth(1).expect("the section has a code block");
    let name = |line: &str| {
        let first = line.split_whitespace().next()?;
        first.strip_suffix(".rs").map(str::to_owned)
    };
    block.lines().filter_map(name).filter(|name| name != "lib").collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The modules that a source names as `crate::module` or, inside `crate::{...}` groups, first in a path.
fn imports(source: &str) -> Vec<String> {
    let code: String =
        source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut start = true;
            let mut word = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        start = true;
                        continue;
                    }
                    _ => {}
                }
                if depth == 0 && start {
                    if c.is_alphanumeric() || c == '_' {
                        word.push(c);
                        continue;
                    }
                    if !word.is_empty() {
                        found.push(std::mem::take(&mut word));
                        start = false;
                    }
                }
            }
            if !word.is_empty() {
                found.push(word);
            }
        } else {
            found.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

/// Wrong imports of `sources` (module -> source text), each with its reason.
fn violations(layers: &[String], sources: &[(String, String)]) -> Vec<String> {
    let rank: BTreeMap<&str, usize> = layers.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
    let mut wrong = Vec::new();
    for (module, source) in sources {
        let Some(&own) = rank.get(module.as_str()) else {
            wrong.push(format!("{module}: not in the list of docs/architecture.md"));
            continue;
        };
        for used in imports(source) {
            if rank.get(used.as_str()).is_some_and(|&used| used > own) {
                wrong.push(format!("{module} uses {used}, which stands below it"));
            }
        }
    }
    wrong
}

#[test]
fn no_module_uses_one_below_it() {
    let layers = layers();
    assert!(layers.len() > 10, "the list was not found: {layers:?}");
    let module = |path: &Path| {
        let inner = path.strip_prefix("src").expect("found under src");
        let first = inner.components().next().expect("a file").as_os_str().to_string_lossy().into_owned();
        first.trim_end_matches(".rs").to_owned()
    };
    // The program and its commands are on top of everything and no part of the library.
    let program = ["main", "cli", "lib"];
    let sources: Vec<_> = sources(Path::new("src"))
        .iter()
        .map(|path| (module(path), std::fs::read_to_string(path).expect("a readable source")))
        .filter(|(module, _)| !program.contains(&module.as_str()))
        .collect();
    let wrong = violations(&layers, &sources);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_import_is_found() {
    let layers: Vec<_> = ["error", "quant", "engine"].map(str::to_owned).into();
    for (source, count) in [
        ("use crate::error::Error;", 0),
        ("use crate::engine::Engine;", 1),
        ("use crate::{error::Error, engine::{Chat, Engine}};", 1),
        ("fn f() -> crate::engine::Engine {}", 1),
        ("// crate::engine is above us", 0),
    ] {
        let found = violations(&layers, &[("quant".into(), source.into())]);
        assert_eq!(found.len(), count, "{source}: {found:?}");
    }
    assert_eq!(violations(&layers, &[("stray".into(), String::new())]).len(), 1);
}
