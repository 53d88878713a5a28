//! Models of a hub: `hadal pull`, `list` and `rm`, in the cache that other programs share (`huggingface_hub`'s layout:
//! `models--OWNER--NAME/{refs,blobs,snapshots}`).

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hadal::file::Weights;
use hadal::{Error, Result};

mod cache;
mod commands;
mod download;

pub use commands::{List, Pull, Remove, list, pull, remove};

/// `OWNER/NAME` or `OWNER/NAME:QUANT`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    repo: String,
    quant: Option<String>,
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (repo, quant) = text.split_once(':').map_or((text, None), |(repo, quant)| (repo, Some(quant)));
        let name = |part: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !part.is_empty() && part.chars().all(known) && !part.starts_with('.') && !part.contains("--")
        };
        let parts: Vec<_> = repo.split('/').collect();
        if parts.len() != 2 || !parts.iter().all(|part| name(part)) || quant == Some("") {
            return Err("must be OWNER/NAME or OWNER/NAME:QUANT, like owner/model-GGUF:q4_k_m".into());
        }
        Ok(Reference { repo: repo.into(), quant: quant.map(str::to_owned) })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.quant {
            Some(quant) => write!(f, "{}:{quant}", self.repo),
            None => f.write_str(&self.repo),
        }
    }
}

/// A model as commands are told it: a file, a folder, or a [`Reference`] to what was pulled. No command opens it by itself.
#[derive(Clone, Debug)]
pub struct ModelName(PathBuf);

impl From<OsString> for ModelName {
    fn from(name: OsString) -> Self {
        ModelName(name.into())
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl ModelName {
    /// Where the model is: at the name itself, or, where nothing is and it looks like a reference, in the cache.
    ///
    /// # Errors
    /// [`Error::File`] if nothing of that name was pulled.
    pub fn path(&self) -> Result<PathBuf> {
        let ModelName(name) = self;
        let reference = name.to_str().and_then(|text| text.parse::<Reference>().ok());
        let Some(reference) = reference.filter(|_| !name.exists()) else { return Ok(name.clone()) };
        let found = cache::Cache::open().and_then(|cache| cache.model(&reference));
        found.ok_or_else(|| {
            let message =
                format!("is no file, and no model in the cache: `hadal pull {reference}` brings it");
            Error::File { path: name.clone(), message }
        })
    }

    /// Opens it.
    ///
    /// # Errors
    /// Those of [`ModelName::path`] and [`Weights::open`].
    pub fn weights(&self) -> Result<Weights> {
        Weights::open(&self.path()?)
    }
}

/// Of the names of a repository's files those that `quant` means, the first of them first: GGUF files with it in their
/// name; without one the usual one, or the only one; where there are none, a folder of safetensors.
fn choose(files: &[String], quant: Option<&str>) -> std::result::Result<Vec<String>, String> {
    let mut gguf: Vec<&String> = files.iter().filter(|file| file.to_lowercase().ends_with(".gguf")).collect();
    gguf.retain(|file| !file.rsplit('/').next().unwrap_or(file).starts_with("mmproj"));
    gguf.sort_unstable();
    if gguf.is_empty() && quant.is_none() {
        let kept = |file: &&String| {
            let ends = [".json", ".safetensors", ".jinja", ".model"];
            !file.contains('/') && ends.iter().any(|end| file.ends_with(end))
        };
        let folder: Vec<_> = files.iter().filter(kept).cloned().collect();
        return if folder.iter().any(|file| file.ends_with(".safetensors")) {
            Ok(folder)
        } else {
            Err("has neither GGUF files nor safetensors".into())
        };
    }
    let wanted: &[&str] = &[quant.unwrap_or("q4_k_m"), if quant.is_none() { "q8_0" } else { "" }];
    let first = wanted
        .iter()
        .filter(|name| !name.is_empty())
        .find_map(|name| gguf.iter().find(|file| has(file, name)));
    let first = first.or_else(|| gguf.first().filter(|_| quant.is_none()));
    let Some(first) = first else {
        return Err(format!("has no GGUF file with {:?} in its name: {}", quant.unwrap_or(""), join(&gguf)));
    };
    // Parts of one model differ in their number only.
    let stem = |file: &str| file.split_once("-00001-of-").map(|(stem, _)| stem.to_owned());
    Ok(match stem(first) {
        Some(stem) => gguf
            .iter()
            .filter(|file| file.starts_with(&format!("{stem}-0")))
            .map(|file| (*file).clone())
            .collect(),
        None => vec![(*first).clone()],
    })
}

/// Whether `quant` is a word of the file's name: `q4_k` is not `q4_k_m`.
fn has(file: &str, quant: &str) -> bool {
    let (file, quant) = (file.to_lowercase(), quant.to_lowercase());
    file.match_indices(&quant).any(|(at, _)| {
        let edge = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_');
        edge(file[..at].chars().next_back()) && edge(file[at + quant.len()..].chars().next())
    })
}

fn join(files: &[&String]) -> String {
    files.iter().map(|file| file.as_str()).collect::<Vec<_>>().join(", ")
}

/// Whether a name from a server stays inside the folder it is joined to.
fn is_inside(name: &str) -> bool {
    use std::path::Component;
    !name.is_empty()
        && !name.contains(['\\', ':', '\0'])
        && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_or_refused() {
        let good = [("a/b", None), ("a/b-GGUF:q4_k_m", Some("q4_k_m"))];
        for (text, quant) in good {
            let found: Reference = text.parse().unwrap();
            assert_eq!((found.quant.as_deref(), found.to_string().as_str()), (quant, text));
        }
        for wrong in ["a", "a/b/c", "../b", "a/..", "a/b:", "a/b--c", "a b/c", "/b"] {
            assert!(wrong.parse::<Reference>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_are_chosen_by_words_of_their_names() {
        let files = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let gguf = files(&["m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-Q4_K.gguf", "mmproj-m-Q8_0.gguf", "README.md"]);
        assert_eq!(choose(&gguf, Some("q4_k")).unwrap(), ["m-Q4_K.gguf"]);
        assert_eq!(choose(&gguf, None).unwrap(), ["m-Q4_K_M.gguf"]);
        assert!(choose(&gguf, Some("q2_k")).unwrap_err().contains("m-Q8_0.gguf"));
        let split = files(&["q/m-00002-of-00002.gguf", "q/m-00001-of-00002.gguf", "x.gguf"]);
        assert_eq!(
            choose(&split, Some("m-00001-of-00002")).unwrap(),
            split[..2].iter().rev().cloned().collect::<Vec<_>>()
        );
        let folder = files(&["config.json", "model.safetensors", "tokenizer.json", "a/b.json", "x.png"]);
        assert_eq!(choose(&folder, None).unwrap(), folder[..3]);
        assert!(choose(&files(&["a.bin"]), None).is_err());
    }

    #[test]
    fn names_stay_inside() {
        assert!(is_inside("a/b.gguf"));
        for wrong in ["", "../a", "/a", "a/../../b", "a\\b", "c:a"] {
            assert!(!is_inside(wrong), "{wrong}");
        }
    }
}
