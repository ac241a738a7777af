//! `argon parity`: the kernels of this machine; and `argon parity oracle`, on llama.cpp's numbers for a model of the engine's tests.

use std::fs;
use std::path::Path;

use crate::{assert_fails, fixture, output, stderr, stdout, text};

/// An oracle directory made of the fixtures of `NAME`, whose weights are in the format `quant`.
fn oracle(dir: &Path, name: &str, quant: &str) {
    fs::create_dir_all(dir.join("logits")).unwrap();
    fs::copy(fixture("prompts.json"), dir.join("prompts.json")).unwrap();
    fs::copy(fixture(&format!("{name}.gguf")), dir.join(format!("{name}.{quant}.gguf"))).unwrap();
    for positions in ["final", "p1"] {
        let to = dir.join(format!("logits/lc_{quant}_deq.{positions}.npy"));
        fs::copy(fixture(&format!("{name}.{positions}.npy")), to).unwrap();
    }
}

/// The lines of the table whose verdict is `verdict`.
fn lines<'a>(table: &'a str, verdict: &str) -> Vec<&'a str> {
    table.lines().filter(|line| line.ends_with(verdict)).collect()
}

#[test]
fn the_numbers_of_llama_cpp_are_met() {
    let dir = tempfile::tempdir().unwrap();
    oracle(dir.path(), "qwen4exp_s", "iq4_nl");
    let found = output(&["parity", "oracle", text(dir.path()), "--precision", "f32"]);
    let table = stdout(&found);
    assert_eq!(lines(table, "PASS").len(), 2, "{table}");
    assert!(table.contains("lc_iq4_nl_deq") && table.contains("64/64") && table.contains("3/3"), "{table}");
    assert!(table.ends_with("all 2 comparisons hold\n"), "{table}");
}

#[test]
fn a_directory_of_oracles_is_run_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    oracle(&dir.path().join("a"), "qwen4exp_s", "iq4_nl");
    oracle(&dir.path().join("b"), "qwen3moe", "iq2_xs");
    fs::create_dir(dir.path().join("common")).unwrap();
    let found = output(&["parity", "oracle", text(dir.path()), "--precision", "f32"]);
    assert!(stdout(&found).ends_with("all 4 comparisons hold\n"), "{}", stdout(&found));
}

/// Changes the f32 at `index` of a `.npy` file.
fn change(path: &Path, index: usize, to: f32) {
    let mut bytes = fs::read(path).unwrap();
    let at = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]])) + 4 * index;
    bytes[at..at + 4].copy_from_slice(&to.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn one_logit_too_far_off_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    oracle(dir.path(), "qwen4exp_s", "iq4_nl");
    change(&dir.path().join("logits/lc_iq4_nl_deq.p1.npy"), 512 * 40 + 3, 0.25);
    let found = output(&["parity", "oracle", text(dir.path()), "--precision", "f32"]);
    assert_fails(&found, 1, &["1 of 2 comparisons failed"]);
    let table = String::from_utf8(found.stdout).unwrap();
    let failed = lines(&table, "FAIL");
    assert!(failed.len() == 1 && failed[0].contains(" p1 "), "{table}");
}

#[test]
fn a_model_that_does_not_load_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    oracle(dir.path(), "qwen4exp_s", "iq4_nl");
    fs::write(dir.path().join("qwen4exp_s.f16.gguf"), "GGUF").unwrap();
    let found = output(&["parity", "oracle", text(dir.path()), "--precision", "f32"]);
    assert_fails(&found, 1, &["1 of 3 comparisons failed"]);
    assert!(String::from_utf8(found.stdout).unwrap().contains("qwen4exp_s.f16.gguf: FAIL: "));
}

#[test]
fn what_has_no_counterpart_is_said() {
    let dir = tempfile::tempdir().unwrap();
    oracle(dir.path(), "qwen4exp_s", "iq4_nl");
    fs::copy(fixture("qwen3moe.gguf"), dir.path().join("x.iq2_xs.gguf")).unwrap();
    fs::copy(fixture("qwen3moe.p1.npy"), dir.path().join("logits/lc_q9_9.p1.npy")).unwrap();
    let found = output(&["parity", "oracle", text(dir.path()), "--precision", "f32"]);
    assert!(stdout(&found).contains("x.iq2_xs.gguf: no logits of this format"), "{}", stdout(&found));
    assert!(stdout(&found).contains("lc_q9_9: no model file of this format"), "{}", stdout(&found));
}

#[test]
fn a_directory_with_nothing_to_compare_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |part: &str| assert_fails(&output(&["parity", "oracle", text(dir.path())]), 2, &[part]);
    fails("neither an oracle nor a directory of oracles");
    oracle(dir.path(), "qwen4exp_s", "iq4_nl");
    fs::rename(dir.path().join("qwen4exp_s.iq4_nl.gguf"), dir.path().join("qwen4exp_s.q4_0.gguf")).unwrap();
    fails("nothing to compare");
    fs::remove_file(dir.path().join("qwen4exp_s.q4_0.gguf")).unwrap();
    fails("no .gguf file");
    fs::remove_file(dir.path().join("prompts.json")).unwrap();
    fails("prompts.json");
}

#[test]
fn malformed_references_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let run = || output(&["parity", "oracle", text(dir.path()), "--precision", "f32"]);
    oracle(dir.path(), "qwen4exp_s", "iq4_nl");
    let p1 = dir.path().join("logits/lc_iq4_nl_deq.p1.npy");
    change(&p1, 5, f32::NAN);
    let found = run();
    assert_eq!(found.status.code(), Some(1), "{}", stderr(&found));
    assert!(String::from_utf8(found.stdout).unwrap().contains("p1.npy: a logit is no finite number"));
    fs::copy(dir.path().join("logits/lc_iq4_nl_deq.final.npy"), &p1).unwrap();
    assert!(String::from_utf8(run().stdout).unwrap().contains("p1.npy: its shape is [3, 512], not [64, 512]"));
    fs::write(&p1, "no array").unwrap();
    assert!(String::from_utf8(run().stdout).unwrap().contains("p1.npy: not a .npy file"));
    fs::write(dir.path().join("prompts.json"), "{\"prompts\": []}").unwrap();
    assert_fails(&run(), 2, &["prompts.json", "no prompts"]);
}

/// `argon parity` on the processor.
fn kernels(args: &[&str]) -> std::process::Output {
    output(&[&["parity", "--device", "cpu"], args].concat())
}

#[test]
fn the_report_holds_machine_device_and_every_case() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    let found = kernels(&["dense", "plan", "-T", "5", "--seed", "3", "--report", text(&path)]);
    let table = stdout(&found);
    assert!(table.starts_with("cpu (") && table.ends_with(" comparisons hold\n"), "{table}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(report["argon"], env!("CARGO_PKG_VERSION"));
    let version = output(&["--version"]);
    let commit = report["commit"].as_str().map_or(String::new(), |commit| format!(" ({commit})"));
    assert_eq!(stdout(&version), format!("argon {}{commit}\n", env!("CARGO_PKG_VERSION")));
    // 2026-11-30T12:34:56Z
    let date = report["date"].as_str().unwrap();
    assert!(date.len() == 20 && date.starts_with("20") && date.ends_with('Z'), "{date}");
    assert!(report["system"].as_str().unwrap().ends_with(std::env::consts::ARCH), "{report}");
    assert!(report["machine"]["memory_bytes"].as_u64().unwrap() > 0, "{report}");
    let device = &report["devices"][0];
    assert_eq!((&device["id"], report["devices"].as_array().unwrap().len()), (&"cpu".into(), 1));
    let cases = device["cases"].as_array().unwrap();
    assert!(cases.iter().all(|case| case["holds"] == true && case["failure"].is_null()));
    // The thirteen formats of the report, and every way to compute a plan.
    for format in
        ["F32", "BF16", "Q8_0", "Q4_0", "Q5_0", "IQ4_NL", "IQ4_XS", "Q2_0", "IQ3_S", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
    {
        let of_format = |case: &&serde_json::Value| case["case"].as_str() == Some(&format!("{format}, 5 rows"));
        let precisions: Vec<_> =
            cases.iter().filter(of_format).map(|case| case["precision"].as_str().unwrap()).collect();
        assert_eq!(precisions, ["int8", "f16", "f32"], "{format}");
    }
    for variant in ["auto: ", "serial: ", "packed: ", "fused: ", "running: ", "parallel: "] {
        assert!(cases.iter().any(|case| case["case"].as_str().unwrap().starts_with(variant)), "{variant}");
    }
    let int8 = cases.iter().find(|case| case["precision"] == "int8").unwrap();
    for number in ["a", "a_bound", "b", "b_bound"] {
        assert!(int8[number].as_f64().unwrap() > 0.0, "{int8}");
    }
}

#[test]
fn one_kernel_in_one_precision_lists_every_case() {
    let found = kernels(&[
        "moe",
        "-T",
        "9",
        "--experts",
        "5",
        "--topk",
        "2",
        "--gu",
        "q4_k",
        "--dn",
        "q6_k",
        "--precision",
        "f16",
    ]);
    let rows: Vec<&str> = stdout(&found).lines().filter(|line| line.starts_with("moe ")).collect();
    assert!(rows.len() > 5, "{found:?}");
    assert!(rows.iter().all(|row| row.contains("Q4_K and Q6_K, T 9, K 2, E 5") && row.contains(" f16 ")), "{rows:?}");
    let seeds = ["1", "2"].map(|seed| stdout(&kernels(&["hyper", "-T", "3", "--seed", seed])).to_owned());
    assert_ne!(seeds[0], seeds[1]);
}

#[test]
fn one_variant_is_compared_alone() {
    let cases = |args: &[&str]| {
        let found = kernels(args);
        stdout(&found).lines().filter(|line| line.ends_with("PASS")).map(String::from).collect::<Vec<_>>()
    };
    let (all, one) = (cases(&["plan", "-T", "5"]), cases(&["plan", "-T", "5", "--variant", "packed"]));
    assert_eq!(all.len(), 6 * one.len(), "the device's own and five variants");
    assert!(one.iter().all(|row| row.contains("packed: ")), "{one:?}");
    // Of the backends that are here, those that have it.
    let found = output(&["parity", "plan", "-T", "5", "--variant", "running"]);
    assert!(stdout(&found).starts_with("cpu (") && stdout(&found).contains("running: "), "{found:?}");
}

#[test]
fn the_embedded_model_agrees_with_the_reference() {
    let found = kernels(&["model", "-T", "6"]);
    assert!(stdout(&found).contains("largest difference of a logit"), "{found:?}");
}

/// Ties and near ties of many experts, and fewer experts than a case has by itself.
#[test]
fn routing_of_many_and_of_few_experts_agrees() {
    for (experts, top_k, seed) in [("999", "999", "0"), ("999", "999", "3"), ("4096", "64", "1")] {
        kernels_hold(&["route", "--experts", experts, "--topk", top_k, "--seed", seed]);
    }
    kernels_hold(&["route", "-T", "1", "--experts", "1"]);
}

fn kernels_hold(args: &[&str]) {
    assert!(stdout(&kernels(args)).ends_with(" comparisons hold\n"));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let fails = |args: &[&str], parts: &[&str]| assert_fails(&kernels(args), 2, parts);
    fails(&["plans"], &["WHAT", "plans", "elementwise"]);
    fails(&["dense", "--gu", "q9_k"], &["--gu", "Q4_K"]);
    fails(&["moe", "--dn", "i8"], &["--dn"]);
    fails(&["dense", "--precision", "bf16"], &["--precision", "bf16"]);
    fails(&["plan", "--variant", "magic"], &["--variant", "serial, packed, fused"]);
    fails(&["route", "--experts", "8", "--topk", "9"], &["--topk"]);
    fails(&["hyper", "--experts", "8"], &["--experts is for plan, gather, moe, route", "nothing of hyper"]);
    fails(&["dense", "plan", "--dn", "Q4_K"], &["--dn is for moe", "nothing of plan, dense"]);
    assert_fails(&output(&["parity", "plan", "--device", "reference"]), 2, &["--device is reference"]);
    fails(&["plan", "--report", "-"], &["-: not standard output but a file"]);
    fails(&["attention", "-T", "1048576"], &["attention takes 4096 tokens (--tokens) at most"]);
    fails(&["moe", "-T", "10000", "--topk", "7"], &["moe takes 65536 rows"]);
    fails(&["moe", "-T", "1", "--experts", "5000"], &["moe takes 1024 experts"]);
    fails(&["route", "-T", "16000", "--experts", "16000"], &["logits"]);
    fails(&["route", "-T", "1", "--topk", "1025"], &["route takes 1024 experts for each token (--topk) at most"]);
    fails(&["plan", "-T", "1048576", "--experts", "16384", "--topk", "16384"], &["--tokens, --topk, --experts"]);
    fails(&["plan", "-T", "1048576", "--experts", "16384"], &["a plan of 1.68 GB; plan takes 268.44 MB at most"]);
    fails(&["plan", "-T", "-3"], &["-3", "--tokens"]);
    fails(&["plan", "-T", "0"], &["--tokens"]);
    fails(&["plan", "-T", "99999999999"], &["--tokens"]);
    assert_fails(&output(&["parity", "plan", "--device", "cuda:4095"]), 2, &["--device", "cuda:4095"]);
    assert_fails(&output(&["parity", "plan", "--device", "auto"]), 2, &["--device"]);
    // A tile needs a device that has a choice of them, and whatever is wrong with it is said before a driver is asked for.
    fails(&["moe", "--tile", "16,32,32,4"], &["--tile", "cpu has no choice of tiles"]);
    fails(&["moe", "--tile", "16,32,32"], &["--tile", "TM,TN,TK,SG"]);
    let tile = |args: &[&str], part| {
        assert_fails(&output(&[&["parity", "moe", "--device", "cuda"], args].concat()), 2, &[part])
    };
    tile(&["--tile", "24,128,256,8"], "TM is 24");
    tile(&["--dtile", "16,32,32,4"], "TN is 32");
    assert_fails(&output(&["parity", "oracle"]), 2, &["required"]);
}
