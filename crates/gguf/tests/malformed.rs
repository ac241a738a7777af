//! Malformed files: each kind gives its one error, and none a panic, a hang or a large allocation.

mod common;

use argon_gguf::{Error, Fault, Format, Gguf, ValueType};
use common::exercise::exercise;
use common::raw::{Raw, RawTensor, good_file, good_raw, raw_array, raw_string};

fn refusal(bytes: Vec<u8>) -> Error {
    match Gguf::from_bytes(bytes) {
        Err(error) => error,
        Ok(model) => panic!("accepted: {model:?}"),
    }
}

/// A kind of malformed file: what it is, how a good file becomes one, and what it is refused with.
type Case = (&'static str, fn(&mut Raw), Error);

fn check<const N: usize>(cases: [Case; N]) {
    for (what, spoil, expected) in cases {
        let mut raw = good_raw();
        spoil(&mut raw);
        let error = refusal(raw.bytes());
        assert_eq!(error, expected, "{what}");
        let message = error.to_string();
        assert!(!message.contains('\n') && message.len() < 300, "{what}: {message}");
    }
}

fn name(text: &str) -> String {
    text.to_owned()
}

fn value(key: &str, fault: Fault) -> Error {
    Error::Value { key: name(key), fault }
}

#[test]
fn the_raw_file_is_the_written_one_and_good() {
    assert_eq!(good_raw().bytes(), good_file());
    assert_eq!(Gguf::from_bytes(good_file()).unwrap().tensors().len(), 3);
}

#[test]
fn other_files_in_its_place() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    for (bytes, expected) in [
        (&b""[..], Error::Empty),
        (b"GG", Error::Truncated { item: name("the header") }),
        (b"GGUF", Error::Truncated { item: name("the header") }),
        (b"GGUF\x03\0\0\0\0\0\0\0", Error::Truncated { item: name("the header") }),
        (b"PK\x03\x04 and so on", Error::NotGguf { found: b"PK\x03\x04".to_vec() }),
        (b"GGML", Error::NotGguf { found: b"GGML".to_vec() }),
        (b"{", Error::NotGguf { found: b"{".to_vec() }),
        (pointer.as_bytes(), Error::LfsPointer),
    ] {
        assert_eq!(refusal(bytes.to_vec()), expected);
    }
}

#[test]
fn headers() {
    let room = (good_file().len() - 24) as u64; // behind the header
    let key_room = (good_raw().keys.iter().map(|k| 8 + k.key.len() + 4 + k.value.len()).sum::<usize>()) as u64;
    let keys = |count| Error::Count { item: "keys", count, max: room / 14 };
    let tensors = |count| Error::Count { item: "tensors", count, max: (room - key_room) / 33 };
    check([
        ("version 0", |f| f.version = 0, Error::Version { version: 0 }),
        ("version 1", |f| f.version = 1, Error::Version { version: 1 }),
        ("version 4", |f| f.version = 4, Error::Version { version: 4 }),
        ("big-endian", |f| f.version = 3u32.swap_bytes(), Error::BigEndian),
        ("keys without end", |f| f.key_count = u64::MAX, keys(u64::MAX)),
        ("2^32 keys", |f| f.key_count = 1 << 32, keys(1 << 32)),
        ("tensors without end", |f| f.tensor_count = u64::MAX, tensors(u64::MAX)),
        ("2^60 tensors", |f| f.tensor_count = 1 << 60, tensors(1 << 60)),
        (
            "a tensor too many",
            |f| (f.tensor_count, f.data) = (4, vec![0; 320]),
            Error::Name { item: name("tensor 3"), fault: Fault::EmptyName },
        ),
    ]);
    let mut raw = good_raw();
    raw.version = 2;
    assert!(Gguf::from_bytes(raw.bytes()).is_ok(), "version 2");
}

#[test]
fn keys() {
    check([
        ("empty", |f| f.keys[1].key.clear(), Error::Name { item: name("key 1"), fault: Fault::EmptyName }),
        ("not UTF-8", |f| f.keys[1].key[3] = 0xFF, Error::Name { item: name("key 1"), fault: Fault::Utf8 }),
        (
            "too long",
            |f| f.keys[1].key = vec![b'k'; 65_536],
            Error::Name { item: name("key 1"), fault: Fault::LongName { len: 65_536 } },
        ),
        (
            "twice",
            |f| f.keys[2].key = b"example.block_count".to_vec(),
            Error::DuplicateKey { key: name("example.block_count") },
        ),
        ("unknown type", |f| f.keys[1].kind = 13, value("example.block_count", Fault::UnknownType { id: 13 })),
        ("wild type", |f| f.keys[1].kind = u32::MAX, value("example.block_count", Fault::UnknownType { id: u32::MAX })),
    ]);
}

/// A string value whose length field is `len`.
fn string_of_len(f: &mut Raw, len: u64) {
    f.keys[0].value[..8].copy_from_slice(&len.to_le_bytes());
}

/// An array of `len` elements of type `kind` where the file has but a few bytes more.
fn array_of_len(f: &mut Raw, kind: ValueType, len: u64) {
    f.push_key("array", ValueType::Array, raw_array(kind.id(), len, &[]));
}

/// An array of one array of one array and so on, `depth` in all, the innermost one empty.
fn nested(depth: usize) -> Vec<u8> {
    let mut arrays = raw_array(ValueType::Array.id(), 1, &[]).repeat(depth - 1);
    arrays.extend(raw_array(ValueType::U8.id(), 0, &[]));
    arrays
}

#[test]
fn values() {
    let architecture = "general.architecture";
    check([
        (
            "string of 2^64 - 1",
            |f| string_of_len(f, u64::MAX),
            value(architecture, Fault::StringLength { len: u64::MAX }),
        ),
        ("string of 2^63", |f| string_of_len(f, 1 << 63), value(architecture, Fault::StringLength { len: 1 << 63 })),
        ("string of 1 MB", |f| string_of_len(f, 1 << 20), value(architecture, Fault::StringLength { len: 1 << 20 })),
        (
            "array of 2^61 u64, whose size is 0 modulo 2^64",
            |f| array_of_len(f, ValueType::U64, 1 << 61),
            value("array", Fault::ArrayLength { len: 1 << 61 }),
        ),
        (
            "array of 2^64 - 1 bytes",
            |f| array_of_len(f, ValueType::U8, u64::MAX),
            value("array", Fault::ArrayLength { len: u64::MAX }),
        ),
        (
            "array of 2^40 strings",
            |f| array_of_len(f, ValueType::String, 1 << 40),
            value("array", Fault::ArrayLength { len: 1 << 40 }),
        ),
        (
            "array of 2^40 arrays",
            |f| array_of_len(f, ValueType::Array, 1 << 40),
            value("array", Fault::ArrayLength { len: 1 << 40 }),
        ),
        (
            "array of an unknown type",
            |f| f.push_key("array", ValueType::Array, raw_array(77, 1, &[0])),
            value("array", Fault::UnknownType { id: 77 }),
        ),
        (
            "string in an array",
            |f| f.push_key("array", ValueType::Array, raw_array(8, 1, &(1u64 << 50).to_le_bytes())),
            value("array", Fault::StringLength { len: 1 << 50 }),
        ),
        ("arrays 5 deep", |f| f.push_key("array", ValueType::Array, nested(5)), value("array", Fault::Nesting)),
        (
            "arrays 100,000 deep",
            |f| f.push_key("array", ValueType::Array, nested(100_000)),
            value("array", Fault::Nesting),
        ),
    ]);
    let mut raw = good_raw();
    raw.push_key("array", ValueType::Array, nested(4));
    assert!(Gguf::from_bytes(raw.bytes()).is_ok(), "arrays 4 deep");
}

fn set_alignment(f: &mut Raw, alignment: u32) {
    f.push_key("general.alignment", ValueType::U32, alignment.to_le_bytes().to_vec());
}

#[test]
fn alignments() {
    check([
        ("0", |f| set_alignment(f, 0), Error::Alignment { alignment: 0 }),
        ("48", |f| set_alignment(f, 48), Error::Alignment { alignment: 48 }),
        ("2^30", |f| set_alignment(f, 1 << 30), Error::Alignment { alignment: 1 << 30 }),
        (
            "a string",
            |f| f.push_key("general.alignment", ValueType::String, raw_string(b"32")),
            Error::ValueType { key: name("general.alignment"), wanted: "a u64", found: name("string \"32\"") },
        ),
        (
            "negative",
            |f| f.push_key("general.alignment", ValueType::I32, (-32i32).to_le_bytes().to_vec()),
            Error::ValueType { key: name("general.alignment"), wanted: "a u64", found: name("i32 -32") },
        ),
        (
            "64 in a file aligned to 32",
            |f| set_alignment(f, 64),
            Error::Misaligned { tensor: name("embed"), offset: 32, alignment: 64 },
        ),
    ]);
}

#[test]
fn names_and_shapes_of_tensors() {
    let embed = || name("embed");
    check([
        ("empty name", |f| f.tensors[1].name.clear(), Error::Name { item: name("tensor 1"), fault: Fault::EmptyName }),
        ("not UTF-8", |f| f.tensors[1].name[0] = 0xC0, Error::Name { item: name("tensor 1"), fault: Fault::Utf8 }),
        ("twice", |f| f.tensors[1].name = b"norm".to_vec(), Error::DuplicateTensor { tensor: name("norm") }),
        ("no dimensions", |f| f.tensors[1].shape.clear(), Error::Dimensions { tensor: embed(), count: 0 }),
        (
            "5 dimensions",
            |f| f.tensors[1].shape = vec![32, 1, 1, 1, 3],
            Error::Dimensions { tensor: embed(), count: 5 },
        ),
        ("9 dimensions", |f| f.tensors[1].shape = vec![1; 9], Error::Dimensions { tensor: embed(), count: 9 }),
        ("0 columns", |f| f.tensors[1].shape = vec![0, 3], Error::ZeroDimension { tensor: embed(), axis: 0 }),
        ("0 rows", |f| f.tensors[1].shape = vec![32, 0], Error::ZeroDimension { tensor: embed(), axis: 1 }),
        ("0 experts", |f| f.tensors[1].shape = vec![32, 3, 0], Error::ZeroDimension { tensor: embed(), axis: 2 }),
        ("product of 2^64", |f| f.tensors[1].shape = vec![1 << 32, 1 << 32], Error::TooLarge { tensor: embed() }),
        ("product of 3 * 2^64", |f| f.tensors[1].shape = vec![32, 3, 1 << 59], Error::TooLarge { tensor: embed() }),
        ("four of 2^63", |f| f.tensors[1].shape = vec![1 << 63; 4], Error::TooLarge { tensor: embed() }),
        ("2^63 bytes", |f| f.tensors[1].shape = vec![1 << 62, 2], Error::TooLarge { tensor: embed() }),
        (
            "2^62 floats, whose size is 0 modulo 2^64",
            |f| f.tensors[0].shape = vec![1 << 62],
            Error::TooLarge { tensor: name("norm") },
        ),
        (
            "rows of 2^62",
            |f| f.tensors[1].shape = vec![1 << 62],
            Error::OutOfFile { tensor: embed(), len: good_file().len() as u64 - 8 },
        ),
        (
            "rows of 33",
            |f| f.tensors[1].shape = vec![33, 3],
            Error::RowBlock { tensor: embed(), cols: 33, format: Format::Q8_0 },
        ),
        (
            "rows of 32 in blocks of 256",
            |f| f.tensors[1].id = Format::IQ2_XS.ggml_id(),
            Error::RowBlock { tensor: embed(), cols: 32, format: Format::IQ2_XS },
        ),
        ("unknown type", |f| f.tensors[1].id = 43, Error::UnknownFormat { tensor: embed(), id: 43 }),
        ("retired type", |f| f.tensors[1].id = 4, Error::UnknownFormat { tensor: embed(), id: 4 }),
        ("wild type", |f| f.tensors[1].id = u32::MAX, Error::UnknownFormat { tensor: embed(), id: u32::MAX }),
    ]);
}

#[test]
fn places_of_tensors() {
    let len = good_file().len() as u64;
    let out_of_file = |tensor: &str| Error::OutOfFile { tensor: name(tensor), len };
    let overlap = |first: &str, second: &str| Error::Overlap { first: name(first), second: name(second) };
    check([
        (
            "misaligned",
            |f| f.tensors[1].offset = 33,
            Error::Misaligned { tensor: name("embed"), offset: 33, alignment: 32 },
        ),
        (
            "offset of 2^64 - 1",
            |f| f.tensors[1].offset = u64::MAX,
            Error::Misaligned { tensor: name("embed"), offset: u64::MAX, alignment: 32 },
        ),
        ("offset of 2^64 - 32", |f| f.tensors[1].offset = u64::MAX - 31, out_of_file("embed")),
        ("offset of 2^63", |f| f.tensors[1].offset = 1 << 63, out_of_file("embed")),
        ("just beyond the end", |f| f.tensors[2].offset = 320, out_of_file("experts")),
        ("longer than the file", |f| f.tensors[2].shape = vec![64, 2, 1 << 40], out_of_file("experts")),
        ("one expert more", |f| f.tensors[2].shape = vec![64, 2, 3], out_of_file("experts")),
        ("the same place", |f| f.tensors[1].offset = 0, overlap("norm", "embed")),
        ("one row more than there is room", |f| f.tensors[1].shape = vec![32, 4], overlap("embed", "experts")),
        ("within another", |f| f.tensors[0].offset = 192, overlap("experts", "norm")),
    ]);
}

#[test]
fn what_follows_the_last_tensor() {
    let file = good_file();
    let unpadded = file.len() - 16; // 144 bytes in 160
    assert!(Gguf::from_bytes(file[..unpadded].to_vec()).is_ok(), "the file ends where the last tensor ends");
    assert!(Gguf::from_bytes(file[..unpadded + 1].to_vec()).is_ok(), "within the padding");
    let mut longer = file.clone();
    longer.push(0);
    assert_eq!(refusal(longer), Error::TrailingBytes { count: 17 });
    assert_eq!(refusal([&file[..], &file].concat()), Error::Joined { offset: file.len() as u64 });
    assert_eq!(refusal([&file[..unpadded], &file].concat()), Error::Joined { offset: unpadded as u64 });
    assert_eq!(refusal([&file[..], &[7; 64]].concat()), Error::TrailingBytes { count: 80 });
    let empty = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    assert!(Gguf::from_bytes(empty).is_ok(), "nothing in it");
    assert_eq!(refusal([&empty[..], empty].concat()), Error::Joined { offset: 24 });
}

/// A file with one or two `Q2_0` tensors of 128 weights in a row, whose data have the sizes given.
fn q2_file(sizes: &[usize], rows: &[u64]) -> Vec<u8> {
    let mut raw = good_raw();
    (raw.tensors, raw.data) = (Vec::new(), Vec::new());
    for (i, (&size, &rows)) in sizes.iter().zip(rows).enumerate() {
        let offset = raw.data.len() as u64;
        raw.tensors.push(RawTensor { name: format!("q{i}").into(), shape: vec![128, rows], id: 42, offset });
        let padded = if i + 1 < sizes.len() { size.next_multiple_of(32) } else { size };
        raw.data.resize(raw.data.len() + padded, 0);
    }
    raw.repair();
    raw.bytes()
}

#[test]
fn q2_0_with_other_blocks_is_named() {
    let (ours, theirs) = (36, 34); // bytes of 128 weights
    assert!(Gguf::from_bytes(q2_file(&[ours * 16, ours], &[16, 1])).is_ok());
    let refused = |tensor: &str| Error::Q2Block128 { tensor: name(tensor) };
    assert_eq!(refusal(q2_file(&[theirs * 16, theirs], &[16, 1])), refused("q0"));
    assert_eq!(refusal(q2_file(&[theirs * 16], &[16])), refused("q0"));
    assert_eq!(refusal(q2_file(&[theirs], &[1])), refused("q0"));
    // Padded, a single row has 64 bytes in both: the longer tensor behind it tells.
    assert_eq!(refusal(q2_file(&[theirs, theirs * 16], &[1, 16])), refused("q1"));
    // A file that is only cut off says that.
    let cut = q2_file(&[ours * 16 - 20], &[16]);
    let len = cut.len() as u64;
    assert_eq!(refusal(cut), Error::OutOfFile { tensor: name("q0"), len });
}

#[test]
fn cut_off_anywhere() {
    let file = good_file();
    let last_tensor_ends = file.len() - 16;
    for len in 0..file.len() {
        let result = Gguf::from_bytes(file[..len].to_vec());
        assert_eq!(result.is_ok(), len >= last_tensor_ends, "the first {len} bytes: {result:?}");
    }
    let data_starts = file.len() - 320;
    let out_of_file = |tensor: &str, len: usize| Error::OutOfFile { tensor: name(tensor), len: len as u64 };
    assert_eq!(refusal(file[..data_starts].to_vec()), out_of_file("norm", data_starts));
    let within_expert = data_starts + 160 + 72 + 10;
    assert_eq!(refusal(file[..within_expert].to_vec()), out_of_file("experts", within_expert));
    assert_eq!(refusal(file[..last_tensor_ends - 1].to_vec()), out_of_file("experts", last_tensor_ends - 1));
}

#[test]
fn every_byte_changed() {
    let file = good_file();
    for position in 0..file.len() {
        for change in [0x01, 0x80, 0xFF, file[position]] {
            let mut changed = file.clone();
            changed[position] ^= change;
            exercise(&changed);
        }
    }
}

#[test]
fn every_word_changed() {
    let file = good_file();
    let words = [0, 1, 31, 1 << 31, u32::MAX as u64, 1 << 32, 1 << 61, 1 << 62, 1 << 63, u64::MAX - 31, u64::MAX];
    for position in 0..file.len() - 8 {
        for word in words {
            let mut changed = file.clone();
            changed[position..position + 8].copy_from_slice(&word.to_le_bytes());
            exercise(&changed);
        }
    }
}
