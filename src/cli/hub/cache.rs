//! The folder of pulled models: each repository's has `refs/REVISION` (the commit), `snapshots/COMMIT/FILE` and what these
//! link to, `blobs/HASH`.

use std::path::{Path, PathBuf};

use hadal::file::output;
use hadal::{Error, Result};

use super::{Reference, choose};
use crate::cli::folder;

/// Where pulled models are.
#[derive(Debug)]
pub struct Cache(pub PathBuf);

/// One file of a pulled model.
#[derive(Debug)]
pub struct Pulled {
    pub repo: String,
    pub file: String,
    pub bytes: u64,
}

impl Cache {
    /// `HF_HUB_CACHE`, or `hub` in `HF_HOME`, or the usual place; none where the environment doesn't tell.
    pub fn open() -> Option<Cache> {
        folder::hub().map(Cache)
    }

    /// The folder of a repository.
    pub fn repo(&self, repo: &str) -> PathBuf {
        self.0.join(format!("models--{}", repo.replace('/', "--")))
    }

    /// What to open for `reference`: a file, or a folder of safetensors.
    pub fn model(&self, reference: &Reference) -> Option<PathBuf> {
        let snapshot = snapshot(&self.repo(&reference.repo))?;
        let files: Vec<String> = files(&snapshot).into_iter().map(|(name, _)| name).collect();
        let first = choose(&files, reference.quant.as_deref()).ok()?.into_iter().next()?;
        Some(if first.to_lowercase().ends_with(".gguf") { snapshot.join(first) } else { snapshot })
    }

    /// Whatever there is, by repository and name.
    pub fn all(&self) -> Vec<Pulled> {
        let mut repos: Vec<_> = entries(&self.0);
        repos.sort_unstable();
        let mut all = Vec::new();
        for folder in repos {
            let name = folder
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.strip_prefix("models--"));
            let (Some(name), Some(snapshot)) = (name, snapshot(&folder)) else { continue };
            let repo = name.replacen("--", "/", 1);
            let files = files(&snapshot).into_iter();
            all.extend(files.map(|(file, bytes)| Pulled { repo: repo.clone(), file, bytes }));
        }
        all
    }

    /// Removes a repository, or those of its files that a quantization means. The files' names.
    ///
    /// # Errors
    /// [`Error::File`] if there is no such model, [`Error::Io`].
    pub fn remove(&self, reference: &Reference) -> Result<Vec<String>> {
        let folder = self.repo(&reference.repo);
        let missing = || Error::File {
            path: folder.clone(),
            message: "is not there: `hadal list` tells what is".into(),
        };
        let Some(quant) = &reference.quant else {
            let names = snapshot(&folder).map(|snapshot| files(&snapshot)).unwrap_or_default();
            if !folder.is_dir() {
                return Err(missing());
            }
            std::fs::remove_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
            return Ok(names.into_iter().map(|(name, _)| name).collect());
        };
        let snapshot = snapshot(&folder).ok_or_else(missing)?;
        let names: Vec<String> = files(&snapshot).into_iter().map(|(name, _)| name).collect();
        let chosen =
            choose(&names, Some(quant)).map_err(|message| Error::File { path: folder.clone(), message })?;
        for name in &chosen {
            let link = snapshot.join(name);
            let blob = link.canonicalize().ok().filter(|blob| *blob != link);
            for path in [Some(link), blob].into_iter().flatten() {
                std::fs::remove_file(&path).map_err(|error| Error::io(&path, error))?;
            }
        }
        Ok(chosen)
    }

    /// Shows the blob `hash` as `file` of a commit.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn link(&self, repo: &str, commit: &str, file: &str, hash: &str) -> Result<PathBuf> {
        let link = self.repo(repo).join("snapshots").join(commit).join(file);
        let blob = self.repo(repo).join("blobs").join(hash);
        if let Some(folder) = link.parent() {
            std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        }
        if link.exists() {
            return Ok(link);
        }
        // A link whose blob was removed.
        drop(std::fs::remove_file(&link));
        let up = "../".repeat(2 + file.matches('/').count());
        symlink(Path::new(&format!("{up}blobs/{hash}")), &blob, &link)
            .map_err(|error| Error::io(&link, error))?;
        Ok(link)
    }

    /// Says which commit a revision is, once its files are there.
    ///
    /// # Errors
    /// Those of [`output::write`].
    pub fn set(&self, repo: &str, revision: &str, commit: &str) -> Result<()> {
        let path = self.repo(repo).join("refs").join(revision);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        }
        output::write(&path, commit.as_bytes())
    }
}

#[cfg(unix)]
fn symlink(target: &Path, _: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// Links are for administrators there: the name becomes a second one of the same file.
#[cfg(not(unix))]
fn symlink(_: &Path, blob: &Path, link: &Path) -> std::io::Result<()> {
    std::fs::hard_link(blob, link)
}

/// The folder of the commit that `refs/main` names, or of the only one there is.
fn snapshot(repo: &Path) -> Option<PathBuf> {
    let named = std::fs::read_to_string(repo.join("refs/main")).ok();
    let named =
        named.map(|commit| repo.join("snapshots").join(commit.trim())).filter(|folder| folder.is_dir());
    named.or_else(|| entries(&repo.join("snapshots")).into_iter().find(|folder| folder.is_dir()))
}

/// Names, relative to `folder`, and sizes.
fn files(folder: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for path in entries(&next) {
            match std::fs::metadata(&path) {
                Ok(data) if data.is_dir() => folders.push(path),
                Ok(data) => {
                    let name = path.strip_prefix(folder).ok().and_then(Path::to_str);
                    found.extend(name.map(|name| (name.replace('\\', "/"), data.len())));
                }
                Err(_) => {}
            }
        }
    }
    found.sort_unstable();
    found
}

/// What is in a folder; nothing if it can't be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}
