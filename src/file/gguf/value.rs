//! Metadata values: 13 types, scalars and arrays of them.

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
        Array::U8(values) => Value::U8(values[0]),
        Array::I8(values) => Value::I8(values[0]),
        Array::U16(values) => Value::U16(values[0]),
        Array::I16(values) => Value::I16(values[0]),
        Array::U32(values) => Value::U32(values[0]),
        Array::I32(values) => Value::I32(values[0]),
        Array::F32(values) => Value::F32(values[0]),
        Array::Bool(values) => Value::Bool(values[0]),
        array @ (Array::String(_) | Array::Array(_)) => Value::Array(array),
        Array::U64(values) => Value::U64(values[0]),
        Array::I64(values) => Value::I64(values[0]),
        Array::F64(values) => Value::F64(values[0]),
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
        0 => Array::U8(r.numbers(count, u8::from_le_bytes)?),
        1 => Array::I8(r.numbers(count, i8::from_le_bytes)?),
        2 => Array::U16(r.numbers(count, u16::from_le_bytes)?),
        3 => Array::I16(r.numbers(count, i16::from_le_bytes)?),
        4 => Array::U32(r.numbers(count, u32::from_le_bytes)?),
        5 => Array::I32(r.numbers(count, i32::from_le_bytes)?),
        6 => Array::F32(r.numbers(count, f32::from_le_bytes)?),
        7 => Array::Bool(read_bools(r, count)?),
        STRING => Array::String(read_texts(r, count)?),
        ARRAY => {
            let mut arrays = r.room(count, ARRAY_BYTES)?;
            for _ in 0..count {
                arrays.push(read_array(r, depth + 1)?);
            }
            Array::Array(arrays)
        }
        10 => Array::U64(r.numbers(count, u64::from_le_bytes)?),
        11 => Array::I64(r.numbers(count, i64::from_le_bytes)?),
        12 => Array::F64(r.numbers(count, f64::from_le_bytes)?),
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
