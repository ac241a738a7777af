//! The `argon` command from the outside: what it prints, what it writes, and how it ends.
#![allow(missing_docs)]

mod bench;
mod chat;
mod device;
mod input;
mod inspect;
mod kernels;
mod logits;
mod parity;
mod perplexity;
mod profile;
mod run;
mod session;
mod synth;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use argon_gguf::{Gguf, ToMetadata, Value, Writer};

/// The command, with nothing on standard input. Vulkan's libraries write an error of their own where a session has no directory.
fn argon(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_argon"));
    command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command to its end.
fn output(args: &[&str]) -> Output {
    argon(args).output().unwrap()
}

/// Runs the command to its end with `input` on standard input.
fn output_of(args: &[&str], input: &[u8]) -> Output {
    let mut child = argon(args).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// Standard output of a run that must end well.
fn stdout(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Asserts that the command ends with `code` and one error line that contains all of `parts`.
fn assert_fails(output: &Output, code: i32, parts: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{text}");
    for part in parts {
        assert!(errors[0].contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains("panicked"), "{text}");
}

/// Models of other crates' tests.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/models").join(name)
}

/// The model that the binary carries, as a file.
fn embedded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/argon-tiny.gguf")
}

/// Keys of a model whose tokenizer sets BOS.
const SETS_BOS: [(&str, Value); 2] =
    [("tokenizer.ggml.add_bos_token", Value::Bool(true)), ("tokenizer.ggml.bos_token_id", Value::U32(510))];

/// Writes the model `of` to `path` with other or additional keys.
fn with_keys(of: &Path, keys: &[(&str, impl ToMetadata)], path: &Path) {
    let gguf = Gguf::open(of).unwrap();
    let mut writer = Writer::new();
    for (key, value) in keys {
        writer = writer.metadata(*key, value);
    }
    for key in gguf.metadata().keys().filter(|key| keys.iter().all(|(changed, _)| changed != key)) {
        writer = writer.metadata(key, gguf.metadata().get(key).unwrap().unwrap());
    }
    for tensor in gguf.tensors() {
        writer = writer.tensor(&tensor.name, &tensor.shape, tensor.format, gguf.data(tensor).to_vec());
    }
    writer.write_file(path).unwrap();
}

/// Writes the model `of` to `path` with other bytes of one tensor.
fn with_tensor(of: &Path, name: &str, bytes: &[u8], path: &Path) {
    let gguf = Gguf::open(of).unwrap();
    let place = gguf.location(gguf.tensor(name).unwrap());
    assert_eq!(bytes.len(), place.len);
    let mut file = std::fs::read(of).unwrap();
    file[place.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    std::fs::write(path, file).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
