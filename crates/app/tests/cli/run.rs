//! `argon run`.

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;

use crate::{argon, assert_fails, embedded, output, output_of, stderr, stdout, text};

const PROMPT: &str = "Returns the number of elements in the";

/// Flags of a short answer that is the same every time.
const SHORT: [&str; 4] = ["-n", "8", "--temp", "0"];

fn run(args: &[&str]) -> std::process::Output {
    output(&[&["run"], &SHORT[..], args].concat())
}

#[test]
fn a_greedy_answer_is_the_same_every_time() {
    let first = run(&["-p", PROMPT]);
    assert!(stdout(&first).trim().len() > 8, "{first:?}");
    assert!(stdout(&first).ends_with('\n'));
    for args in [&["-t", "1"][..], &["-ub", "3"], &["-ctk", "f32", "-ctv", "f32"], &["-c", "0"], &["--device", "cpu"]] {
        assert_eq!(stdout(&run(&[args, &["-p", PROMPT]].concat())), stdout(&first), "{args:?}");
    }
}

#[test]
fn no_command_means_run() {
    let named = run(&["-p", PROMPT]);
    assert_eq!(stdout(&output(&[&SHORT[..], &["-p", PROMPT]].concat())), stdout(&named));
}

#[test]
fn a_prompt_comes_from_a_flag_a_file_or_standard_input() {
    let expected = run(&["-p", PROMPT]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompt.txt");
    fs::write(&file, format!("{PROMPT}\n")).unwrap();
    assert_eq!(stdout(&run(&["-f", text(&file)])), stdout(&expected));
    let piped = output_of(&[&["run"], &SHORT[..]].concat(), PROMPT.as_bytes());
    assert_eq!(stdout(&piped), stdout(&expected));
    let piped = output_of(&[&["run"], &SHORT[..], &["-f", "-"]].concat(), PROMPT.as_bytes());
    assert_eq!(stdout(&piped), stdout(&expected));
}

#[test]
fn a_model_file_is_run_as_the_same_model_inside_the_binary() {
    assert_eq!(stdout(&run(&["-m", text(&embedded()), "-p", PROMPT])), stdout(&run(&["-p", PROMPT])));
}

/// The example, its seed and how to sample stand in the file: models/README.md.
#[test]
fn nothing_at_all_continues_the_files_example_as_the_file_says() {
    const EXAMPLE: &str = "In this chapter, we will look at how a program uses memory.";
    const SAID: [&str; 14] = [
        "-s",
        "5",
        "--temp",
        "0.6",
        "--top-k",
        "40",
        "--top-p",
        "0.95",
        "--min-p",
        "0.05",
        "--repeat-penalty",
        "1.1",
        "--repeat-last-n",
        "64",
    ];
    let found = output(&["-n", "48"]);
    assert!(stdout(&found).trim().len() > 48, "{found:?}");
    assert!(stderr(&found).contains(EXAMPLE), "{}", stderr(&found));
    let said = |more: &[&str]| output(&[&["-n", "48", "-p", EXAMPLE], &SAID[..], more].concat());
    assert_eq!(stdout(&said(&[])), stdout(&found));
    assert_ne!(stdout(&output(&["-n", "48", "-s", "6"])), stdout(&found));
}

/// Something that started the process may have left a pipe open that nobody writes to.
#[test]
fn a_silent_standard_input_does_not_hang_the_example() {
    let mut child = argon(&SHORT).stdin(Stdio::piped()).spawn().unwrap();
    let silent = child.stdin.take();
    let found = child.wait_with_output().unwrap();
    drop(silent);
    assert_eq!(stdout(&found), stdout(&output(&SHORT)));
}

#[test]
fn speeds_are_told_on_standard_error() {
    let found = run(&["-p", PROMPT]);
    let line = |name: &str| stderr(&found).lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("prefill").contains("tokens/s"));
    assert!(line("generate").starts_with("generate  8 tokens, those after the first in "));
    assert!(line("generate").ends_with("tokens/s"));
    assert_eq!(line("stopped"), "stopped at the limit of 8 tokens (-n)");
    assert!(line("load").ends_with(" s"));
    // No terminal, no bar.
    assert!(!stderr(&found).contains('\r') && !stderr(&found).contains('\x1b'));
}

#[test]
fn a_seed_repeats_a_random_answer() {
    let draw = |seed| output(&["run", "-n", "24", "--temp", "1.5", "-s", seed, "-p", PROMPT]);
    assert_eq!(stdout(&draw("7")), stdout(&draw("7")));
    assert_ne!(stdout(&draw("7")), stdout(&draw("8")));
}

#[test]
fn no_tokens_are_generated_where_none_are_wanted() {
    let found = output(&["run", "-n", "0", "-p", PROMPT]);
    assert_eq!(stdout(&found), "\n");
    assert!(stderr(&found).ends_with("\ngenerate  0 tokens\n") && !stderr(&found).contains("limit"), "{found:?}");
    let one = output(&["run", "-n", "1", "-p", PROMPT]);
    assert!(stderr(&one).contains("limit of 1 token (-n)\n"), "{one:?}");
    assert!(stderr(&one).ends_with("\ngenerate  1 token\n"), "{one:?}");
}

#[test]
fn the_answer_ends_where_the_context_does() {
    let found = output(&["run", "-n", "-1", "--ignore-eos", "--temp", "0", "-c", "24", "-p", PROMPT]);
    assert!(!stdout(&found).is_empty());
    assert!(stderr(&found).contains("context of 24 tokens is full (-c)"), "{}", stderr(&found));
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_numbers() {
    let long = "a b c d ".repeat(2000);
    assert_fails(&run(&["-c", "4", "-p", PROMPT]), 2, &["tokens", "room for 4: -c makes it larger"]);
    let trained = "room for 4096: what the model was trained for; a larger -c goes beyond it";
    assert_fails(&output_of(&["run", "-f", "-"], long.as_bytes()), 2, &["the prompt has ", trained]);
    let ids = vec!["1"; 4097].join(",");
    assert_fails(&output(&["logits", "-o", "-", "--tokens", &ids]), 2, &["the prompt has 4097 tokens", trained]);
    let short = ["logits", "-o", "-", "--tokens", "1,2", "-c", "1"];
    assert_fails(&output(&short), 2, &["room for 1: -c makes it larger"]);
}

#[test]
fn an_empty_prompt_is_refused() {
    assert_fails(&run(&["-p", ""]), 2, &["the prompt is empty"]);
    assert_fails(&run(&["-f", "-"]), 2, &["the prompt is empty"]);
    assert_fails(&output_of(&SHORT, b""), 2, &["the prompt is empty"]);
    // Nobody meant the null device to be a prompt.
    assert!(stderr(&run(&[])).contains("no prompt given; continuing the model's own example"));
}

/// A pipe that is silent is not waited for, and of an empty one there is nothing to say.
#[cfg(unix)]
#[test]
fn a_pipe_beside_a_prompt_is_told_to_be_unread() {
    let told = |args: &[&str], bytes: &[u8]| {
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(bytes).unwrap();
        let found = argon(&[&["run", "-n", "1"], args].concat()).stdin(read).output().unwrap();
        drop(write);
        assert_eq!(found.status.code(), Some(0), "{}", stderr(&found));
        stderr(&found).lines().find(|line| line.starts_with("note: ")).map(str::to_owned)
    };
    assert!(told(&["-p", PROMPT], b"1\n2\n").unwrap().contains("piped in is not read, -p gives the prompt"));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(told(&["-f", file], b"1").unwrap().contains("-f gives the prompt"));
    assert_eq!(told(&["-p", PROMPT], b""), None);
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let args = ["run", "-n", "-1", "--ignore-eos", "-c", "2000", "-p", PROMPT];
    let mut child = argon(&args).spawn().unwrap();
    let mut some = [0; 4];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let found = child.wait_with_output().unwrap();
    assert_eq!(found.status.code(), Some(0), "{}", stderr(&found));
    assert!(!stderr(&found).contains("error") && !stderr(&found).contains("panicked"), "{}", stderr(&found));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_run_with_its_timings() {
    let args = ["run", "-n", "-1", "--ignore-eos", "-c", "100000", "-p", PROMPT];
    let mut child = argon(&args).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 4]).unwrap();
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap(); // whole characters to the end
    assert!(rest.ends_with('\n'));
    let found = child.wait_with_output().unwrap();
    assert_eq!(found.status.code(), Some(130), "{}", stderr(&found));
    assert!(stderr(&found).contains("\ngenerate  "), "{}", stderr(&found));
}

#[test]
fn a_context_that_no_memory_holds_is_told_by_its_flag() {
    let found = output(&["run", "-p", "a", "-n", "1", "-c", "2000000000"]);
    assert_fails(&found, 2, &["a session of 2000000000 tokens (--ctx-size)", "out of memory"]);
}
