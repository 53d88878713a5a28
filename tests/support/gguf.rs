//! A writer of GGUF files for tests, whole ones and broken ones: every field can be overridden.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

/// A metadata value in the type that it is written as.
#[derive(Clone, Debug)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Text(String),
    /// The element type, then elements of it.
    Array(u32, Vec<Value>),
    U64(u64),
    I64(i64),
    F64(f64),
    /// A type and bytes that need not fit it.
    Raw(u32, Vec<u8>),
}

impl Value {
    pub fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    pub fn texts(texts: &[&str]) -> Value {
        Value::Array(8, texts.iter().map(|text| Value::text(text)).collect())
    }

    fn kind(&self) -> u32 {
        match self {
            Value::U8(_) => 0,
            Value::I8(_) => 1,
            Value::U16(_) => 2,
            Value::I16(_) => 3,
            Value::U32(_) => 4,
            Value::I32(_) => 5,
            Value::F32(_) => 6,
            Value::Bool(_) => 7,
            Value::Text(_) => 8,
            Value::Array(..) => 9,
            Value::U64(_) => 10,
            Value::I64(_) => 11,
            Value::F64(_) => 12,
            Value::Raw(kind, _) => *kind,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::U8(value) => out.push(*value),
            Value::I8(value) => out.extend(value.to_le_bytes()),
            Value::U16(value) => out.extend(value.to_le_bytes()),
            Value::I16(value) => out.extend(value.to_le_bytes()),
            Value::U32(value) => out.extend(value.to_le_bytes()),
            Value::I32(value) => out.extend(value.to_le_bytes()),
            Value::F32(value) => out.extend(value.to_le_bytes()),
            Value::Bool(value) => out.push(u8::from(*value)),
            Value::Text(text) => write_text(out, text),
            Value::Array(kind, values) => {
                out.extend(kind.to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| value.write(out));
            }
            Value::U64(value) => out.extend(value.to_le_bytes()),
            Value::I64(value) => out.extend(value.to_le_bytes()),
            Value::F64(value) => out.extend(value.to_le_bytes()),
            Value::Raw(_, bytes) => out.extend(bytes),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// As in the file: innermost first.
    pub dims: Vec<u64>,
    pub kind: u32,
    /// In place of the next aligned offset.
    pub offset: Option<u64>,
    pub data: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct File {
    pub version: u32,
    pub tensor_count: Option<u64>,
    pub key_count: Option<u64>,
    pub keys: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
    /// What the data is padded to; `general.alignment` has to be added as a key.
    pub alignment: usize,
    /// Whether padding follows the last tensor.
    pub padded: bool,
}

impl File {
    pub fn new() -> File {
        File {
            version: 3,
            tensor_count: None,
            key_count: None,
            keys: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
            padded: true,
        }
    }

    pub fn version(mut self, version: u32) -> File {
        self.version = version;
        self
    }

    pub fn key(mut self, key: &str, value: Value) -> File {
        self.keys.push((key.to_owned(), value));
        self
    }

    pub fn aligned(mut self, alignment: u32) -> File {
        self.alignment = alignment as usize;
        self.key("general.alignment", Value::U32(alignment))
    }

    pub fn unpadded(mut self) -> File {
        self.padded = false;
        self
    }

    pub fn tensor(mut self, name: &str, dims: &[u64], kind: u32, data: Vec<u8>) -> File {
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), kind, offset: None, data });
        self
    }

    pub fn f32(self, name: &str, values: &[f32]) -> File {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, &[values.len() as u64], 0, data)
    }

    pub fn at(mut self, offset: u64) -> File {
        self.tensors.last_mut().expect("a tensor was added").offset = Some(offset);
        self
    }

    /// The header up to the padding of the data section.
    fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            write_text(&mut out, key);
            out.extend(value.kind().to_le_bytes());
            value.write(&mut out);
        }
        let mut next = 0;
        for tensor in &self.tensors {
            write_text(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            let offset = tensor.offset.unwrap_or(next);
            out.extend(offset.to_le_bytes());
            let end = offset.saturating_add(tensor.data.len() as u64);
            next = end.checked_next_multiple_of(self.alignment as u64).unwrap_or(0);
        }
        out
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&tensor.data);
        }
        if self.padded {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
        }
        out
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
