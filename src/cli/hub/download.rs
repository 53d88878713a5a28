//! Files from a hub: what there is, and one file after the other, gone on with where an earlier run stopped, checked
//! against the hash that the hub gives.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use hadal::Error;
use hadal::engine::Interrupt;
use indicatif::ProgressBar;
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Digest, Sha256};
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

use super::is_inside;
use crate::cli::interrupt::Interrupted;

/// Where models come from without `HF_ENDPOINT`.
const ENDPOINT: &str = "https://huggingface.co";
/// A list of files is no longer.
const LIST_LIMIT: u64 = 32 << 20;
/// Renamed repositories are answered with the new address.
const MOST_MOVES: usize = 5;

/// A hub.
pub struct Hub {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

/// A file, as the hub describes it.
#[derive(Debug)]
pub struct Remote {
    url: String,
    /// Of its contents: SHA-256 of large files, Git's own hash of small ones.
    pub hash: String,
    pub bytes: u64,
}

impl Hub {
    /// The hub that the environment names: `HF_ENDPOINT`, with the token of `HF_TOKEN` if there is one.
    pub fn new() -> Hub {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects_will_error(false)
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .user_agent(concat!("hadal/", env!("CARGO_PKG_VERSION")));
        Hub {
            agent: config.build().new_agent(),
            endpoint: variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.into()).trim_end_matches('/').into(),
            token: variable("HF_TOKEN").map(|token| token.trim().to_owned()),
        }
    }

    /// The commit that `revision` is, and the names of its files.
    pub fn files(&self, repo: &str, revision: &str) -> anyhow::Result<(String, Vec<String>)> {
        let url = format!("{}/api/models/{repo}/revision/{revision}", self.endpoint);
        let mut response = self.get(&url, 0, 10)?;
        refuse(&response, &url, repo)?;
        let text = response.body_mut().with_config().limit(LIST_LIMIT).read_to_string();
        let text = text.with_context(|| format!("{url}: the answer broke off"))?;
        let list: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("{url}: no JSON"))?;
        let commit = list["sha"].as_str().filter(|commit| is_hash(commit));
        let commit = commit.ok_or_else(|| anyhow!("{url}: the answer names no commit"))?;
        let files = list["siblings"].as_array().into_iter().flatten();
        let files = files.filter_map(|file| file["rfilename"].as_str()).filter(|name| is_inside(name));
        Ok((commit.to_owned(), files.map(str::to_owned).collect()))
    }

    /// Asks for a file's size and hash.
    pub fn describe(&self, repo: &str, commit: &str, file: &str) -> anyhow::Result<Remote> {
        let mut url = format!("{}/{repo}/resolve/{commit}/{}", self.endpoint, escaped(file));
        for _ in 0..MOST_MOVES {
            let request = self.signed(self.agent.head(&url)).config().max_redirects(0).build();
            let response = request.call().with_context(|| format!("{url}: no answer"))?;
            let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
            if let Some(place) = header("location").filter(|place| place.starts_with('/')) {
                url = format!("{}{place}", self.endpoint);
                continue;
            }
            if !response.status().is_redirection() {
                refuse(&response, &url, repo)?;
            }
            let hash = header("x-linked-etag").or_else(|| header("etag")).unwrap_or_default();
            let hash = hash.trim_start_matches("W/").trim_matches('"');
            let bytes =
                header("x-linked-size").or_else(|| header("content-length")).and_then(|n| n.parse().ok());
            return match (is_hash(hash), bytes) {
                (true, Some(bytes)) => Ok(Remote { hash: hash.to_owned(), bytes, url }),
                _ => bail!("{url}: the answer has no hash and size"),
            };
        }
        bail!("{url}: moved too often")
    }

    /// Brings `remote` to `path`. What an earlier run left there is kept.
    pub fn fetch(
        &self,
        remote: &Remote,
        path: &Path,
        progress: &ProgressBar,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        let partial = path.with_extension("incomplete");
        let io = |error| Error::io(&partial, error);
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&partial);
        let mut file = options.map_err(io)?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            bail!("{}: another program is bringing it", partial.display());
        }
        let mut hash = Hash::new(remote);
        let mut done = kept(&mut file, &mut hash).map_err(io)?;
        if done > remote.bytes {
            (done, hash) = (0, Hash::new(remote));
        }
        if done < remote.bytes || remote.bytes == 0 {
            let mut response = self.get(&remote.url, done, 10)?;
            refuse(&response, &remote.url, "it")?;
            if done > 0 && response.status() != StatusCode::PARTIAL_CONTENT {
                (done, hash) = (0, Hash::new(remote));
            }
            file.set_len(done).map_err(io)?;
            file.seek(SeekFrom::Start(done)).map_err(io)?;
            progress.set_position(done);
            let mut body = response.body_mut().as_reader();
            let mut buffer = vec![0; 1 << 20];
            loop {
                if stop.take() {
                    return Err(Interrupted.into());
                }
                let read = body
                    .read(&mut buffer)
                    .with_context(|| format!("{}: broke off: pull again to go on", remote.url))?;
                if read == 0 {
                    break;
                }
                done += read as u64;
                if done > remote.bytes {
                    bail!("{}: is longer than the {} bytes that were announced", remote.url, remote.bytes);
                }
                file.write_all(&buffer[..read]).map_err(io)?;
                hash.update(&buffer[..read]);
                progress.inc(read as u64);
            }
        }
        if done != remote.bytes {
            bail!("{}: broke off after {done} of {} bytes: pull again to go on", remote.url, remote.bytes);
        }
        if let Some(found) = hash.finish().filter(|found| *found != remote.hash) {
            drop(std::fs::remove_file(&partial));
            bail!(
                "{}: its hash is {found}, not {}: the download is damaged, pull again",
                remote.url,
                remote.hash
            );
        }
        file.sync_all().map_err(io)?;
        drop(file);
        Ok(std::fs::rename(&partial, path).map_err(|error| Error::io(path, error))?)
    }

    fn get(&self, url: &str, from: u64, redirects: u32) -> anyhow::Result<Response<Body>> {
        let mut request = self.signed(self.agent.get(url));
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        request.config().max_redirects(redirects).build().call().with_context(|| format!("{url}: no answer"))
    }

    /// The token goes to the hub alone, not to where it sends us on to.
    fn signed(
        &self,
        request: ureq::RequestBuilder<ureq::typestate::WithoutBody>,
    ) -> ureq::RequestBuilder<ureq::typestate::WithoutBody> {
        match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }
}

/// The hash of what was downloaded, of the hub's kind; none if that is neither SHA-256 nor Git's.
struct Hash(Option<Box<dyn DynDigest>>);

impl Hash {
    /// Of nothing yet.
    fn new(remote: &Remote) -> Hash {
        Hash(match remote.hash.len() {
            64 => Some(Box::new(Sha256::new())),
            // A blob of Git: SHA-1, of a head with the size first.
            40 => Some(Box::new(Sha1::new_with_prefix(format!("blob {}\0", remote.bytes)))),
            _ => None,
        })
    }

    fn update(&mut self, bytes: &[u8]) {
        if let Some(hash) = &mut self.0 {
            hash.update(bytes);
        }
    }

    fn finish(self) -> Option<String> {
        self.0.map(|hash| hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Reads what there is of a file into `hash`; its length.
fn kept(file: &mut File, hash: &mut Hash) -> std::io::Result<u64> {
    let mut buffer = vec![0; 1 << 20];
    let mut len = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(len),
            read => hash.update(&buffer[..read]),
        }
        len = file.stream_position()?;
    }
}

fn refuse<B>(response: &Response<B>, url: &str, repo: &str) -> anyhow::Result<()> {
    match response.status().as_u16() {
        200..=299 => Ok(()),
        401 | 403 => {
            bail!("{url}: refused: is {repo} spelled right, and does HF_TOKEN hold a token that may read it?")
        }
        404 => bail!("{url}: there is no such model, revision or file"),
        code => bail!("{url}: the hub answered {code}"),
    }
}

fn is_hash(text: &str) -> bool {
    (32..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Names in an address: all but letters, digits and a few marks by their bytes.
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
