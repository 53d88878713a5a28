//! Keys and values of a model file, with accessors that widen numbers and name the key when a type is wrong.

use indexmap::IndexMap;

use super::texts::Texts;
use crate::error::{Error, Result};

/// A metadata value. Integers of every width are widened, floats to f64.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `u8`, `u16`, `u32`, `u64`.
    Unsigned(u64),
    /// `i8`, `i16`, `i32`, `i64`.
    Signed(i64),
    /// `f32`, `f64`.
    Float(f64),
    /// `bool`.
    Bool(bool),
    /// UTF-8 text.
    String(String),
    /// Values of one type.
    Array(Array),
}

/// A metadata array, stored flat.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Integers without sign.
    Unsigned(Vec<u64>),
    /// Integers with sign.
    Signed(Vec<i64>),
    /// Floats.
    Float(Vec<f64>),
    /// Booleans.
    Bool(Vec<bool>),
    /// Texts.
    String(Texts),
    /// Arrays.
    Array(Vec<Array>),
}

/// Keys and values in file order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(pub IndexMap<String, Value>);

impl Metadata {
    /// The raw value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// An integer that fits a u64.
    ///
    /// # Errors
    /// [`Error::Key`] if the value is something else. So for all accessors here.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(value)) => Ok(Some(*value)),
            Some(Value::Signed(value)) if *value >= 0 => Ok(Some(value.unsigned_abs())),
            Some(other) => Err(wrong(key, "a whole number", other)),
        }
    }

    /// An integer that fits a u32.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        let Some(value) = self.u64(key)? else { return Ok(None) };
        u32::try_from(value).map(Some).map_err(|_| Error::key(key, format!("{value} is too large")))
    }

    /// An integer that fits a usize.
    pub fn usize(&self, key: &str) -> Result<Option<usize>> {
        Ok(self.u32(key)?.map(|value| value as usize))
    }

    /// A float, or an integer taken as one.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(value)) => Ok(Some(*value as f32)),
            Some(Value::Unsigned(value)) => Ok(Some(*value as f32)),
            Some(Value::Signed(value)) => Ok(Some(*value as f32)),
            Some(other) => Err(wrong(key, "a number", other)),
        }
    }

    /// A boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong(key, "true or false", other)),
        }
    }

    /// A text.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(other) => Err(wrong(key, "a text", other)),
        }
    }

    /// An array of texts.
    pub fn strs(&self, key: &str) -> Result<Option<&Texts>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::String(values))) => Ok(Some(values)),
            Some(other) => Err(wrong(key, "an array of texts", other)),
        }
    }

    /// An array of floats (or of integers taken as floats).
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::Float(values))) => Ok(Some(values.iter().map(|&v| v as f32).collect())),
            Some(Value::Array(Array::Unsigned(values))) => {
                Ok(Some(values.iter().map(|&v| v as f32).collect()))
            }
            Some(Value::Array(Array::Signed(values))) => Ok(Some(values.iter().map(|&v| v as f32).collect())),
            Some(other) => Err(wrong(key, "an array of numbers", other)),
        }
    }

    /// An array of integers.
    pub fn i64s(&self, key: &str) -> Result<Option<Vec<i64>>> {
        let too_large = |_| Error::key(key, "a number is too large");
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::Signed(values))) => Ok(Some(values.clone())),
            Some(Value::Array(Array::Unsigned(values))) => {
                values.iter().map(|&v| i64::try_from(v).map_err(too_large)).collect::<Result<_>>().map(Some)
            }
            Some(Value::Array(Array::Bool(values))) => {
                Ok(Some(values.iter().map(|&v| i64::from(v)).collect()))
            }
            Some(other) => Err(wrong(key, "an array of whole numbers", other)),
        }
    }

    /// `value`, or [`Error::MissingKey`] if there is none: `metadata.required(key, metadata.u32(key)?)`.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| Error::MissingKey { key: key.to_owned() })
    }
}

fn wrong(key: &str, expected: &str, found: &Value) -> Error {
    let found = match found {
        Value::Unsigned(value) => value.to_string(),
        Value::Signed(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::String(_) => "a text".to_owned(),
        Value::Array(_) => "an array".to_owned(),
    };
    Error::key(key, format!("expected {expected}, found {found}"))
}
