//! `argon inspect`.

use std::fs;

use argon_gguf::{Format, Gguf, Value as Metadata, Writer};
use serde_json::Value;

use crate::{embedded, fixture, output, stderr, stdout, text, with_keys};

fn report(args: &[&str]) -> Value {
    serde_json::from_str(stdout(&output(&[&["inspect", "--json"], args].concat()))).unwrap()
}

#[test]
fn the_numbers_are_those_of_the_file() {
    let found = report(&[text(&fixture("qwen4exp_s.gguf"))]);
    let gguf = Gguf::open(fixture("qwen4exp_s.gguf")).unwrap();
    let bytes: usize = gguf.tensors().iter().map(|tensor| tensor.bytes).sum();
    assert_eq!(found["architecture"], "qwen4exp");
    assert_eq!((&found["layers"], &found["experts"], &found["experts_used"]), (&4.into(), &16.into(), &4.into()));
    assert_eq!(found["tensors"], gguf.tensors().len());
    assert_eq!(found["bytes"], bytes);
    let formats = found["formats"].as_array().unwrap();
    let count = |name: &str| formats.iter().find(|share| share["format"] == name).unwrap()["tensors"].as_u64();
    // As the oracle's manifest has it.
    assert_eq!((count("IQ4_NL"), count("F32"), count("F16"), count("Q8_0")), (Some(73), Some(38), Some(1), Some(1)));
    let sum = |key: &str| formats.iter().map(|share| share[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(found["bytes"], sum("bytes"));
    assert_eq!(found["parameters"], sum("parameters"));
    // 3 tensors of 16 experts of 128 x 32 in each of 4 layers, 4 of 16 used.
    let idle = 4 * 3 * 128 * 32 * (16 - 4);
    assert_eq!(found["active_parameters"], sum("parameters") - idle);
    assert_eq!(found["unsupported"], Value::Null);
    // One of 4 layers is attention: 2 heads of 32 keys and 32 values. Its indexer keeps one key of 32 f32 per 4 tokens.
    let cache = |bytes: u64| 1000 * (2 * 32 + 2 * 32) * bytes + 1000 / 4 * 32 * 4;
    assert_eq!(found["memory"]["per_1000_tokens_f16"], cache(2));
    assert_eq!(found["memory"]["per_1000_tokens_f32"], cache(4));
    let memory = |key: &str| found["memory"][key].as_u64().unwrap();
    let caches = cache(2) * memory("trained") / 1000;
    assert_eq!(memory("trained_total"), memory("weights") + memory("fixed") + caches);
}

#[test]
fn what_decides_of_a_chat_and_what_all_takes_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chat.gguf");
    with_keys(&embedded(), &[("tokenizer.chat_template", Metadata::String("{{ messages }}"))], &path);
    let told = |args: &[&str], name: &str| {
        let found = output(&[&["inspect"], args].concat());
        stdout(&found).lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    };
    assert_eq!(told(&[], "chat template"), "none: no --chat");
    assert_eq!(told(&[text(&path)], "chat template"), "in the file (--chat)");
    assert!(told(&[], "tokenizer").starts_with("gpt2, "));
    assert_eq!(report(&[text(&path)])["chat_template"], true);
    let found = output(&["inspect"]);
    assert!(stdout(&found).contains(" in all at the trained context of 4096; this machine has "), "{found:?}");
}

/// Some writers repeat a number for each layer. What is told of it is what the engine makes of it.
#[test]
fn a_number_may_be_repeated_for_each_layer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("layers.gguf");
    let counts: [(&str, &[u32]); 2] = [("qwen3moe.expert_used_count", &[3, 3]), ("qwen3moe.expert_count", &[8])];
    with_keys(&fixture("qwen3moe.gguf"), &counts, &path);
    let found = report(&[text(&path)]);
    assert_eq!((&found["experts"], &found["experts_used"]), (&8.into(), &3.into()));
    assert_eq!(found["unsupported"], Value::Null);
}

#[test]
fn a_key_of_another_type_is_told_beside_everything_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("typed.gguf");
    with_keys(&fixture("qwen3moe.gguf"), &[("qwen3moe.block_count", Metadata::String("two"))], &path);
    let found = report(&[text(&path)]);
    assert_eq!((&found["layers"], &found["hidden"]), (&Value::Null, &256.into()));
    assert!(found["unsupported"].as_str().unwrap().contains("qwen3moe.block_count"));
}

#[test]
fn a_model_without_a_tokenizer_runs_but_takes_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mute.gguf");
    with_keys(&fixture("qwen3moe.gguf"), &[("tokenizer.ggml.model", Metadata::String("abacus"))], &path);
    let found = report(&[text(&path)]);
    assert_eq!(found["unsupported"], Value::Null);
    assert!(found["tokenizer_unsupported"].as_str().unwrap().contains("tokenizer.ggml.model"));
    let plain = output(&["inspect", text(&path)]);
    assert!(
        stdout(&plain).contains("runs           with ids of tokens, without text: tokenizer.ggml.model"),
        "{plain:?}"
    );
}

/// A name may hold anything: no line of its own, no command to the terminal.
#[test]
fn texts_of_a_file_stay_on_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("loud.gguf");
    let name = Metadata::String("a\x1b[31m\nruns           yes");
    let example = Metadata::String("b\x1b]0;c\x07\nd");
    with_keys(&fixture("qwen3moe.gguf"), &[("general.name", name), ("argon.default_prompt", example)], &path);
    let plain = output(&["inspect", text(&path)]);
    assert!(stdout(&plain).contains("name           a\\u{1b}[31m\\nruns           yes\n"), "{plain:?}");
    let run = output(&["run", "-m", text(&path), "-n", "0"]);
    assert!(stderr(&run).contains("example:\nb\\u{1b}]0;c\\u{7}\nd\n"), "{run:?}");
}

#[test]
fn the_embedded_model_is_looked_at_without_a_file() {
    let mut inside = report(&[]);
    let mut file = report(&[text(&embedded())]);
    assert_ne!(inside["file"], file["file"]);
    inside["file"] = Value::Null;
    file["file"] = Value::Null;
    assert_eq!(inside, file);
}

#[test]
fn every_tensor_is_listed_on_demand() {
    let path = fixture("qwen3moe.gguf");
    let gguf = Gguf::open(&path).unwrap();
    let found = report(&["--tensors", text(&path)]);
    assert_eq!(found["tensor_list"].as_array().unwrap().len(), gguf.tensors().len());
    assert!(report(&[text(&path)]).get("tensor_list").is_none());
    assert_eq!(report(&["-m", text(&path)]), report(&[text(&path)]), "the file as other commands take it");
    let plain = output(&["inspect", "--tensors", text(&path)]);
    for tensor in gguf.tensors() {
        assert!(stdout(&plain).contains(&tensor.name));
    }
}

#[test]
fn what_does_not_run_is_told_and_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.gguf");
    let data = [0u8; 32];
    let other = Writer::new().metadata("general.architecture", "abacus").metadata("abacus.block_count", 3u32);
    other.tensor("beads.weight", &[4, 2], Format::F32, &data[..]).write_file(&path).unwrap();
    let found = report(&[text(&path)]);
    assert_eq!((&found["layers"], &found["parameters"], &found["memory"]), (&3.into(), &8.into(), &Value::Null));
    assert!(found["unsupported"].as_str().unwrap().contains("abacus"));
    let plain = output(&["inspect", text(&path)]);
    assert!(stdout(&plain).contains("no: architecture \"abacus\" is not supported"), "{}", stdout(&plain));
}

/// The file may be larger than memory: a sparse one of 64 GiB is looked at without reading it.
#[cfg(unix)]
#[test]
fn weights_are_not_read() {
    const WEIGHTS: u64 = 1 << 34;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.gguf");
    let data = [0u8; 32];
    let small = Writer::new().metadata("general.architecture", "abacus");
    small.tensor("beads.weight", &[8], Format::F32, &data[..]).write_file(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let name = bytes.windows(12).position(|window| window == b"beads.weight").unwrap();
    let length = name + 12 + 4; // behind the name and the number of dimensions
    bytes[length..length + 8].copy_from_slice(&WEIGHTS.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(bytes.len() as u64 - 32 + 4 * WEIGHTS).unwrap();
    let found = report(&[text(&path)]);
    assert_eq!((&found["parameters"], &found["bytes"]), (&WEIGHTS.into(), &(4 * WEIGHTS).into()));
}
