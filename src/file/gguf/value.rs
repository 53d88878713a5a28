//! Metadata values: 13 types, scalars and arrays of them. Integers are widened to 64 bits, floats to f64.

use super::cursor::Cursor;
use crate::error::Result;
use crate::file::Texts;
use crate::file::metadata::{Array, Value};

/// The smallest value: one byte.
pub(super) const LEAST_BYTES: usize = 4 + 1;

/// An array inside an array is one deep. ggml's reader allows none; the GGUF specification sets no limit. This
/// one keeps the stack bounded.
const MAX_ARRAY_DEPTH: u32 = 4;

const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Bytes that an array takes at least: type and length.
const ARRAY_BYTES: usize = 4 + 8;

/// The value that follows its key: a type, then what the type says.
pub(super) fn read(r: &mut Cursor) -> Result<Value> {
    let kind = r.u32("type")?;
    if kind == ARRAY {
        return read_array(r, 0).map(Value::Array);
    }
    if kind == STRING {
        return r.text("values", u64::MAX).map(|text| Value::String(text.to_owned()));
    }
    // A scalar is stored like an array of one value without the length.
    Ok(match read_values(r, kind, 1, 0)? {
        Array::Unsigned(values) => Value::Unsigned(values[0]),
        Array::Signed(values) => Value::Signed(values[0]),
        Array::Float(values) => Value::Float(values[0]),
        Array::Bool(values) => Value::Bool(values[0]),
        array @ (Array::String(_) | Array::Array(_)) => Value::Array(array),
    })
}

fn read_array(r: &mut Cursor, depth: u32) -> Result<Array> {
    if depth > MAX_ARRAY_DEPTH {
        return Err(r.error("type", format!("arrays more than {MAX_ARRAY_DEPTH} deep in arrays")));
    }
    let kind = r.u32("type")?;
    let count = r.u64("length")?;
    read_values(r, kind, count, depth)
}

fn read_values(r: &mut Cursor, kind: u32, count: u64, depth: u32) -> Result<Array> {
    Ok(match kind {
        0 => Array::Unsigned(r.numbers(count, |b| u8::from_le_bytes(b).into())?),
        1 => Array::Signed(r.numbers(count, |b| i8::from_le_bytes(b).into())?),
        2 => Array::Unsigned(r.numbers(count, |b| u16::from_le_bytes(b).into())?),
        3 => Array::Signed(r.numbers(count, |b| i16::from_le_bytes(b).into())?),
        4 => Array::Unsigned(r.numbers(count, |b| u32::from_le_bytes(b).into())?),
        5 => Array::Signed(r.numbers(count, |b| i32::from_le_bytes(b).into())?),
        6 => Array::Float(r.numbers(count, |b| f32::from_le_bytes(b).into())?),
        7 => Array::Bool(read_bools(r, count)?),
        STRING => Array::String(read_texts(r, count)?),
        ARRAY => {
            let mut arrays = r.room(count, ARRAY_BYTES)?;
            for _ in 0..count {
                arrays.push(read_array(r, depth + 1)?);
            }
            Array::Array(arrays)
        }
        10 => Array::Unsigned(r.numbers(count, u64::from_le_bytes)?),
        11 => Array::Signed(r.numbers(count, i64::from_le_bytes)?),
        12 => Array::Float(r.numbers(count, f64::from_le_bytes)?),
        _ => return Err(r.error("type", format!("value type {kind} is unknown, GGUF has 0 to 12"))),
    })
}

fn read_bools(r: &mut Cursor, count: u64) -> Result<Vec<bool>> {
    let start = r.position();
    let bytes = r.take("values", count)?;
    if let Some(index) = bytes.iter().position(|&byte| byte > 1) {
        let message = format!("{} is no boolean, those are 0 and 1", bytes[index]);
        return Err(r.error_at(start + index, "values", message));
    }
    Ok(bytes.iter().map(|&byte| byte == 1).collect())
}

fn read_texts(r: &mut Cursor, count: u64) -> Result<Texts> {
    let start = r.position();
    r.fits(start, "length", count, size_of::<u64>())?;
    let mut bytes = 0;
    for _ in 0..count {
        bytes += r.text("values", u64::MAX)?.len();
    }
    r.go_back(start);
    let mut texts = Texts::with_capacity(count as usize, bytes);
    for _ in 0..count {
        texts.push(r.text("values", u64::MAX)?);
    }
    Ok(texts)
}
