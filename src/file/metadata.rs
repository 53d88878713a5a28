//! Keys and values of a model file, with accessors that widen numbers and name the key when a type is wrong.

use indexmap::IndexMap;

use super::texts::Texts;
use crate::error::{Error, Result};

/// A metadata value, in the type that the file gives it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the variants are the types that they are named after")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// An integer of any width.
    pub fn integer(&self) -> Option<i128> {
        Some(match self {
            Value::U8(value) => i128::from(*value),
            Value::I8(value) => i128::from(*value),
            Value::U16(value) => i128::from(*value),
            Value::I16(value) => i128::from(*value),
            Value::U32(value) => i128::from(*value),
            Value::I32(value) => i128::from(*value),
            Value::U64(value) => i128::from(*value),
            Value::I64(value) => i128::from(*value),
            _ => return None,
        })
    }

    /// A float of either width.
    pub fn float(&self) -> Option<f64> {
        match self {
            Value::F32(value) => Some(f64::from(*value)),
            Value::F64(value) => Some(*value),
            _ => None,
        }
    }
}

/// A metadata array: values of one type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "as for `Value`")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Texts),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Array {
    /// Integers of any width.
    pub fn integers(&self) -> Option<Numbers<'_, i128>> {
        Some(match self {
            Array::U8(values) => widened(values),
            Array::I8(values) => widened(values),
            Array::U16(values) => widened(values),
            Array::I16(values) => widened(values),
            Array::U32(values) => widened(values),
            Array::I32(values) => widened(values),
            Array::U64(values) => widened(values),
            Array::I64(values) => widened(values),
            _ => return None,
        })
    }

    /// Floats of either width.
    pub fn floats(&self) -> Option<Numbers<'_, f64>> {
        match self {
            Array::F32(values) => Some(widened(values)),
            Array::F64(values) => Some(widened(values)),
            _ => None,
        }
    }
}

/// Numbers of an array, one after the other.
pub type Numbers<'a, T> = Box<dyn ExactSizeIterator<Item = T> + 'a>;

fn widened<T: Copy, W: From<T>>(values: &[T]) -> Numbers<'_, W> {
    Box::new(values.iter().map(|&value| value.into()))
}

/// Keys and values in file order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(pub IndexMap<String, Value>);

impl Metadata {
    /// The raw value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Sets `key`: in its place if it is there, else behind the others.
    pub fn set(&mut self, key: impl Into<String>, value: Value) {
        self.0.insert(key.into(), value);
    }

    /// An integer that fits a u64.
    ///
    /// # Errors
    /// [`Error::Key`] if the value is something else. So for all accessors here.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let whole = value.integer().and_then(|integer| u64::try_from(integer).ok());
        whole.map(Some).ok_or_else(|| wrong(key, "a whole number", value))
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
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.float().map(|float| float as f32);
        let number = number.or_else(|| value.integer().map(|integer| integer as f32));
        number.map(Some).ok_or_else(|| wrong(key, "a number", value))
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
        let Some(value) = self.get(key) else { return Ok(None) };
        let wrong = || wrong(key, "an array of numbers", value);
        let Value::Array(array) = value else { return Err(wrong()) };
        if let Some(integers) = array.integers() {
            return Ok(Some(integers.map(|integer| integer as f32).collect()));
        }
        let floats = array.floats().ok_or_else(wrong)?;
        Ok(Some(floats.map(|float| float as f32).collect()))
    }

    /// An array of integers, of which booleans are 0 and 1.
    pub fn i64s(&self, key: &str) -> Result<Option<Vec<i64>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let integers = match value {
            Value::Array(Array::Bool(values)) => Some(widened(values)),
            Value::Array(array) => array.integers(),
            _ => None,
        };
        let integers = integers.ok_or_else(|| wrong(key, "an array of whole numbers", value))?;
        let too_large = |_| Error::key(key, "a number is too large");
        integers.map(|integer| i64::try_from(integer).map_err(too_large)).collect::<Result<_>>().map(Some)
    }

    /// `value`, or [`Error::MissingKey`] if there is none: `metadata.required(key, metadata.u32(key)?)`.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| Error::MissingKey { key: key.to_owned() })
    }
}

fn wrong(key: &str, expected: &str, found: &Value) -> Error {
    let found = match found {
        Value::Bool(value) => value.to_string(),
        Value::String(_) => "a text".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        number => match (number.integer(), number.float()) {
            (Some(integer), _) => integer.to_string(),
            (None, float) => float.unwrap_or_default().to_string(),
        },
    };
    Error::key(key, format!("expected {expected}, found {found}"))
}
