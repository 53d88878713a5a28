//! A writer of safetensors files for tests.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use serde_json::{Map, Value, json};

/// A file with this header and `zeros` bytes of data.
pub fn file(header: &str, zeros: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; zeros]].concat()
}

/// A file of f32 tensors: names, shapes, and one value that fills each.
pub fn floats(tensors: &[(&str, &[usize], f32)]) -> Vec<u8> {
    let mut header = Map::new();
    let mut bytes = Vec::new();
    for (name, shape, value) in tensors {
        let start = bytes.len();
        (0..shape.iter().product()).for_each(|_| bytes.extend(value.to_le_bytes()));
        let info = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, bytes.len()]});
        header.insert((*name).to_owned(), info);
    }
    [file(&Value::Object(header).to_string(), 0), bytes].concat()
}
