//! `argon bench plan`, `gather`, `moe` and `dense`: what is told and written, not how fast it is.

use std::fs;
#[cfg(unix)]
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::Value;

use crate::{assert_fails, output, stdout, text};

/// A bench that writes all three files, run to its end.
struct Written {
    stdout: String,
    json: Value,
    csv: Vec<Vec<String>>,
    html: String,
}

fn written(args: &[&str]) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let [json, csv, html] = ["a.json", "a.csv", "a.html"].map(file);
    let files = ["--json", text(&json), "--csv", text(&csv), "--html", text(&html), "-t", "1", "-r", "2"];
    let found = output(&[&["bench"], args, &files].concat());
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    Written {
        stdout: stdout(&found).into(),
        json: serde_json::from_str(&read(&json)).unwrap(),
        csv: read(&csv).lines().map(|line| line.split(',').map(str::to_owned).collect()).collect(),
        html: read(&html),
    }
}

impl Written {
    /// Tokens, stage and variant of each measurement, which JSON and CSV agree on; and that each makes sense.
    fn records(&self) -> Vec<(u64, &str, &str)> {
        let records = self.json["records"].as_array().unwrap();
        assert_eq!(self.csv.len(), records.len() + 1);
        assert!(self.csv.iter().all(|line| line.len() == self.csv[0].len()));
        let column = |name: &str| self.csv[0].iter().position(|column| column == name).unwrap();
        let number = |record: &Value, name: &str| record[name].as_f64().unwrap();
        let found = records.iter().zip(&self.csv[1..]).map(|(record, line)| {
            let [low, middle, high] = ["p10_s", "median_s", "p90_s"].map(|name| number(record, name));
            assert!(0.0 <= low && low <= middle && middle <= high, "{record}");
            assert_eq!(record["runs"], 2);
            assert_eq!(line[column("median_us")], format!("{:.3}", middle * 1e6));
            let key = (record["tokens"].as_u64().unwrap(), record["stage"].as_str().unwrap());
            assert_eq!((&line[column("tokens")], &line[column("stage")]), (&key.0.to_string(), &key.1.to_string()));
            (key.0, key.1, record["variant"].as_str().unwrap())
        });
        found.collect()
    }

    /// Asserts that the page is one file, that every element that is opened is closed, and that these headings are there.
    fn assert_page(&self, headings: &[&str]) {
        assert_sound(&self.html);
        for heading in headings {
            assert!(self.html.contains(&format!("<h2>{heading}</h2>")), "no {heading}");
        }
    }
}

/// Asserts that a page needs no other file and no script, and that its elements nest.
pub fn assert_sound(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>"));
    let outside: Vec<&str> = html.match_indices("http").map(|(at, _)| &html[at..at + 26]).collect();
    assert!(outside.iter().all(|url| *url == "http://www.w3.org/2000/svg"), "{outside:?}");
    assert!(!html.contains("<script") && !html.contains("url(") && !html.contains("src="));
    assert!(!html.contains("NaN") && !html.contains("inf "), "a picture has a number that is none");
    let mut open: Vec<&str> = Vec::new();
    for tag in html.split('<').skip(2).map(|rest| rest.split_once('>').unwrap().0) {
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') && !["meta", "br"].contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
}

#[test]
fn a_plan_is_timed_by_stage_and_variant() {
    let found = written(&["plan", "-T", "1,40", "--experts", "7", "--topk", "3", "--layers", "2", "--device", "cpu"]);
    let stages = [
        ("serial", &["hist", "scan", "clear", "place"][..]),
        ("packed", &["hist", "scan", "place"]),
        ("fused", &["hist_scan", "place"]),
        ("running", &["hist", "scan", "place"]),
        ("parallel", &["hist", "scan", "place"]),
    ];
    let alone = stages.iter().flat_map(|(variant, stages)| stages.iter().map(move |stage| (*stage, *variant)));
    let whole = ["serial", "packed", "fused", "running", "parallel", "auto"].map(|variant| ("plan", variant));
    let of_chunk: Vec<(&str, &str)> = alone.chain(whole).collect();
    let expected: Vec<_> = [1, 40]
        .iter()
        .flat_map(|&tokens| of_chunk.iter().map(move |(stage, variant)| (tokens, *stage, *variant)))
        .collect();
    assert_eq!(found.records(), expected);
    // 40 tokens of 3 experts in tiles of some height.
    let plan = &found.json["plans"][1];
    let (tile, rows) = (plan["tile"].as_u64().unwrap(), plan["rows_per_expert"].as_array().unwrap());
    let rows: Vec<u64> = rows.iter().map(|rows| rows.as_u64().unwrap()).collect();
    assert_eq!((rows.len(), rows.iter().sum::<u64>()), (7, 120));
    assert_eq!(plan["rows"].as_u64().unwrap(), rows.iter().map(|rows| rows.div_ceil(tile) * tile).sum::<u64>());
    assert!(found.stdout.contains("a layer of a sequence of 2 layers"), "{}", found.stdout);
    found.assert_page(&[
        "T = 1: stages alone",
        "Rows of each expert",
        "Padding",
        "Load of the experts, layer by layer",
    ]);
}

#[test]
fn a_layer_is_timed_by_stage() {
    let shape = ["-D", "256", "-F", "64", "--experts", "8", "--topk", "2", "--pool", "1", "--device", "cpu"];
    for routing in ["uniform", "zipf:1.5"] {
        let found = written(&[&["moe", "-T", "5,33", "--routing", routing], &shape[..]].concat());
        let stages = ["plan", "gate_up", "down", "combine", "layer"];
        let expected: Vec<_> = [5, 33].iter().flat_map(|&tokens| stages.map(|stage| (tokens, stage, ""))).collect();
        assert_eq!(found.records(), expected);
        // 33 tokens of 2 experts, three matrices of 256 x 64.
        let layer = &found.json["records"][9];
        let products = 33.0 * 2.0 * 2.0 * 3.0 * 256.0 * 64.0;
        assert_eq!(layer["operations"].as_f64().unwrap(), products + 33.0 * 2.0 * 2.0 * 256.0);
        assert!(layer["operations_share"].as_f64().unwrap() > 0.0 && layer["memory_share"].as_f64().unwrap() > 0.0);
        assert_eq!(found.stdout.lines().count(), 4, "{}", found.stdout);
        found.assert_page(&["Where the time goes", "Roofline", "Rows of each expert", "Padding", "All measurements"]);
    }
}

#[test]
fn a_gather_is_timed_from_both_sources() {
    let shape = ["-T", "9,40,9", "-D", "96", "--experts", "8", "--topk", "3", "--device", "cpu"];
    let found = written(&[&["gather"], &shape[..]].concat());
    assert_eq!(
        found.records(),
        [(9, "gather", "f32"), (9, "gather", "f16"), (40, "gather", "f32"), (40, "gather", "f16")]
    );
    let (records, plan) = (&found.json["records"], &found.json["plans"][1]);
    let rows = plan["rows"].as_f64().unwrap();
    assert_eq!(records[2]["bytes"].as_f64().unwrap(), (4.0 * 120.0 + 2.0 * rows) * 96.0);
    assert_eq!(records[3]["bytes"].as_f64().unwrap(), (2.0 * 120.0 + 2.0 * rows) * 96.0);
    found.assert_page(&["Gather", "Rows of each expert", "Padding"]);
}

#[test]
fn dense_products_are_timed_by_format() {
    let shape = ["-D", "512", "-N", "96", "--pool", "1", "--device", "cpu"];
    let found = written(&[&["dense", "-T", "3"], &shape[..]].concat());
    let formats =
        ["F32", "BF16", "Q8_0", "Q4_0", "Q5_0", "IQ4_NL", "IQ4_XS", "Q2_0", "IQ3_S", "Q3_K", "Q4_K", "Q5_K", "Q6_K"];
    assert_eq!(found.records(), formats.map(|format| (3, "dense", format)));
    found.assert_page(&["3 rows of activations", "Roofline"]);
    let found = written(&[&["dense", "-T", "1,2", "--formats", "mxfp4,IQ2_XS"], &shape[..]].concat());
    assert_eq!(
        found.records().iter().map(|record| (record.0, record.2)).collect::<Vec<_>>(),
        [(1, "MXFP4"), (2, "MXFP4"), (1, "IQ2_XS"), (2, "IQ2_XS")]
    );
}

#[test]
fn a_recorded_routing_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (ids, profile) = (dir.path().join("ids.npy"), dir.path().join("profile.json"));
    let prompt = "Once upon a time there was a bench that wanted to know where every token went.";
    let run = ["run", "-p", prompt, "-n", "1", "-t", "1", "--device", "cpu", "--temp", "0"];
    let found = output(&[&run[..], &["--record-routing", text(&ids), "--profile", text(&profile)]].concat());
    stdout(&found);
    let profile: Value = serde_json::from_slice(&fs::read(&profile).unwrap()).unwrap();
    let replayed = written(&["plan", "--routing", text(&ids), "--experts", "64", "--device", "cpu"]);
    // Same loads of every expert in every layer, same rows in the first layer's plan.
    assert_eq!(replayed.json["loads"], profile["loads"]);
    assert_eq!(replayed.json["plans"][0], profile["plans"][0][1]);
    assert_eq!(replayed.json["plans"][0]["tokens"], profile["tokens"]);

    let fails = |args: &[&str], parts: &[&str]| {
        assert_fails(&output(&[&["bench", "plan", "--device", "cpu"], args].concat()), 2, parts);
    };
    fails(&["--routing", text(&ids)], &["--experts"]);
    fails(&["--routing", text(&ids), "--experts", "9"], &["--routing", "expert"]);
    fails(&["--routing", text(&ids), "--experts", "64", "--topk", "3"], &["--topk is 3"]);
    fails(&["--routing", text(&ids), "--experts", "64", "-T", "4096"], &["--tokens is 4096"]);
    fails(&["--routing", text(&dir.path().join("none.npy")), "--experts", "64"], &["none.npy"]);
    fs::write(&ids, b"not an array").unwrap();
    fails(&["--routing", text(&ids), "--experts", "64"], &["ids.npy", "not a .npy file"]);
}

#[test]
fn what_cannot_be_measured_is_refused_in_one_line() {
    let cases: [(&str, &str); 24] = [
        ("plan -T 0", "--tokens is 0"),
        ("plan -T 99999999999", "--tokens is 99999999999"),
        ("plan -T 5,x", "--tokens"),
        ("plan --experts 0", "--experts is 0"),
        ("plan --topk 0", "--topk is 0"),
        ("plan --topk 600", "--topk is 600; it must be from 1 to 512"),
        ("plan --experts 65536 --topk 60000 -T 1048576", "does not fit 31 bits"),
        ("plan --layers 0", "--layers is 0"),
        ("plan -r 0", "--repetitions is 0"),
        ("plan --routing zipf:x", "--routing zipf:x: the exponent"),
        ("plan --routing zipff", "--routing zipff (not uniform, zipf or zipf:S, so a file)"),
        ("plan --json -", "-: not standard output but a file"),
        ("plan --routing zipf:-1", "--routing zipf:-1"),
        ("plan --routing zipf:NaN", "--routing zipf:NaN"),
        ("plan -T 1 --html /nowhere/at/all.html", "/nowhere/at/all.html"),
        ("moe --gu FOO", "--gu is FOO"),
        ("moe --gu I32", "--gu is I32"),
        ("moe --dn Q4_K", "--dn Q4_K: rows of 640 weights"),
        ("moe -D 100", "--gu IQ2_XS: rows of 100 weights"),
        ("moe -D 0", "--hidden is 0"),
        ("moe --experts 65536 -F 1048576 -D 1048576", "of memory"),
        ("moe --precision bf16", "--precision"),
        ("dense --formats Q4_K -D 100", "--formats Q4_K"),
        ("dense -T 1048576 -D 1048576", "of memory"),
    ];
    for (line, part) in cases {
        let device = if line.contains("--device") { "" } else { " --device cpu" };
        let line = format!("bench {line}{device}");
        let args: Vec<&str> = line.split(' ').collect();
        assert_fails(&output(&args), 2, &[part]);
    }
    assert_eq!(output(&["bench"]).status.code(), Some(2), "the help, and that something is missing");
}

/// Starts the bench, waits for the first row of its table, sends the signal, and returns how it ended with its JSON.
#[cfg(unix)]
fn interrupted(args: &[&str], signal: &str) -> (std::process::Output, Value, String) {
    let dir = tempfile::tempdir().unwrap();
    let [json, csv, html] = ["a.json", "a.csv", "a.html"].map(|name| dir.path().join(name));
    let files = ["--json", text(&json), "--csv", text(&csv), "--html", text(&html)];
    let mut child = crate::argon(&[&["bench"], args, &files].concat()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        assert!(out.read_line(&mut String::new()).unwrap() > 0, "a header of two lines, and a row");
    }
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
    let found = child.wait_with_output().unwrap();
    let html = fs::read_to_string(html).unwrap();
    assert_sound(&html);
    assert!(html.contains("interrupted: not everything was measured"), "{html}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no part is left");
    assert_eq!(found.status.code(), Some(130), "{}", crate::stderr(&found));
    assert!(crate::stderr(&found).contains("interrupted"), "{}", crate::stderr(&found));
    let json = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    (found, json, fs::read_to_string(csv).unwrap())
}

/// Whether a process that is started here ends when its terminal goes away: not if this one runs under `nohup`.
#[cfg(unix)]
fn hang_ups_are_heeded() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let heeded = ignored.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 0));
    if !heeded {
        println!("skipped: SIGHUP, which is ignored here");
    }
    heeded
}

#[cfg(unix)]
#[test]
fn an_interrupted_bench_keeps_what_it_has() {
    // One row at once, then hours.
    let dense = ["dense", "-T", "1,4096", "--formats", "F32", "-D", "512", "-r", "2000", "--pool", "1"];
    let signals = if hang_ups_are_heeded() { &["-TERM", "-HUP"][..] } else { &["-TERM"] };
    for signal in signals {
        let (_, json, csv) = interrupted(&dense, signal);
        assert_eq!((&json["ended"], json["records"].as_array().unwrap().len()), (&"interrupted".into(), 1));
        assert!(csv.lines().count() == 2 && csv.ends_with(",interrupted\n"), "{csv}");
    }
    let model = ["model", "-p", "1,2000", "-n", "0", "-r", "200"];
    let (_, json, csv) = interrupted(&model, "-INT");
    assert_eq!((&json[0]["ended"], &json[0]["test"]), (&"interrupted".into(), &"pp1".into()));
    assert_eq!(json[0]["seconds"].as_array().unwrap().len(), 200);
    assert!(json.as_array().unwrap().len() <= 2 && csv.lines().count() <= 3, "{csv}");
}

#[test]
fn a_bench_that_fails_on_its_way_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let [json, csv, html] = ["a.json", "a.csv", "a.html"].map(|name| dir.path().join(name));
    let files = ["--json", text(&json), "--csv", text(&csv), "--html", text(&html)];
    // Half a terabyte of keys and values.
    let found = output(&[&["bench", "model", "-p", "1,2147483647", "-n", "0", "-r", "1"], &files[..]].concat());
    assert_fails(&found, 2, &["pp2147483647", "out of memory"]);
    let json: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(
        (json.as_array().unwrap().len(), &json[0]["test"], &json[0]["ended"]),
        (1, &"pp1".into(), &"failed".into())
    );
    let csv = fs::read_to_string(csv).unwrap();
    assert!(csv.lines().count() == 2 && csv.ends_with(",failed\n"), "{csv}");
    let html = fs::read_to_string(html).unwrap();
    assert_sound(&html);
    assert!(html.contains("out of memory"), "{html}");
}
