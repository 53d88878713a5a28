//! The `tojson` filter as `transformers` defines it: Python's `json.dumps` without escaping for HTML.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Values within values: as many as `serde_json` reads, so that a megabyte of stack is enough.
const MAX_DEPTH: usize = 128;

/// `value|tojson(ensure_ascii, indent, separators, sort_keys)`.
///
/// # Errors
/// If the value has no form in JSON, or the template's budget is used up.
#[expect(clippy::needless_pass_by_value, reason = "a filter of the engine owns its arguments")]
pub(super) fn tojson(
    state: &State,
    value: &Value,
    ensure_ascii: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    let option =
        |name: &str| options.get::<Option<Value>>(name).map(|value| value.filter(|value| !value.is_none()));
    let ensure_ascii = match option("ensure_ascii")? {
        Some(value) => value.is_true(),
        None => ensure_ascii.unwrap_or(false),
    };
    let indent = option("indent")?.map(|indent| indentation(&indent)).transpose()?;
    let (item, key) = match option("separators")? {
        Some(separators) => {
            let text = |index| separators.get_item_by_index(index).map(|separator| separator.to_string());
            (text(0)?, text(1)?)
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let sort_keys = option("sort_keys")?.is_some_and(|value| value.is_true());
    options.assert_all_used()?;
    let mut writer =
        Writer { out: String::new(), state, ensure_ascii, indent, item, key, sort_keys, depth: 0 };
    writer.value(value)?;
    Ok(Value::from(writer.out))
}

/// Spaces of an `indent` that is a number, or the text itself.
fn indentation(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let spaces = value.as_i64().ok_or_else(|| wrong("indent is neither a number nor a text"))?;
    Ok(" ".repeat(spaces.clamp(0, 64) as usize))
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {}", message.into()))
}

struct Writer<'a> {
    out: String,
    state: &'a State<'a, 'a>,
    ensure_ascii: bool,
    /// What each level is indented by; everything is on one line without.
    indent: Option<String>,
    /// Between items.
    item: String,
    /// Between a key and its value.
    key: String,
    sort_keys: bool,
    depth: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Map => {
                let mut pairs = Vec::new();
                for key in value.try_iter()? {
                    let item = value.get_item(&key)?;
                    pairs.push((key_text(&key)?, item));
                }
                if self.sort_keys {
                    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
                }
                self.list(['{', '}'], pairs, |writer, (key, item)| {
                    writer.text(&key);
                    writer.out.push_str(&writer.key.clone());
                    writer.value(&item)
                })?;
            }
            ValueKind::Seq | ValueKind::Iterable => {
                self.list(['[', ']'], value.try_iter()?, |writer, item| writer.value(&item))?;
            }
            kind => return Err(wrong(format!("{kind} is not JSON"))),
        }
        Ok(())
    }

    fn list<T>(
        &mut self,
        brackets: [char; 2],
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.depth == MAX_DEPTH {
            return Err(wrong(format!("more than {MAX_DEPTH} values within each other")));
        }
        self.depth += 1;
        self.out.push(brackets[0]);
        let mut empty = true;
        for item in items {
            // Python puts the separator first and then breaks the line.
            if !empty {
                self.out.push_str(&self.item);
            }
            empty = false;
            self.line();
            self.state.consume_fuel(1)?;
            each(self, item)?;
        }
        self.depth -= 1;
        if !empty {
            self.line();
        }
        self.out.push(brackets[1]);
        Ok(())
    }

    fn line(&mut self) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(indent.as_str(), self.depth));
        }
    }

    fn number(&mut self, value: &Value) {
        match f64::try_from(value.clone()) {
            Ok(float) if !value.is_integer() => self.out.push_str(&python_float(float)),
            _ => self.out.push_str(&value.to_string()),
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for char in text.chars() {
            match char {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                // The marks of a shielded text must come out as they are: the tokenizer looks for them.
                _ if char < ' '
                    || (self.ensure_ascii && !char.is_ascii() && !crate::tokenizer::is_mark(char)) =>
                {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                _ => self.out.push(char),
            }
        }
        self.out.push('"');
    }
}

/// A key as text: Python's `json` turns numbers, booleans and None into text.
fn key_text(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::Number if key.is_integer() => key.to_string(),
        ValueKind::Number => python_float(f64::try_from(key.clone())?),
        kind => return Err(wrong(format!("{kind} is not a key in JSON"))),
    })
}

/// Python's `repr` of a float: the shortest digits that read back the same, with an exponent below 1e-4 and from 1e16 on.
fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    let text = value.to_string();
    if text.contains('.') { text } else { format!("{text}.0") }
}

#[cfg(test)]
mod tests {
    use super::python_float;

    /// The right sides are what Python 3.11 prints.
    #[test]
    fn floats_are_written_like_python() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (-2.5e-10, "-2.5e-10"),
            (123456.789, "123456.789"),
            (f64::INFINITY, "Infinity"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(python_float(value), expected);
        }
    }
}
