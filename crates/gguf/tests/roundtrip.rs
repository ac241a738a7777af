//! Whatever is written reads back the same, in one file and in several.

use argon_gguf::{Format, Gguf, Metadata, TensorInfo, Writer};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Owned {
    Signed(i64),
    Unsigned(u64),
    Float(f32),
    Bool(bool),
    Text(String),
    Integers(Vec<i32>),
    Floats(Vec<f32>),
    Bools(Vec<bool>),
    Texts(Vec<String>),
}

impl Owned {
    fn any() -> impl Strategy<Value = Owned> {
        use proptest::collection::vec;
        prop_oneof![
            any::<i64>().prop_map(Owned::Signed),
            any::<u64>().prop_map(Owned::Unsigned),
            any::<f32>().prop_map(Owned::Float),
            any::<bool>().prop_map(Owned::Bool),
            ".{0,20}".prop_map(Owned::Text),
            vec(any::<i32>(), 0..20).prop_map(Owned::Integers),
            vec(any::<f32>(), 0..20).prop_map(Owned::Floats),
            vec(any::<bool>(), 0..20).prop_map(Owned::Bools),
            vec(".{0,6}", 0..20).prop_map(Owned::Texts),
        ]
    }

    fn write<'a>(&self, writer: Writer<'a>, key: &str) -> Writer<'a> {
        match self {
            Owned::Signed(v) => writer.metadata(key, v),
            Owned::Unsigned(v) => writer.metadata(key, v),
            Owned::Float(v) => writer.metadata(key, v),
            Owned::Bool(v) => writer.metadata(key, v),
            Owned::Text(v) => writer.metadata(key, v),
            Owned::Integers(v) => writer.metadata(key, v),
            Owned::Floats(v) => writer.metadata(key, v),
            Owned::Bools(v) => writer.metadata(key, v),
            Owned::Texts(v) => writer.metadata(key, v),
        }
    }

    fn check(&self, keys: &Metadata, key: &str) {
        match self {
            Owned::Signed(v) => assert_eq!(keys.get(key).unwrap().unwrap().as_integer(), Some((*v).into())),
            Owned::Unsigned(v) => assert_eq!(keys.require_u64(key).as_ref(), Ok(v)),
            Owned::Float(v) => assert_eq!(keys.require_f32(key).as_ref(), Ok(v)),
            Owned::Bool(v) => assert_eq!(keys.require_bool(key).as_ref(), Ok(v)),
            Owned::Text(v) => assert_eq!(keys.require_str(key), Ok(v.as_str())),
            Owned::Integers(v) => assert_eq!(keys.require_i32_array(key).as_ref(), Ok(v)),
            Owned::Floats(v) => assert_eq!(keys.require_f32_array(key).as_ref(), Ok(v)),
            Owned::Bools(v) => assert_eq!(keys.require_bool_array(key).as_ref(), Ok(v)),
            Owned::Texts(v) => assert_eq!(keys.require_str_array(key).unwrap(), *v),
        }
    }
}

#[derive(Clone, Debug)]
struct Tensor {
    format: Format,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl Tensor {
    fn any() -> impl Strategy<Value = Tensor> {
        let shape = (1usize..4, proptest::collection::vec(1usize..4, 0..4));
        (proptest::sample::select(Format::ALL), shape, any::<u8>()).prop_map(|(format, (blocks, rest), seed)| {
            let shape = [&[blocks * format.block_len()], &rest[..]].concat();
            let bytes = blocks * format.block_bytes() * rest.iter().product::<usize>();
            let data = (0..bytes).map(|i| (i * 31) as u8 ^ seed).collect();
            Tensor { format, shape, data }
        })
    }

    fn check(&self, model: &Gguf, info: &TensorInfo) {
        assert_eq!((info.format, &info.shape), (self.format, &self.shape));
        assert_eq!((info.cols(), info.rows() * info.row_bytes()), (self.shape[0], info.bytes));
        assert!(model.data(info)[..] == self.data);
        let file = &model.parts()[info.part].bytes;
        assert!(file[info.offset as usize..][..info.bytes] == self.data);
    }
}

type Keys = BTreeMap<String, Owned>;
type Tensors = BTreeMap<String, Tensor>;

fn writer<'a>(alignment: u64, keys: &Keys, tensors: &'a Tensors) -> Writer<'a> {
    let writer = Writer::new().alignment(alignment);
    let writer = keys.iter().fold(writer, |writer, (key, value)| value.write(writer, key));
    tensors.iter().enumerate().fold(writer, |writer, (i, (name, tensor))| match i % 2 {
        0 => writer.tensor(name, &tensor.shape, tensor.format, &tensor.data),
        _ => writer.tensor_with(name, &tensor.shape, tensor.format, |out| out.write_all(&tensor.data)),
    })
}

fn check(model: &Gguf, alignment: u64, keys: &Keys, tensors: &Tensors) {
    for (key, value) in keys {
        value.check(model.metadata(), key);
    }
    assert!(model.tensors().iter().map(|tensor| &tensor.name).eq(tensors.keys()));
    for (name, tensor) in tensors {
        tensor.check(model, model.tensor(name).unwrap());
    }
    assert!(model.tensors().iter().all(|tensor| tensor.offset.is_multiple_of(alignment)));
}

fn keys() -> impl Strategy<Value = Keys> {
    proptest::collection::btree_map("[a-z]{1,8}", Owned::any(), 0..8)
}

fn tensors() -> impl Strategy<Value = Tensors> {
    proptest::collection::btree_map("[a-z.0-9]{1,12}", Tensor::any(), 0..8)
}

proptest! {
    #[test]
    fn one_file(keys in keys(), tensors in tensors(), shift in 0u32..13) {
        let alignment = 1 << shift;
        let mut file = Vec::new();
        writer(alignment, &keys, &tensors).write(&mut file).unwrap();
        prop_assert!((file.len() as u64).is_multiple_of(alignment));
        let model = Gguf::from_bytes(file).unwrap();
        prop_assert_eq!(model.metadata().len(), keys.len() + usize::from(alignment != 32));
        check(&model, alignment, &keys, &tensors);
    }

    #[test]
    fn several_files(keys in keys(), tensors in tensors(), shift in 0u32..8, max in 1u64..3000, entry: prop::sample::Index) {
        let alignment = 1 << shift;
        let directory = tempfile::tempdir().unwrap();
        let stem = directory.path().join("model");
        let paths = writer(alignment, &keys, &tensors).write_split(&stem, max).unwrap();
        let model = Gguf::open(entry.get(&paths)).unwrap();
        prop_assert!(model.parts().iter().map(|part| part.path.clone().unwrap()).eq(paths));
        check(&model, alignment, &keys, &tensors);
    }
}
