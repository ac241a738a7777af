//! A file laid open field by field, to be spoilt.

use argon_gguf::{Format, Value, ValueType, Writer};

/// The fields of a file, without any rule that holds between them.
#[derive(Clone)]
pub struct Raw {
    pub magic: Vec<u8>,
    pub version: u32,
    pub tensor_count: u64,
    pub key_count: u64,
    pub keys: Vec<RawKey>,
    pub tensors: Vec<RawTensor>,
    /// Bytes between the header and the data.
    pub padding: usize,
    pub data: Vec<u8>,
}

#[derive(Clone)]
pub struct RawKey {
    pub key: Vec<u8>,
    pub kind: u32,
    pub value: Vec<u8>,
}

#[derive(Clone)]
pub struct RawTensor {
    pub name: Vec<u8>,
    pub shape: Vec<u64>,
    pub id: u32,
    pub offset: u64,
}

pub fn raw_string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

/// An array's element type and length, then whatever its elements are.
pub fn raw_array(kind: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes(), &len.to_le_bytes()[..], elements].concat()
}

impl Raw {
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.clone();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.to_le_bytes());
        out.extend(self.key_count.to_le_bytes());
        for key in &self.keys {
            out.extend(raw_string(&key.key));
            out.extend(key.kind.to_le_bytes());
            out.extend(&key.value);
        }
        for tensor in &self.tensors {
            out.extend(raw_string(&tensor.name));
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            out.extend(tensor.shape.iter().flat_map(|len| len.to_le_bytes()));
            out.extend(tensor.id.to_le_bytes());
            out.extend(tensor.offset.to_le_bytes());
        }
        out.extend(vec![0; self.padding]);
        out.extend(&self.data);
        out
    }

    /// Corrects counts and padding after keys or tensors were added, taken away or resized.
    pub fn repair(&mut self) {
        (self.key_count, self.tensor_count, self.padding) = (self.keys.len() as u64, self.tensors.len() as u64, 0);
        let header = self.bytes().len() - self.data.len();
        self.padding = header.next_multiple_of(32) - header;
    }

    pub fn push_key(&mut self, key: &str, kind: ValueType, value: Vec<u8>) {
        self.keys.push(RawKey { key: key.into(), kind: kind.id(), value });
        self.repair();
    }
}

/// A good file: a key of each kind, and three tensors of which the last one is a stack of experts.
pub fn good_writer() -> Writer<'static> {
    Writer::new()
        .metadata("general.architecture", "example")
        .metadata("example.block_count", 2u32)
        .metadata("example.scale", 0.5f32)
        .metadata("example.tied", true)
        .metadata("tokenizer.tokens", ["a", "bc", ""])
        .metadata("example.layers", [1i32, -2, 3])
        .tensor("norm", &[5], Format::F32, (0..20).collect::<Vec<u8>>())
        .tensor("embed", &[32, 3], Format::Q8_0, (0..102).collect::<Vec<u8>>())
        .tensor("experts", &[64, 2, 2], Format::Q4_0, (0..144).collect::<Vec<u8>>())
}

pub fn good_file() -> Vec<u8> {
    let mut file = Vec::new();
    good_writer().write(&mut file).unwrap();
    file
}

/// The fields of [`good_file`].
pub fn good_raw() -> Raw {
    let key = |key: &str, kind: ValueType, value: Vec<u8>| RawKey { key: key.into(), kind: kind.id(), value };
    let strings = [raw_string(b"a"), raw_string(b"bc"), raw_string(b"")].concat();
    let integers = [1i32, -2, 3].map(i32::to_le_bytes).concat();
    let tensor = |name: &str, shape: &[u64], format: Format, offset| RawTensor {
        name: name.into(),
        shape: shape.to_vec(),
        id: format.ggml_id(),
        offset,
    };
    let mut data: Vec<u8> = (0..20).collect();
    data.resize(32, 0);
    data.extend(0..102);
    data.resize(32 + 128, 0);
    data.extend(0..144);
    data.resize(32 + 128 + 160, 0);
    let mut raw = Raw {
        magic: b"GGUF".to_vec(),
        version: 3,
        tensor_count: 0,
        key_count: 0,
        keys: vec![
            key("general.architecture", ValueType::String, raw_string(b"example")),
            key("example.block_count", ValueType::U32, 2u32.to_le_bytes().to_vec()),
            key("example.scale", ValueType::F32, 0.5f32.to_le_bytes().to_vec()),
            key("example.tied", ValueType::Bool, vec![1]),
            key("tokenizer.tokens", ValueType::Array, raw_array(ValueType::String.id(), 3, &strings)),
            key("example.layers", ValueType::Array, raw_array(ValueType::I32.id(), 3, &integers)),
        ],
        tensors: vec![
            tensor("norm", &[5], Format::F32, 0),
            tensor("embed", &[32, 3], Format::Q8_0, 32),
            tensor("experts", &[64, 2, 2], Format::Q4_0, 160),
        ],
        padding: 0,
        data,
    };
    raw.repair();
    raw
}

/// What a good value looks like, for tests that compare all of them.
pub fn text(value: Value<'_>) -> String {
    match value {
        Value::Array(array) => array.iter().map(|v| v.map(text).unwrap_or_else(|fault| fault.to_string())).collect(),
        other => format!("{other};"),
    }
}
