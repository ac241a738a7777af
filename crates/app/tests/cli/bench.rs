//! `argon bench`: what is told, not how fast it is.

use std::fs;

use argon_gguf::{Gguf, Value as MetadataValue};
use serde_json::Value;

use crate::kernels::assert_sound;
use crate::{assert_fails, fixture, output, stderr, stdout, text, with_keys};

#[test]
fn every_length_is_a_row_and_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let (json, model) = (dir.path().join("bench.json"), fixture("qwen3moe.gguf"));
    let [csv, html] = ["bench.csv", "bench.html"].map(|name| dir.path().join(name));
    let flags = ["-p", "3,16", "-n", "2", "-r", "2", "-t", "1", "-ub", "8", "--json", text(&json)];
    let files = ["--csv", text(&csv), "--html", text(&html)];
    let found = output(&[&["bench", "model", "-m", text(&model)], &flags[..], &files].concat());
    let rows: Vec<Vec<&str>> =
        stdout(&found).lines().map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect();
    assert_eq!(rows[0], ["model", "size", "params", "backend", "threads", "test", "t/s"]);
    assert_eq!(rows[2..].iter().map(|row| row[5]).collect::<Vec<_>>(), ["pp3", "pp16", "tg2"]);

    let records: Vec<Value> = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(records.len(), 3);
    let bytes: usize = Gguf::open(&model).unwrap().tensors().iter().map(|tensor| tensor.bytes).sum();
    for ((record, row), (test, tokens)) in records.iter().zip(&rows[2..]).zip([("pp3", 3), ("pp16", 16), ("tg2", 2)]) {
        assert_eq!((&record["test"], &record["tokens"]), (&test.into(), &tokens.into()));
        assert_eq!(
            (&record["threads"], &record["chunk"], &record["size_bytes"]),
            (&1.into(), &8.into(), &bytes.into())
        );
        let seconds: Vec<f64> = record["seconds"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
        assert!(seconds.len() == 2 && seconds.iter().all(|&seconds| seconds > 0.0), "{record}");
        let (speed, sd) = (&record["tokens_per_second"], &record["tokens_per_second_sd"]);
        assert_eq!(row[6], format!("{:.2} ± {:.2}", speed.as_f64().unwrap(), sd.as_f64().unwrap()));
    }
    let csv = fs::read_to_string(csv).unwrap();
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.iter().map(|line| line[0]).collect::<Vec<_>>(), ["test", "pp3", "pp16", "tg2"]);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{csv}");
    let html = fs::read_to_string(html).unwrap();
    assert_sound(&html);
    for heading in ["Speed", "By stage", "By layer", "Load of the experts"] {
        assert!(html.contains(&format!("<h2>{heading}</h2>")), "no {heading}");
    }
}

#[test]
fn nothing_to_measure_is_refused() {
    let fails = |args: &[&str], part| assert_fails(&output(&[&["bench", "model"], args].concat()), 2, &[part]);
    fails(&["-p", "0", "-n", "0"], "nothing to measure");
    fails(&["-r", "0"], "--repetitions");
    fails(&["-p", "99999999999", "-n", "0"], "--n-prompt");
    fails(&["-p", "many"], "many");
}

#[test]
fn a_prompt_beyond_the_training_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("short.gguf");
    with_keys(&fixture("qwen3moe.gguf"), &[("qwen3moe.context_length", MetadataValue::U32(16))], &model);
    let told = |tokens: &str| {
        let found = output(&["bench", "model", "-m", text(&model), "-p", tokens, "-n", "0", "-r", "1"]);
        stderr(&found).contains(&format!("warning: the context of {tokens} tokens is beyond the 16 "))
    };
    assert_eq!([told("16"), told("17")], [false, true]);
}
