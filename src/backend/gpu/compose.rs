//! Shaders out of files: the composer. A line that begins with `#` is for it, everything else is WGSL:
//!
//! - `#import lib/bytes`: the file of that name, once, where it is first asked for; `#import quant`: the shader of the
//!   permutation's format;
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
                (["import", _], _) => {}
                _ => return Err(error(at, &format!("`{}` makes no sense here", line.trim()))),
            }
        }
        if !branches.is_empty() {
            return Err(error((name, text.lines().count()), "an #if without #endif"));
        }
        Ok(())
    }
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
            _ => return None,
        })
    }

    fn text(flags: &[&'static str]) -> String {
        let permutation = Permutation { flags: flags.to_vec(), consts: vec![("N", 3)], quant: None };
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
