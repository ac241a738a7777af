//! `argon logits`, against the engine itself.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use argon_engine::tokenizer::Special;
use argon_engine::{CacheTypes, Engine, EngineOptions, Logits, SessionOptions};
use argon_gguf::Gguf;
use argon_kernels::cpu::{CpuDevice, CpuOptions};
use argon_kernels::{DType, Precision};

use crate::{assert_fails, embedded, fixture, output, stderr, text, with_tensor};

const IDS: [u32; 5] = [100, 7, 4000, 7, 12];

fn engine(model: &Path) -> Engine {
    let device = CpuDevice::new(CpuOptions::default()).unwrap();
    let options = EngineOptions { precision: Some(Precision::F32) };
    Engine::load(Gguf::open(model).unwrap(), Arc::new(device), options).unwrap()
}

/// The engine's logits as the command computes them unless told otherwise: all in f32.
fn expected(model: &Path, ids: &[u32], chunk: usize, which: Logits) -> Vec<f32> {
    let cache = CacheTypes { k: DType::F32, v: DType::F32 };
    let mut session = engine(model).session(SessionOptions { context: ids.len(), chunk, cache }).unwrap();
    session.prefill(ids, which, &mut |_| ControlFlow::Continue(())).unwrap().unwrap().values
}

/// The file that the command wrote: the shape as its header spells it, and the values.
fn written(args: &[&str], path: &Path) -> (String, Vec<f32>) {
    let found = output(&[&["logits", "-o", text(path)], args].concat());
    assert_eq!(found.status.code(), Some(0), "{}", stderr(&found));
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes[..8], *b"\x93NUMPY\x01\x00");
    let data = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!(data % 64, 0);
    let header = std::str::from_utf8(&bytes[10..data]).unwrap();
    let shape = header.split_once("{'descr': '<f4', 'fortran_order': False, 'shape': (").unwrap().1;
    let values = bytes[data..].as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
    (shape.split_once(')').unwrap().0.into(), values)
}

#[test]
fn the_file_holds_the_engines_logits_to_the_bit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("logits.npy");
    let ids = IDS.map(|id| id.to_string()).join(",");
    let (shape, values) = written(&["--tokens", &ids], &path);
    assert_eq!(shape, "6144,");
    assert_eq!(values, expected(&embedded(), &IDS, IDS.len(), Logits::Last));
    let (shape, values) = written(&["--tokens", &ids, "--all", "-ub", "2"], &path);
    assert_eq!(shape, "5, 6144");
    assert_eq!(values, expected(&embedded(), &IDS, 2, Logits::All));
}

#[test]
fn ids_come_from_a_flag_a_file_or_a_text() {
    let dir = tempfile::tempdir().unwrap();
    let (npy, json) = (dir.path().join("logits.npy"), dir.path().join("ids.json"));
    let model = fixture("qwen4exp_s.gguf");
    let ids = engine(&model).tokenizer().unwrap().encode_prompt("hello there", Special::Parse).unwrap();
    assert!(ids.len() > 1);
    fs::write(&json, format!("{ids:?}")).unwrap();
    let list = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let values = expected(&model, &ids, ids.len(), Logits::Last);
    for prompt in [["--tokens", &list], ["--tokens-file", text(&json)], ["-p", "hello there"]] {
        let (shape, found) = written(&[&["-m", text(&model)], &prompt[..]].concat(), &npy);
        assert_eq!(shape, "512,");
        assert_eq!(found, values, "{prompt:?}");
    }
}

#[test]
fn standard_output_gets_the_same_bytes_and_ids_may_stand_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("logits.npy");
    written(&["--tokens", "100, 7,4000"], &path);
    let found = output(&["logits", "-o", "-", "--tokens", "100,7,4000"]);
    assert_eq!(found.stdout, fs::read(&path).unwrap());
    let first = stderr(&found).lines().next().unwrap();
    assert!(first.starts_with("the embedded model: qwen4exp, ") && first.ends_with(", precision f32"), "{first}");
}

/// The last norm's weights are numbers, and what they make of a token is none.
#[test]
fn logits_that_are_no_numbers_are_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (model, npy) = (dir.path().join("large.gguf"), dir.path().join("logits.npy"));
    with_tensor(&fixture("qwen3moe.gguf"), "output_norm.weight", &f32::MAX.to_le_bytes().repeat(256), &model);
    let found = output(&["logits", "-m", text(&model), "--tokens", "1,2,3", "-o", text(&npy)]);
    assert_fails(&found, 1, &["after token 2 of the prompt", "the logit of id "]);
    assert!(!npy.exists());
    let book = dir.path().join("book.txt");
    fs::write(&book, "one two three four ".repeat(20)).unwrap();
    let found = output(&["perplexity", "-m", text(&model), "-f", text(&book), "-c", "16"]);
    assert_fails(&found, 1, &["window 1", "not numbers"]);
    assert_eq!(found.stdout, b"");
}

#[test]
fn bad_ids_and_bad_outputs_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (npy, json) = (dir.path().join("logits.npy"), dir.path().join("ids.json"));
    assert_fails(&output(&["logits", "-o", text(&npy), "--tokens", "1,6144"]), 2, &["token 1", "6144"]);
    assert!(!npy.exists());
    for bad in ["[]", "[-1]", "[1.5]", "{\"a\": 1}", "[1, 2", "[4294967296]"] {
        fs::write(&json, bad).unwrap();
        assert_fails(&output(&["logits", "-o", text(&npy), "--tokens-file", text(&json)]), 2, &[]);
    }
    fs::write(&json, "[1, 2,\n 3,\n 6144]").unwrap();
    let told = [text(&json), "id 6144 on line 3", "6144"];
    assert_fails(&output(&["logits", "-o", text(&npy), "--tokens-file", text(&json)]), 2, &told);
    fs::write(&json, "[1, 2,\n 3,\n x]").unwrap();
    let told = [text(&json), "array of token ids", "line 3"];
    assert_fails(&output(&["logits", "-o", text(&npy), "--tokens-file", text(&json)]), 2, &told);
    let nowhere = dir.path().join("no/such/dir.npy");
    assert_fails(&output(&["logits", "-o", text(&nowhere), "--tokens", "1"]), 2, &[text(&nowhere)]);
    assert_fails(&output(&["logits", "-o", text(dir.path()), "--tokens", "1"]), 2, &[text(dir.path())]);
}
