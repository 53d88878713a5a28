//! The folders for files that the program keeps for its user, by each system's convention. There is none where the
//! environment doesn't tell. Relative paths are ignored, as the XDG base directory specification demands.

use std::path::PathBuf;

/// Where a system keeps one kind of files: a variable of the XDG specification with its default below the home folder,
/// and the places of macOS (below the home folder) and Windows (a variable, and a folder below it).
struct Kind {
    xdg: (&'static str, &'static str),
    macos: &'static str,
    windows: (&'static str, &'static str),
}

const DATA: Kind = Kind {
    xdg: ("XDG_DATA_HOME", ".local/share"),
    macos: "Library/Application Support",
    windows: ("APPDATA", "hadal"),
};
const CACHE: Kind = Kind {
    xdg: ("XDG_CACHE_HOME", ".cache"),
    macos: "Library/Caches",
    windows: ("LOCALAPPDATA", "hadal/cache"),
};

/// For what a user would miss.
pub fn data() -> Option<PathBuf> {
    DATA.folder(std::env::consts::OS, environment)
}

/// For what can be made again: `HADAL_CACHE_DIR`, or by the system's convention.
fn cache() -> Option<PathBuf> {
    environment("HADAL_CACHE_DIR")
        .filter(|path| !path.as_os_str().is_empty())
        .or_else(|| CACHE.folder(std::env::consts::OS, environment))
}

/// For compiled kernels.
pub fn pipelines() -> Option<PathBuf> {
    Some(cache()?.join("pipelines"))
}

/// For models of a hub, which other programs share: `HF_HUB_CACHE`, `hub` in `HF_HOME`, or the same place on all systems.
pub fn hub() -> Option<PathBuf> {
    let given = |name| environment(name).filter(|path| !path.as_os_str().is_empty());
    let home = || given("HOME").or_else(|| given("USERPROFILE"));
    let xdg = || given("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")));
    given("HF_HUB_CACHE")
        .or_else(|| Some(given("HF_HOME")?.join("hub")))
        .or_else(|| Some(xdg()?.join("huggingface").join("hub")))
}

fn environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

impl Kind {
    fn folder(&self, system: &str, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
        let absolute = |name| variable(name).filter(|path| path.has_root());
        Some(match system {
            "windows" => absolute(self.windows.0)?.join(self.windows.1),
            "macos" => absolute("HOME")?.join(self.macos).join("hadal"),
            _ => {
                let base = absolute(self.xdg.0).or_else(|| Some(absolute("HOME")?.join(self.xdg.1)))?;
                base.join("hadal")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_follow_the_system() {
        type Variables = &'static [(&'static str, &'static str)];
        let cases: [(&Kind, &str, Variables, Option<&str>); 11] = [
            (&DATA, "linux", &[("HOME", "/home/jane"), ("XDG_DATA_HOME", "/data")], Some("/data/hadal")),
            (
                &DATA,
                "linux",
                &[("HOME", "/home/jane"), ("XDG_DATA_HOME", "data")],
                Some("/home/jane/.local/share/hadal"),
            ),
            (
                &DATA,
                "linux",
                &[("HOME", "/home/jane"), ("XDG_DATA_HOME", "")],
                Some("/home/jane/.local/share/hadal"),
            ),
            (&DATA, "freebsd", &[("HOME", "/home/jane")], Some("/home/jane/.local/share/hadal")),
            (
                &DATA,
                "macos",
                &[("HOME", "/Users/jane")],
                Some("/Users/jane/Library/Application Support/hadal"),
            ),
            (&DATA, "windows", &[("APPDATA", "/Users/jane/AppData")], Some("/Users/jane/AppData/hadal")),
            (&DATA, "windows", &[("HOME", "/Users/jane")], None),
            (&DATA, "linux", &[], None),
            (&CACHE, "linux", &[("HOME", "/home/jane")], Some("/home/jane/.cache/hadal")),
            (&CACHE, "macos", &[("HOME", "/Users/jane")], Some("/Users/jane/Library/Caches/hadal")),
            (
                &CACHE,
                "windows",
                &[("LOCALAPPDATA", "/Users/jane/Local")],
                Some("/Users/jane/Local/hadal/cache"),
            ),
        ];
        let failures: Vec<_> = cases
            .iter()
            .filter_map(|(kind, system, variables, expected)| {
                let value = |name: &str| {
                    variables.iter().find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value))
                };
                let found = kind.folder(system, value);
                (found != expected.map(PathBuf::from)).then(|| format!("{system} {variables:?}: {found:?}"))
            })
            .collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }
}
