//! Metadata values as GGUF stores them.

use crate::file::metadata::{Array, Value};

/// A key or a text behind its length.
pub fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A type and a value of it.
pub fn value(out: &mut Vec<u8>, value: &Value) {
    let mut number = |kind: u32, bytes: &[u8]| {
        out.extend(kind.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U8(value) => number(0, &value.to_le_bytes()),
        Value::I8(value) => number(1, &value.to_le_bytes()),
        Value::U16(value) => number(2, &value.to_le_bytes()),
        Value::I16(value) => number(3, &value.to_le_bytes()),
        Value::U32(value) => number(4, &value.to_le_bytes()),
        Value::I32(value) => number(5, &value.to_le_bytes()),
        Value::F32(value) => number(6, &value.to_le_bytes()),
        Value::Bool(value) => number(7, &[u8::from(*value)]),
        Value::String(value) => {
            number(8, &[]);
            text(out, value);
        }
        Value::Array(values) => {
            number(9, &[]);
            array(out, values);
        }
        Value::U64(value) => number(10, &value.to_le_bytes()),
        Value::I64(value) => number(11, &value.to_le_bytes()),
        Value::F64(value) => number(12, &value.to_le_bytes()),
    }
}

/// The type and number of the elements, then they.
fn array(out: &mut Vec<u8>, array_values: &Array) {
    match array_values {
        Array::U8(values) => numbers(out, 0, values, |value| value.to_le_bytes()),
        Array::I8(values) => numbers(out, 1, values, |value| value.to_le_bytes()),
        Array::U16(values) => numbers(out, 2, values, |value| value.to_le_bytes()),
        Array::I16(values) => numbers(out, 3, values, |value| value.to_le_bytes()),
        Array::U32(values) => numbers(out, 4, values, |value| value.to_le_bytes()),
        Array::I32(values) => numbers(out, 5, values, |value| value.to_le_bytes()),
        Array::F32(values) => numbers(out, 6, values, |value| value.to_le_bytes()),
        Array::Bool(values) => numbers(out, 7, values, |value| [u8::from(value)]),
        Array::String(values) => {
            count(out, 8, values.len());
            values.iter().for_each(|value| text(out, value));
        }
        Array::Array(values) => {
            count(out, 9, values.len());
            values.iter().for_each(|value| array(out, value));
        }
        Array::U64(values) => numbers(out, 10, values, |value| value.to_le_bytes()),
        Array::I64(values) => numbers(out, 11, values, |value| value.to_le_bytes()),
        Array::F64(values) => numbers(out, 12, values, |value| value.to_le_bytes()),
    }
}

fn count(out: &mut Vec<u8>, kind: u32, count: usize) {
    out.extend(kind.to_le_bytes());
    out.extend((count as u64).to_le_bytes());
}

fn numbers<T: Copy, const N: usize>(out: &mut Vec<u8>, kind: u32, values: &[T], bytes: fn(T) -> [u8; N]) {
    count(out, kind, values.len());
    values.iter().for_each(|&value| out.extend(bytes(value)));
}
