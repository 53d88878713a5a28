//! Shaders out of files: the composer. A line that begins with `#` is for it, everything else is WGSL:
//!
//! - `#import lib/bytes`: the file of that name, once, where it is first asked for; `#import quant`: the shader of the
//!   permutation's format;
//! - `#import quant as keys`, `#import encode as values`: the shader of a cache's format, and what it imports anew, under
//!   names of their own: what is declared there, or here as `keys_NAME`, is `keys_NAME`;
//! - `#if FLAG`, `#else`, `#endif`: by the permutation's flags; they nest.
//!
//! `enable` lines come first in the result. Each line of it knows its origin, so that an error names file and line.

use std::collections::HashSet;

use crate::error::{Error, Result};

/// A shader that is ready to be compiled.
#[derive(Debug)]
pub struct Composed {
    /// WGSL.
    pub text: String,
    /// File and line of each line.
    origins: Vec<(&'static str, usize)>,
}

/// What a shader is composed for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permutation {
    /// Name of the format's shader, where the kernel imports `quant`.
    pub quant: Option<&'static str>,
    /// Names of the formats of keys and values, or of rows before and after, where it imports their shaders.
    pub cache: Option<[&'static str; 2]>,
    /// For `#if`.
    pub flags: Vec<&'static str>,
    /// Become `const NAME: u32 = value;`.
    pub consts: Vec<(&'static str, u32)>,
}

impl Composed {
    /// `name:line` of the origin of line `line` (from 1) of the text.
    pub fn origin(&self, line: usize) -> String {
        match self.origins.get(line.wrapping_sub(1)) {
            Some((file, line)) => format!("{file}.wgsl:{line}"),
            None => format!("composed shader, line {line}"),
        }
    }
}

/// Composes file `main`.
///
/// # Errors
/// [`Error::Shader`] with file and line of a directive that makes no sense.
pub fn compose(
    main: &'static str,
    permutation: &Permutation,
    file: &dyn Fn(&str) -> Option<(&'static str, &'static str)>,
) -> Result<Composed> {
    let mut composer =
        Composer { permutation, file, seen: HashSet::new(), enables: Vec::new(), lines: Vec::new() };
    for (name, value) in &permutation.consts {
        composer.lines.push((format!("const {name}: u32 = {value}u;"), ("permutation", 1)));
    }
    composer.import(main, ("permutation", 1))?;
    let mut composed = Composed { text: String::new(), origins: Vec::new() };
    for (line, origin) in composer.enables.into_iter().chain(composer.lines) {
        composed.text.push_str(&line);
        composed.text.push('\n');
        composed.origins.push(origin);
    }
    Ok(composed)
}

type Line = (String, (&'static str, usize));

struct Composer<'a> {
    permutation: &'a Permutation,
    file: &'a dyn Fn(&str) -> Option<(&'static str, &'static str)>,
    seen: HashSet<&'static str>,
    enables: Vec<Line>,
    lines: Vec<Line>,
}

impl Composer<'_> {
    /// Imports the `folder`'s shader of what `prefix` names, with names of its own.
    fn import_as(&mut self, folder: &str, prefix: &str, from: (&'static str, usize)) -> Result<()> {
        let format = match (prefix, self.permutation.cache) {
            ("keys" | "from", Some([first, _])) => first,
            ("values" | "to", Some([_, second])) => second,
            _ => return Err(error(from, &format!("no format of {prefix} to import"))),
        };
        let (seen, outer) = (self.seen.clone(), std::mem::take(&mut self.lines));
        let imported = self.import(&format!("{folder}/{format}"), from);
        let inner = std::mem::replace(&mut self.lines, outer);
        self.seen = seen;
        let mut names: HashSet<&str> = inner.iter().filter_map(|(line, _)| declared(line)).collect();
        let outer = self.lines.iter().filter_map(|(line, _)| declared(line));
        names.extend(outer.filter_map(|name| name.strip_prefix(prefix)?.strip_prefix('_')));
        let renamed: Vec<Line> =
            inner.iter().map(|(line, at)| (renamed(line, prefix, &names), *at)).collect();
        self.lines.extend(renamed);
        imported
    }

    fn import(&mut self, name: &str, from: (&'static str, usize)) -> Result<()> {
        let name = match (name, self.permutation.quant) {
            ("quant", Some(quant)) => format!("quant/{quant}"),
            ("quant", None) => return Err(error(from, "no format to import")),
            _ => name.to_string(),
        };
        let Some((name, text)) = (self.file)(&name) else {
            return Err(error(from, &format!("no file {name}.wgsl")));
        };
        if !self.seen.insert(name) {
            return Ok(());
        }
        // Whether the lines of each open `#if` are taken, and whether its `#else` came.
        let mut branches: Vec<(bool, bool)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let at = (name, number + 1);
            let taken = branches.iter().all(|&(taken, _)| taken);
            let Some(directive) = line.trim_start().strip_prefix('#') else {
                if taken {
                    let list = if line.starts_with("enable ") { &mut self.enables } else { &mut self.lines };
                    list.push((line.to_string(), at));
                }
                continue;
            };
            let words: Vec<&str> = directive.split_whitespace().collect();
            match (words.as_slice(), branches.last_mut()) {
                (["if", flag], _) => branches.push((self.permutation.flags.contains(flag), false)),
                (["else"], Some(branch @ (_, false))) => *branch = (!branch.0, true),
                (["endif"], Some(_)) => drop(branches.pop()),
                (["import", path], _) if taken => self.import(path, at)?,
                (["import", folder, "as", prefix], _) if taken => self.import_as(folder, prefix, at)?,
                (["import", ..], _) if !taken => {}
                _ => return Err(error(at, &format!("`{}` makes no sense here", line.trim()))),
            }
        }
        if !branches.is_empty() {
            return Err(error((name, text.lines().count()), "an #if without #endif"));
        }
        Ok(())
    }
}

/// The name that a line declares for the whole shader: such lines are not indented.
fn declared(line: &str) -> Option<&str> {
    let rest = match line.split_once("var<") {
        Some((before, rest)) if before.is_empty() || before.starts_with('@') => rest.split_once("> ")?.1,
        _ => ["fn ", "const ", "struct ", "alias "].iter().find_map(|word| line.strip_prefix(word))?,
    };
    Some(&rest[..rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len())])
}

fn is_of_name(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

/// `line` with `prefix_` before each of `names`.
fn renamed(line: &str, prefix: &str, names: &HashSet<&str>) -> String {
    let mut text = String::with_capacity(2 * line.len());
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let len = rest.find(|other| is_of_name(other) != is_of_name(c)).unwrap_or(rest.len());
        let (word, later) = rest.split_at(len);
        if names.contains(word) {
            text.push_str(prefix);
            text.push('_');
        }
        text.push_str(word);
        rest = later;
    }
    text
}

fn error((file, line): (&str, usize), message: &str) -> Error {
    Error::Shader { place: format!("{file}.wgsl:{line}"), message: message.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(name: &str) -> Option<(&'static str, &'static str)> {
        Some(match name {
            "main" => {
                ("main", "#import lib\n#import lib\n#if A\na\n#if B\nab\n#else\nan\n#endif\n#else\nn\n#endif")
            }
            "lib" => ("lib", "enable f16;\nlib"),
            "odd" => ("odd", "fine\n#frob x"),
            "open" => ("open", "#if A\nx"),
            "cached" => (
                "cached",
                "@group(0) @binding(2) var<storage, read> keys_weights: array<u32>;\n#import shared\n\
                 #import quant as keys\n#import quant as values\n#import words",
            ),
            "quant/a" => (
                "quant/a",
                "#import shared\n#import words\nfn unpack(x: u32) { word(x.word) + half(BLOCK); }",
            ),
            "quant/b" => ("quant/b", "const BLOCK: u32 = 32u;\n#import words\nfn unpack() {}"),
            "words" => ("words", "var<private> low: u32;\nfn word(at: u32) { low = weights[at]; }"),
            "shared" => ("shared", "fn half() {}"),
            _ => return None,
        })
    }

    fn text(flags: &[&'static str]) -> String {
        let permutation =
            Permutation { flags: flags.to_vec(), consts: vec![("N", 3)], ..Permutation::default() };
        compose("main", &permutation, &files).expect("a good shader").text
    }

    #[test]
    fn files_come_once_and_flags_choose() {
        let head = "enable f16;\nconst N: u32 = 3u;\nlib\n";
        assert_eq!(text(&[]), format!("{head}n\n"));
        assert_eq!(text(&["A"]), format!("{head}a\nan\n"));
        assert_eq!(text(&["A", "B"]), format!("{head}a\nab\n"));
        assert_eq!(text(&["B"]), format!("{head}n\n"));
    }

    #[test]
    fn formats_of_caches_have_names_of_their_own() {
        let permutation = Permutation { cache: Some(["a", "b"]), ..Permutation::default() };
        let text = compose("cached", &permutation, &files).expect("a good shader").text;
        let expected = "@group(0) @binding(2) var<storage, read> keys_weights: array<u32>;
fn half() {}
var<private> keys_low: u32;
fn keys_word(at: u32) { keys_low = keys_weights[at]; }
fn keys_unpack(x: u32) { keys_word(x.keys_word) + half(BLOCK); }
const values_BLOCK: u32 = 32u;
var<private> values_low: u32;
fn values_word(at: u32) { values_low = weights[at]; }
fn values_unpack() {}
var<private> low: u32;
fn word(at: u32) { low = weights[at]; }
";
        assert_eq!(text, expected);
    }

    #[test]
    fn errors_name_file_and_line() {
        for (main, message) in [
            ("odd", "odd.wgsl:2: `#frob x` makes no sense here"),
            ("open", "open.wgsl:2: an #if without #endif"),
            ("none", "permutation.wgsl:1: no file none.wgsl"),
        ] {
            let error = compose(main, &Permutation::default(), &files).expect_err("a bad shader");
            assert!(error.to_string().contains(message), "{error}");
        }
    }

    #[test]
    fn lines_know_where_they_come_from() {
        let composed = compose("main", &Permutation::default(), &files).expect("a good shader");
        assert_eq!(composed.origin(2), "lib.wgsl:2");
        assert_eq!(composed.origin(3), "main.wgsl:11");
    }
}
