//! `argon run --session`.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::{SETS_BOS, assert_fails, fixture, output, stderr, stdout, text, with_keys};

const PROMPT: &str = "Returns the number of elements in the";

fn run(file: &Path, args: &[&str]) -> Output {
    output(&[&["run", "--session", text(file), "--temp", "0"], args].concat())
}

#[test]
fn a_run_goes_on_where_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.session");
    let whole = output(&["run", "--temp", "0", "-n", "12", "-p", PROMPT]);
    let parts = [&["-n", "5", "-p", PROMPT][..], &["-n", "0"], &["-n", "7"]].map(|args| run(&file, args));
    let told =
        parts.each_ref().map(|part| stderr(part).lines().find_map(|line| line.strip_prefix("session: ")).unwrap());
    assert_eq!(told[0], format!("new, in {}", file.display()));
    assert!(told[1].ends_with(&format!(" tokens from {}", file.display())), "{told:?}");
    let said: String = parts.iter().map(|part| stdout(part).strip_suffix('\n').unwrap()).collect();
    assert_eq!(said + "\n", stdout(&whole));
}

#[test]
fn a_prompt_comes_behind_what_was_said() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.session");
    let model = dir.path().join("bos.gguf");
    with_keys(&fixture("mixtral.gguf"), &SETS_BOS, &model);
    let exact = ["-m", text(&model), "--precision", "f32", "-ctk", "f32", "-ctv", "f32"];
    let first = run(&file, &[&exact[..], &["-n", "0", "-p", "hello"]].concat());
    assert_eq!(stdout(&first), "\n");
    let behind = run(&file, &[&exact[..], &["-n", "8", "-p", "\nthere"]].concat());
    let at_once = [&["run", "--temp", "0"], &exact[..], &["-n", "8", "-p", "hello\nthere"]].concat();
    assert_eq!(stdout(&behind), stdout(&output(&at_once)));
}

#[test]
fn another_model_precision_or_file_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.session");
    stdout(&run(&file, &["-n", "2", "-p", PROMPT]));
    let saved = fs::read(&file).unwrap();
    let other = fixture("qwen3moe.gguf");
    assert_fails(&run(&file, &["-m", text(&other)]), 2, &[text(&file), "qwen4exp", "qwen3moe"]);
    let refused = run(&file, &["--precision", "f32"]);
    assert_fails(&refused, 2, &[text(&file), "precision"]);
    assert!(!stderr(&refused).contains("\nsession: "), "a session that is not used is not told: {}", stderr(&refused));
    assert_fails(&run(&file, &["-c", "4"]), 2, &["the saved session", "room for 4:"]);
    assert_fails(&run(&file, &["--chat"]), 2, &[text(&file), "no chat"]);
    assert_eq!(fs::read(&file).unwrap(), saved);
    let line = saved.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    let old = b"{\"argon_session\": 1, \"tokens\": 0, \"pending\": [], \"messages\": null}\n";
    for (bytes, part) in [
        (&b""[..], "not a session"),
        (b"once upon a time", "not a session"),
        (old, "version 1; this program reads version 2"),
        (&saved[..line - 1], "cut off"),
        (&saved[..line], "cut off"),
        (&saved[..line + 7], "cut off"),
        (&saved[..line + 8], "not a saved session"),
        (&saved[..saved.len() - 1], "checksum"),
        (&[&saved[..], b"x"].concat(), "something follows its end"),
    ] {
        fs::write(&file, bytes).unwrap();
        assert_fails(&run(&file, &[]), 2, &[part]);
        assert_eq!(fs::read(&file).unwrap(), bytes);
    }
    // Every byte of the line and its checksum, and some of the rest.
    for at in (0..line + 8).chain((line + 8..saved.len()).step_by(saved.len() / 40)) {
        let mut spoilt = saved.clone();
        spoilt[at] ^= 1;
        fs::write(&file, spoilt).unwrap();
        assert_fails(&run(&file, &[]), 2, &[text(&file)]);
    }
    assert_fails(&run(&dir.path().join("no/such.session"), &["-p", PROMPT]), 2, &["no/such.session"]);
    assert_fails(&run(dir.path(), &["-p", PROMPT]), 2, &[text(dir.path()), "not a regular file"]);
}
