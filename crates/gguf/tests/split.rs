//! Models in several files: found from any of them, and refused when they do not belong together.

mod common;

use argon_gguf::{Error, Format, Gguf, ValueType, Writer};
use common::raw::{good_raw, good_writer};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory with the good file in three parts, a tensor in each.
struct Parts {
    directory: TempDir,
    paths: Vec<PathBuf>,
}

fn three_parts() -> Parts {
    parts_of(good_writer(), "model")
}

fn parts_of(writer: Writer<'_>, name: &str) -> Parts {
    let directory = tempfile::tempdir().unwrap();
    let paths = writer.write_split(directory.path().join(name), 1).unwrap();
    Parts { directory, paths }
}

fn other_model() -> Writer<'static> {
    Writer::new()
        .metadata("general.architecture", "other")
        .tensor("norm2", &[1], Format::F32, vec![0; 4])
        .tensor("embed2", &[1], Format::F32, vec![0; 4])
        .tensor("experts2", &[1], Format::F32, vec![0; 4])
}

/// What opening `path` is refused with, and the file that it is about.
fn refusal(path: &Path) -> (PathBuf, Error) {
    match Gguf::open(path) {
        Err(Error::File { path, error }) => (path, *error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_part_leads_to_all() {
    let parts = three_parts();
    let names: Vec<_> = parts.paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["model-00001-of-00003.gguf", "model-00002-of-00003.gguf", "model-00003-of-00003.gguf"]);
    for path in &parts.paths {
        let model = Gguf::open(path).unwrap();
        assert_eq!(model.metadata().require_str("general.architecture"), Ok("example"));
        assert!(model.tensors().iter().map(|t| (t.name.as_str(), t.part)).eq([
            ("norm", 0),
            ("embed", 1),
            ("experts", 2)
        ]));
        assert_eq!(model.data(model.tensor("experts").unwrap())[..], (0..144).collect::<Vec<u8>>());
        assert_eq!(model.location(model.tensor("embed").unwrap()).path, Some(parts.paths[1].as_path()));
    }
}

#[test]
fn a_missing_part_is_named() {
    let parts = three_parts();
    fs::remove_file(&parts.paths[1]).unwrap();
    for entry in [0, 2] {
        let expected = (parts.paths[1].clone(), Error::MissingPart { number: 2, count: 3 });
        assert_eq!(refusal(&parts.paths[entry]), expected);
    }
    let message = Gguf::open(&parts.paths[0]).unwrap_err().to_string();
    assert!(message.ends_with("model-00002-of-00003.gguf: part 2 of 3 of the model is missing"), "{message}");
}

#[test]
fn swapped_parts_are_refused() {
    let parts = three_parts();
    let (second, third) = (&parts.paths[1], &parts.paths[2]);
    let aside = parts.directory.path().join("aside");
    fs::rename(second, &aside).unwrap();
    fs::rename(third, second).unwrap();
    fs::rename(&aside, third).unwrap();
    let foreign = |number, found: &str, expected: &str| Error::ForeignPart {
        number,
        key: "split.no".into(),
        found: found.into(),
        expected: expected.into(),
    };
    for entry in &parts.paths {
        assert_eq!(refusal(entry), (second.clone(), foreign(2, "2", "1")));
    }
}

#[test]
fn parts_of_other_models_are_refused() {
    let parts = three_parts();
    let foreign = |key: &str, found: &str, expected: &str| {
        let (key, found, expected) = (key.into(), found.into(), expected.into());
        (parts.paths[1].clone(), Error::ForeignPart { number: 2, key, found, expected })
    };

    let four = parts_of(good_writer().tensor("more", &[1], Format::F32, vec![0; 4]), "model");
    fs::copy(&four.paths[1], &parts.paths[1]).unwrap();
    assert_eq!(refusal(&parts.paths[0]), foreign("split.count", "4", "3"));

    // As many parts, but not as many tensors.
    let more = good_writer().tensor("more", &[1], Format::F32, vec![0; 4]);
    let paths = more.write_split(parts.directory.path().join("more"), 160).unwrap();
    assert_eq!(paths.len(), 3);
    fs::copy(&paths[1], &parts.paths[1]).unwrap();
    assert_eq!(refusal(&parts.paths[0]), foreign("split.tensors.count", "i32 4", "i32 3"));

    // Its first part in the place of the second: the number gives it away before the architecture does.
    let other = parts_of(other_model(), "model");
    fs::copy(&other.paths[0], &parts.paths[1]).unwrap();
    assert_eq!(refusal(&parts.paths[0]), foreign("split.no", "0", "1"));

    // A file that is no part.
    good_writer().write_file(&parts.paths[1]).unwrap();
    assert_eq!(refusal(&parts.paths[0]), (parts.paths[1].clone(), Error::NotAPart { number: 2, count: 3 }));
    assert_eq!(refusal(&parts.paths[1]), (parts.paths[1].clone(), Error::NotAPart { number: 2, count: 3 }));
}

#[test]
fn a_part_with_the_same_tensors_is_refused() {
    let parts = three_parts();
    let again = Writer::new()
        .tensor("experts", &[1], Format::F32, vec![0; 4])
        .tensor("norm", &[1], Format::F32, vec![0; 4])
        .tensor("embed", &[1], Format::F32, vec![0; 4]);
    let again = parts_of(again, "model");
    fs::copy(&again.paths[1], &parts.paths[1]).unwrap();
    let expected = (parts.paths[1].clone(), Error::DuplicateTensor { tensor: "norm".into() });
    assert_eq!(refusal(&parts.paths[0]), expected);
}

#[test]
fn a_part_without_its_tensors_is_refused() {
    let parts = three_parts();
    let mut raw = good_raw();
    (raw.keys, raw.tensors, raw.data) = (Vec::new(), Vec::new(), Vec::new());
    raw.push_key("split.no", ValueType::U16, vec![2, 0]);
    raw.push_key("split.count", ValueType::U16, vec![3, 0]);
    raw.push_key("split.tensors.count", ValueType::I32, vec![3, 0, 0, 0]);
    fs::write(&parts.paths[2], raw.bytes()).unwrap();
    assert_eq!(refusal(&parts.paths[2]), (parts.paths[0].clone(), Error::TensorTotal { found: 2, expected: 3 }));
}

#[test]
fn a_first_part_that_does_not_count_the_tensors_is_named() {
    let parts = three_parts();
    let mut raw = good_raw();
    (raw.keys, raw.tensors, raw.data) = (Vec::new(), Vec::new(), Vec::new());
    raw.push_key("split.no", ValueType::U16, vec![0, 0]);
    raw.push_key("split.count", ValueType::U16, vec![3, 0]);
    fs::write(&parts.paths[0], raw.bytes()).unwrap();
    let expected = (parts.paths[0].clone(), Error::MissingKey { key: "split.tensors.count".into() });
    assert_eq!(refusal(&parts.paths[1]), expected);
}

#[test]
fn a_malformed_part_is_named() {
    let parts = three_parts();
    let bytes = fs::read(&parts.paths[2]).unwrap();
    fs::write(&parts.paths[2], &bytes[..bytes.len() - 17]).unwrap();
    let expected = Error::OutOfFile { tensor: "experts".into(), len: bytes.len() as u64 - 17 };
    assert_eq!(refusal(&parts.paths[0]), (parts.paths[2].clone(), expected));
    fs::write(&parts.paths[2], b"").unwrap();
    assert_eq!(refusal(&parts.paths[0]), (parts.paths[2].clone(), Error::Empty));
}

#[test]
fn names_and_numbers_must_agree() {
    let parts = three_parts();
    let rename = |from: &Path, to: &str| {
        let to = parts.directory.path().join(to);
        fs::copy(from, &to).unwrap();
        to
    };
    let not_named = |number| Error::PartName { number, count: 3 };
    for name in [
        "renamed.gguf",
        "model-2-of-3.gguf",
        "model-00004-of-00003.gguf",
        "model-00000-of-00003.gguf",
        "model-+0002-of-00003.gguf",
    ] {
        let path = rename(&parts.paths[1], name);
        assert_eq!(refusal(&path), (path, not_named(2)));
    }
    let whole = parts.directory.path().join("whole-00001-of-00002.gguf");
    good_writer().write_file(&whole).unwrap();
    assert_eq!(refusal(&whole), (whole, Error::NotAPart { number: 1, count: 2 }));

    let bytes = fs::read(&parts.paths[2]).unwrap();
    assert_eq!(Gguf::from_bytes(bytes).unwrap_err(), not_named(3));
}

#[test]
fn one_part_of_one_is_a_whole_model() {
    let directory = tempfile::tempdir().unwrap();
    let paths = good_writer().write_split(directory.path().join("model"), u64::MAX).unwrap();
    assert_eq!(paths, [directory.path().join("model-00001-of-00001.gguf")]);
    assert_eq!(Gguf::open(&paths[0]).unwrap().tensors().len(), 3);
    let renamed = directory.path().join("renamed.gguf");
    fs::rename(&paths[0], &renamed).unwrap();
    assert_eq!(Gguf::open(&renamed).unwrap().tensors().len(), 3);
}

#[test]
fn what_is_no_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(refusal(directory.path()), (directory.path().to_owned(), Error::NotAFile));
    let absent = directory.path().join("absent.gguf");
    assert!(matches!(refusal(&absent), (path, Error::Io { kind: io::ErrorKind::NotFound, .. }) if path == absent));
    let empty = directory.path().join("empty.gguf");
    fs::write(&empty, b"").unwrap();
    assert_eq!(refusal(&empty), (empty, Error::Empty));
}

#[cfg(unix)]
#[test]
fn a_device_is_not_waited_for() {
    assert_eq!(refusal(Path::new("/dev/null")).1, Error::NotAFile);
}
