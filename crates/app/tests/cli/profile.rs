//! `argon run --profile`: every stage is there, and they add up.

use std::fs;

use serde_json::Value;

use crate::kernels::assert_sound;
use crate::{argon, assert_fails, fixture, output, stderr, stdout, text};

#[test]
fn stages_add_up_to_the_prompt() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("profile.json");
    let prompt = "The quick brown fox jumps over the lazy dog, again and again, until it is bored.";
    for (model, shared) in [("qwen4exp_s", true), ("qwen3next", true), ("qwen3moe", false), ("mixtral", false)] {
        let model = fixture(&format!("{model}.gguf"));
        let flags = ["-n", "1", "--temp", "0", "-t", "1", "-ub", "16", "--device", "cpu"];
        let run = [&["run", "-m", text(&model), "-p", prompt], &flags[..]].concat();
        let found = output(&[&run[..], &["--profile", text(&file)]].concat());
        let plain = output(&run);
        assert_eq!(stdout(&found), stdout(&plain), "watching changes nothing");
        let profile: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let seconds = |spent: &Value| spent["seconds"].as_f64().unwrap();
        let sum = |spent: &Value| spent.as_array().unwrap().iter().map(seconds).sum::<f64>();
        let (all, stages) = (seconds(&profile), sum(&profile["stages"]));
        // Both are sums of the same numbers.
        assert!((all - stages).abs() <= 1e-9 * all, "{stages} of {all}");
        let layers = profile["layers"].as_array().unwrap();
        assert!(layers.iter().map(sum).sum::<f64>() <= all);
        for layer in layers {
            let names: Vec<&str> = layer.as_array().unwrap().iter().map(|s| s["stage"].as_str().unwrap()).collect();
            for stage in ["routing", "plan", "gate, up", "down", "combine"] {
                assert!(names.contains(&stage), "{names:?}");
            }
            assert!(names.contains(&"attention") != names.contains(&"delta net"), "{names:?}");
            assert_eq!(names.contains(&"shared expert"), shared, "{names:?}");
        }
        let tokens = profile["tokens"].as_u64().unwrap();
        for load in profile["loads"].as_array().unwrap() {
            let entries: u64 = load.as_array().unwrap().iter().map(|entries| entries.as_u64().unwrap()).sum();
            assert!(entries > 0 && entries.is_multiple_of(tokens), "K experts for each of {tokens} tokens: {entries}");
        }
        let table = stderr(&found);
        for spent in profile["stages"].as_array().unwrap() {
            let name = spent["stage"].as_str().unwrap();
            assert!(table.lines().any(|line| line.starts_with(name)), "no {name} in {table}");
        }
    }
}

#[test]
fn a_profile_is_a_page_of_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("profile.html");
    let run = ["run", "-p", "Once upon a time", "-n", "1", "-t", "1", "--device", "cpu"];
    stdout(&output(&[&run[..], &["--profile", text(&page)]].concat()));
    let html = fs::read_to_string(&page).unwrap();
    assert_sound(&html);
    for heading in ["By stage", "By layer", "Load of the experts", "Rows of each expert", "Padding"] {
        assert!(html.contains(&format!("<h2>{heading}</h2>")), "no {heading}");
    }
    let alone = output(&[&run[..], &["--profile"]].concat());
    assert!(stderr(&alone).contains("gate, up"), "{}", stderr(&alone));
    assert_fails(&output(&[&run[..], &["--profile", "/nowhere/at/all.html"]].concat()), 2, &["/nowhere/at/all.html"]);
    assert_fails(&output(&["run", "--chat", "--profile"]), 2, &["--profile"]);
    assert_fails(&output(&["run", "--profile", "page.pdf"]), 2, &["--profile is page.pdf", ".html or .json"]);
}

/// What was found out about a prompt is written whatever becomes of its continuation, and of the other files.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_costs_no_file_on_another() {
    let dir = tempfile::tempdir().unwrap();
    let (page, session) = (dir.path().join("profile.json"), dir.path().join("talk.session"));
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let run = ["run", "-p", "hello there", "-n", "2", "--profile", text(&page)];
    let found = argon(&run).stdout(full()).output().unwrap();
    assert_fails(&found, 1, &["standard output"]);
    assert!(serde_json::from_slice::<Value>(&fs::read(&page).unwrap()).is_ok());
    fs::remove_file(&page).unwrap();
    let others = ["--record-routing", "/dev/full", "--session", text(&session)];
    assert_fails(&output(&[&run[..], &others].concat()), 1, &["/dev/full"]);
    assert!(page.exists() && session.exists());
}
