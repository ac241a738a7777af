//! What is written can be read, and is what it was.

mod common;

use argon_gguf::{Error, Fault, Format, Gguf, Writer};
use common::raw::{good_file, good_writer};
use common::{fixture, fixture_path};
use std::io::{self, Write};

/// The file that `fixtures/writer.gguf` holds. It was read with gguf-py 0.19 (`GGUFReader`) and llama.cpp b11434 (`llama-gguf`):
/// same keys, same values, same tensors, same bytes.
fn showcase() -> Writer<'static> {
    let bytes = |format: Format, weights: usize| -> Vec<u8> {
        (0..format.row_bytes(weights).unwrap()).map(|i| (i * 7 % 251) as u8).collect()
    };
    Writer::new()
        .alignment(64)
        .metadata("general.architecture", "showcase")
        .metadata("general.name", String::from("Grüße"))
        .metadata("showcase.u8", 8u8)
        .metadata("showcase.i8", -8i8)
        .metadata("showcase.u16", 16u16)
        .metadata("showcase.i16", -16i16)
        .metadata("showcase.u32", 32u32)
        .metadata("showcase.i32", -32i32)
        .metadata("showcase.u64", 64u64)
        .metadata("showcase.i64", -64i64)
        .metadata("showcase.f32", 0.25f32)
        .metadata("showcase.f64", 0.1f64)
        .metadata("showcase.bool", true)
        .metadata("showcase.tokens", ["<s>", "a", "ß", ""])
        .metadata("showcase.scores", [0.5f32, -1.0])
        .metadata("showcase.types", [1i32, -2, 3])
        .metadata("showcase.flags", [true, false])
        .tensor("vector", &[3], Format::F32, [1f32, -2.0, 0.5].map(f32::to_le_bytes).concat())
        .tensor("matrix", &[32, 2], Format::Q8_0, bytes(Format::Q8_0, 64))
        .tensor("experts", &[256, 2, 3], Format::IQ2_XS, bytes(Format::IQ2_XS, 256 * 6))
        .tensor("four", &[2, 3, 1, 2], Format::F16, bytes(Format::F16, 12))
}

#[test]
fn the_showcase_is_the_file_that_gguf_py_reads() {
    let mut file = Vec::new();
    showcase().write(&mut file).unwrap();
    assert!(file == fixture("writer.gguf"), "the writer's bytes have changed: read them with gguf-py again");
}

#[test]
fn the_showcase_reads_back() {
    let model = Gguf::open(fixture_path("writer.gguf")).unwrap();
    let keys = model.metadata();
    assert_eq!(keys.require_u32("general.alignment"), Ok(64));
    assert_eq!(keys.require_str("general.name"), Ok("Grüße"));
    assert_eq!(keys.require_i32("showcase.i64"), Ok(-64));
    assert_eq!(keys.require_str_array("showcase.tokens"), Ok(vec!["<s>", "a", "ß", ""]));
    assert_eq!(keys.require_bool_array("showcase.flags"), Ok(vec![true, false]));
    let names: Vec<&str> = model.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["vector", "matrix", "experts", "four"]);
    let experts = model.tensor("experts").unwrap();
    assert_eq!((&experts.shape[..], experts.format, experts.bytes), (&[256, 2, 3][..], Format::IQ2_XS, 6 * 74));
    assert_eq!((experts.cols(), experts.rows(), experts.row_bytes()), (256, 6, 74));
    assert_eq!(experts.offset % 64, 0);
    assert_eq!(model.data(experts)[..4], [0, 7, 14, 21]);
    assert!(model.tensor("router").is_none());
}

#[test]
fn a_location_is_where_the_bytes_are() {
    let path = fixture_path("writer.gguf");
    let model = Gguf::open(&path).unwrap();
    for tensor in model.tensors() {
        let location = model.location(tensor);
        assert_eq!((location.path, location.len), (Some(path.as_path()), tensor.bytes));
        let start = location.offset as usize;
        assert_eq!(fixture("writer.gguf")[start..start + location.len], model.data(tensor)[..]);
    }
    let embedded = Gguf::from_bytes(good_file()).unwrap();
    assert_eq!(embedded.location(&embedded.tensors()[1]).path, None);
}

#[test]
fn embedded_bytes_are_not_copied() {
    let file: &'static [u8] = good_file().leak();
    let model = Gguf::from_bytes(file).unwrap();
    let data = model.data(model.tensor("embed").unwrap());
    drop(model);
    assert!(file.as_ptr_range().contains(&data.as_ptr()));
    assert_eq!(data[..3], [0, 1, 2]);
    assert_eq!(data.clone().slice(1..3).unwrap()[..], [1, 2]);
    assert!(data.slice(100..103).is_none());
}

#[test]
fn data_outlives_the_model() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    good_writer().write_file(&path).unwrap();
    let model = Gguf::open(&path).unwrap();
    let data = model.data(model.tensor("norm").unwrap());
    drop(model);
    assert_eq!(data[..], (0..20).collect::<Vec<u8>>());
}

#[test]
fn data_may_be_produced_while_writing() {
    let mut file = Vec::new();
    Writer::new()
        .tensor_with("ones", &[1 << 16], Format::F32, |out| {
            (0..1 << 16).try_for_each(|_| out.write_all(&1f32.to_le_bytes()))
        })
        .tensor_with("read", &[4], Format::I8, |out| io::copy(&mut &b"abcd"[..], out).map(drop))
        .write(&mut file)
        .unwrap();
    let model = Gguf::from_bytes(file).unwrap();
    assert!(model.data(&model.tensors()[0]).as_chunks().0.iter().all(|bytes| f32::from_le_bytes(*bytes) == 1.0));
    assert_eq!(model.data(&model.tensors()[1])[..], *b"abcd");
}

fn refusal(writer: Writer<'_>) -> Error {
    writer.write(io::sink()).unwrap_err()
}

#[test]
fn a_wrong_amount_of_data_is_refused() {
    let length = |expected, found| Error::DataLength { tensor: "t".into(), expected, found };
    let eight = || Writer::new().tensor_with("before", &[2], Format::F32, |out| out.write_all(&[0; 8]));
    assert_eq!(refusal(eight().tensor("t", &[2], Format::F32, vec![0; 9])), length(8, 9));
    assert_eq!(refusal(eight().tensor_with("t", &[2], Format::F32, |_| Ok(()))), length(8, 0));
    assert_eq!(refusal(eight().tensor_with("t", &[2], Format::F32, |out| out.write_all(&[0; 7]))), length(8, 7));
    assert_eq!(refusal(eight().tensor_with("t", &[2], Format::F32, |out| out.write_all(&[0; 12]))), length(8, 12));
    // Neither may a producer hide it.
    let hides = |out: &mut dyn Write| out.write_all(&[0; 8]).and_then(|()| out.write_all(&[0]).or(Ok(())));
    assert_eq!(refusal(eight().tensor_with("t", &[2], Format::F32, hides)), length(8, 9));
}

#[test]
fn a_producer_that_fails_is_heard() {
    let fails = |_: &mut dyn Write| Err(io::Error::new(io::ErrorKind::TimedOut, "no more"));
    let error = refusal(Writer::new().tensor_with("t", &[2], Format::F32, fails));
    assert_eq!(error, Error::Io { kind: io::ErrorKind::TimedOut, message: "no more".into() });
}

#[test]
fn what_no_reader_accepts_is_not_written() {
    let one = |name: &str, shape: &[usize], format| Writer::new().tensor_with(name, shape, format, |_| Ok(()));
    let t = || "t".to_owned();
    for (writer, expected) in [
        (Writer::new().metadata("", 1u32), Error::Name { item: "key 0".into(), fault: Fault::EmptyName }),
        (Writer::new().metadata("k", 1u32).metadata("k", 2u32), Error::DuplicateKey { key: "k".into() }),
        (Writer::new().metadata("general.alignment", 32u32), Error::ReservedKey { key: "general.alignment".into() }),
        (Writer::new().metadata("split.count", 2u16), Error::ReservedKey { key: "split.count".into() }),
        (Writer::new().alignment(0), Error::Alignment { alignment: 0 }),
        (Writer::new().alignment(24), Error::Alignment { alignment: 24 }),
        (one("", &[1], Format::F32), Error::Name { item: "tensor 0".into(), fault: Fault::EmptyName }),
        (one("t", &[], Format::F32), Error::Dimensions { tensor: t(), count: 0 }),
        (one("t", &[1; 5], Format::F32), Error::Dimensions { tensor: t(), count: 5 }),
        (one("t", &[3, 0], Format::F32), Error::ZeroDimension { tensor: t(), axis: 1 }),
        (one("t", &[640], Format::IQ2_XS), Error::RowBlock { tensor: t(), cols: 640, format: Format::IQ2_XS }),
        (one("t", &[usize::MAX, 2], Format::I8), Error::TooLarge { tensor: t() }),
        (
            one("t", &[4], Format::I8).tensor_with("t", &[4], Format::I8, |_| Ok(())),
            Error::DuplicateTensor { tensor: t() },
        ),
    ] {
        assert_eq!(refusal(writer), expected);
    }
    let many = (0..=65_536).fold(Writer::new(), |writer, i| writer.metadata(format!("k{i}"), true));
    assert_eq!(refusal(many), Error::Count { item: "keys", count: 65_537, max: 65_536 });
    let huge = one("a", &[usize::MAX / 2], Format::I8).tensor_with("b", &[usize::MAX / 2], Format::I8, |_| Ok(()));
    let huge = huge.tensor_with("c", &[usize::MAX / 2], Format::I8, |_| Ok(()));
    assert!(matches!(refusal(huge), Error::TooLarge { .. }));
}

#[test]
fn metadata_of_another_file_can_be_copied() {
    let model = Gguf::from_bytes(good_file()).unwrap();
    let copied = model
        .metadata()
        .keys()
        .fold(Writer::new(), |writer, key| writer.metadata(key, model.metadata().get(key).unwrap().unwrap()));
    let copied = model.tensors().iter().fold(copied, |writer, tensor| {
        writer.tensor(&tensor.name, &tensor.shape, tensor.format, model.data(tensor).to_vec())
    });
    let mut file = Vec::new();
    copied.write(&mut file).unwrap();
    assert_eq!(file, good_file());
}

#[test]
fn models_and_their_bytes_can_be_shared_between_threads() {
    fn shareable<T: Send + Sync + Clone + 'static>() {}
    shareable::<Gguf>();
    shareable::<argon_gguf::Bytes>();
    shareable::<argon_gguf::TensorInfo>();
}
