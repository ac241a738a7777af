//! A fixture with something changed, for the tests of what the engine refuses or reads in two forms.

use argon_gguf::{Format, Gguf, Writer};

use crate::fixture;

/// A model's file, taken apart.
pub struct Model {
    pub keys: Vec<(String, Key)>,
    pub tensors: Vec<Tensor>,
}

/// The value of a key, as it will be written.
#[derive(Clone, Debug)]
pub enum Key {
    U32(u32),
    I32(i32),
    U64s(Vec<u64>),
    I32s(Vec<i32>),
    Bool(bool),
    Bools(Vec<bool>),
    F32(f32),
    Str(String),
    /// As it is in the fixture, under its own name.
    Same,
}

#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub format: Format,
    pub bytes: Vec<u8>,
}

impl Model {
    /// The fixture `name`, unchanged.
    pub fn of(gguf: &Gguf) -> Self {
        let tensor = |info: &argon_gguf::TensorInfo| Tensor {
            name: info.name.clone(),
            shape: info.shape.clone(),
            format: info.format,
            bytes: gguf.data(info).to_vec(),
        };
        Self {
            keys: gguf.metadata().keys().map(|key| (key.to_owned(), Key::Same)).collect(),
            tensors: gguf.tensors().iter().map(tensor).collect(),
        }
    }

    pub fn set(&mut self, key: &str, value: Key) {
        self.keys.retain(|(other, _)| other != key);
        self.keys.push((key.to_owned(), value));
    }

    pub fn remove_key(&mut self, key: &str) {
        self.keys.retain(|(other, _)| other != key);
    }

    /// Takes a tensor out.
    pub fn take(&mut self, name: &str) -> Tensor {
        let index = self.tensors.iter().position(|tensor| tensor.name == name).unwrap_or_else(|| panic!("no {name}"));
        self.tensors.remove(index)
    }

    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    pub fn add(&mut self, name: &str, shape: &[usize], format: Format, bytes: Vec<u8>) {
        self.tensors.push(Tensor { name: name.to_owned(), shape: shape.to_vec(), format, bytes });
    }

    pub fn add_f32(&mut self, name: &str, values: &[f32]) {
        self.add(name, &[values.len()], Format::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect());
    }

    /// The file of it. Keys that are as before come from `original`.
    pub fn write(&self, original: &Gguf) -> Gguf {
        let mut writer = Writer::new();
        for (key, value) in &self.keys {
            writer = match value {
                Key::U32(value) => writer.metadata(key, *value),
                Key::I32(value) => writer.metadata(key, *value),
                Key::F32(value) => writer.metadata(key, *value),
                Key::U64s(values) => writer.metadata(key, values),
                Key::I32s(values) => writer.metadata(key, values),
                Key::Bool(value) => writer.metadata(key, *value),
                Key::Bools(values) => writer.metadata(key, values),
                Key::Str(value) => writer.metadata(key, value.as_str()),
                Key::Same => writer.metadata(key, original.metadata().get(key).unwrap().unwrap()),
            };
        }
        for tensor in &self.tensors {
            writer = writer.tensor(&tensor.name, &tensor.shape, tensor.format, tensor.bytes.clone());
        }
        let mut file = Vec::new();
        writer.write(&mut file).unwrap();
        Gguf::from_bytes(file).unwrap()
    }
}

/// A qwen3moe whose numbers overflow at the token `bad`, and at no other: its embedding has two large columns, far
/// apart, which the first router multiplies by large numbers of both signs. Every weight is finite; the sums are not.
pub fn overflowing(bad: u32) -> Gguf {
    edited("qwen3moe", |model| {
        let embedding = model.tensor("token_embd.weight");
        let (cols, row) = (embedding.shape[0], embedding.format.row_bytes(embedding.shape[0]).unwrap());
        let values: Vec<f32> = (0..cols).map(|col| if col == 0 || col == cols - 1 { 100.0 } else { 0.0 }).collect();
        let bytes = &mut embedding.bytes[bad as usize * row..][..row];
        argon_gguf::encode_row(embedding.format, &values, bytes).unwrap();
        let router = model.tensor("blk.0.ffn_gate_inp.weight");
        assert_eq!(router.format, Format::F32);
        router.bytes[..4].copy_from_slice(&5e37f32.to_le_bytes());
        router.bytes[4 * (cols - 1)..4 * cols].copy_from_slice(&(-5e37f32).to_le_bytes());
    })
}

/// The fixture `name`, changed by `change`.
pub fn edited(name: &str, change: impl FnOnce(&mut Model)) -> Gguf {
    let original = fixture::gguf(name);
    let mut model = Model::of(&original);
    change(&mut model);
    model.write(&original)
}
