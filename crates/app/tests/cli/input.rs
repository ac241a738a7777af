//! Input that cannot be used: one clear line, exit code 2, whatever the command.

use std::fs;

use argon_gguf::{Format, Gguf};

use crate::{argon, assert_fails, embedded, output, stderr, stdout, text};

#[test]
fn values_out_of_range_name_the_flag() {
    for (args, flag) in [
        (["--temp", "-1"], "--temp"),
        (["--temp", "nan"], "--temp"),
        (["--temp", "inf"], "--temp"),
        (["--top-p", "1.5"], "--top-p"),
        (["--min-p", "-0.5"], "--min-p"),
        (["--repeat-penalty", "0"], "--repeat-penalty"),
        (["--repeat-last-n", "-2"], "--repeat-last-n"),
        (["--seed", "-2"], "--seed"),
        (["-n", "-2"], "--predict"),
        (["-ub", "0"], "--ubatch-size"),
        (["-ctk", "q8_0"], "--cache-type-k"),
        (["-ctv", ""], "--cache-type-v"),
        (["-t", "0"], "--threads"),
        (["--device", "abacus"], "--device"),
        (["--device", "cpu:0"], "--device"),
        (["--device", "cuda:"], "--device"),
        (["--device", "cuda:+1"], "--device"),
        (["--device", "cuda:99999999999999999999"], "--device"),
        (["--precision", "f64"], "--precision"),
        (["-c", "99999999999"], "--ctx-size"),
    ] {
        assert_fails(&output(&["run", "-p", "a", args[0], args[1]]), 2, &[flag]);
    }
}

#[test]
fn values_of_the_wrong_kind_name_the_flag() {
    for args in [["-n", "many"], ["-c", "-5"], ["--top-k", "1.5"], ["-ub", "18446744073709551616"], ["--nonsense", "1"]]
    {
        assert_fails(&output(&["run", "-p", "a", args[0], args[1]]), 2, &["'"]);
    }
    assert_fails(&output(&["frobnicate"]), 2, &["frobnicate"]);
    assert_fails(&output(&["run", "-p", "a", "-f", "b"]), 2, &["--prompt", "--file"]);
    assert_fails(&output(&["logits", "--tokens", "1"]), 2, &["required"]);
}

#[test]
fn what_one_types_into_llama_cpp_gets_a_line_that_says_what_to_do() {
    let lines: [(&[&str], &[&str]); 8] = [
        (&["run", "-p", "x", "-ngl", "99"], &["-ngl: ", "--device cuda"]),
        (&["run", "-hfr", "x", "-p", "y"], &["-hfr: ", "-m FILE"]),
        (&["-m", "x.gguf", "-cnv"], &["-cnv: ", "--chat"]),
        (&["bench", "model", "-b", "512"], &["-b: ", "-ub"]),
        (&["model.gguf"], &["model.gguf: ", "argon run -m model.gguf"]),
        (&["run", "Model.GGUF"], &["argon run -m Model.GGUF"]),
        (&["chat", "-m", "model.gguf"], &["no command chat", "argon run --chat"]),
        (&["serve"], &["no command serve", "no server"]),
    ];
    for (args, parts) in lines {
        let found = output(args);
        assert_fails(&found, 2, parts);
        assert_eq!(stderr(&found).lines().count(), 1, "{}", stderr(&found));
    }
    for args in [["-t", "-1"], ["-c", "-1"], ["-ub", "-1"]] {
        assert_fails(&output(&["run", "-p", "a", args[0], args[1]]), 2, &["-1", "one whole number from "]);
    }
}

#[test]
fn names_are_taken_in_any_case_and_as_llama_cpp_spells_them() {
    let run = |args: &[&str]| output(&[&["run", "-p", "a", "-n", "4", "--temp", "0"], args].concat());
    let spelled = run(&["--device", "cpu", "--precision", "f16", "-ctk", "f32"]);
    assert_eq!(stdout(&run(&["--device", "CPU", "--precision", "F16", "-ctk=F32"])), stdout(&spelled));
    // Whether it is here or not.
    let found = run(&["--device", "CUDA0"]);
    assert!(stderr(&found).contains("cuda:0"), "{}", stderr(&found));
}

#[test]
fn an_expert_that_is_no_number_is_named() {
    let gguf = Gguf::open(embedded()).unwrap();
    let mut bytes = fs::read(embedded()).unwrap();
    // Whichever experts a prompt needs: all of one tensor.
    let down = gguf.tensor("blk.2.ffn_down_exps.weight").unwrap();
    assert_eq!(down.format, Format::IQ4_NL);
    for block in bytes[down.offset as usize..][..down.bytes].chunks_exact_mut(down.format.block_bytes()) {
        block[..2].copy_from_slice(&0x7e00u16.to_le_bytes());
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.gguf");
    fs::write(&path, bytes).unwrap();
    let expected = ["layer 2, expert ", "blk.2.ffn_down_exps.weight"];
    assert_fails(&output(&["run", "-m", text(&path), "-p", "fn main() {"]), 2, &expected);
    // What looks at no weights does not mind.
    assert_eq!(output(&["inspect", text(&path)]).status.code(), Some(0));
}

/// Where only a generated token wants the expert: the text so far has a line of its own.
#[test]
fn a_run_that_fails_while_it_writes_ends_its_line() {
    let gguf = Gguf::open(embedded()).unwrap();
    let good = fs::read(embedded()).unwrap();
    let down = gguf.tensor("blk.2.ffn_down_exps.weight").unwrap();
    let experts = down.shape[2];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.gguf");
    let fails_late = (0..experts).find_map(|expert| {
        let mut bytes = good.clone();
        let length = down.bytes / experts;
        let data = &mut bytes[down.offset as usize + expert * length..][..length];
        for block in data.chunks_exact_mut(down.format.block_bytes()) {
            block[..2].copy_from_slice(&0x7e00u16.to_le_bytes());
        }
        fs::write(&path, bytes).unwrap();
        let found = output(&["run", "-m", text(&path), "-p", "fn", "-n", "24", "--temp", "0"]);
        (!found.status.success() && !found.stdout.is_empty()).then_some(found)
    });
    let found = fails_late.unwrap();
    assert_fails(&found, 2, &["generation: layer 2, expert "]);
    assert!(found.stdout.len() > 1 && found.stdout.ends_with(b"\n"), "{found:?}");
}

/// Whatever the path looks like.
#[cfg(unix)]
#[test]
fn an_output_never_writes_over_another_file_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (model, link, prompt, ids) = (path("m.gguf"), path("link"), path("prompt.txt"), path("ids.json"));
    fs::copy(embedded(), &model).unwrap();
    std::os::unix::fs::symlink(&model, &link).unwrap();
    fs::write(&prompt, "fn main").unwrap();
    fs::write(&ids, "[1, 2]").unwrap();
    let before = fs::read(&model).unwrap();
    let (out, twice) = (path("out"), dir.path().join(".").join("out"));
    let lines: [(&[&str], &str, &str); 9] = [
        (&["bench", "model", "--json", text(&out), "--csv", text(&twice)], "--csv", "--json"),
        (&["bench", "model", "-m", text(&model), "--html", text(&model)], "--html", "the model"),
        (
            &["run", "-p", "a", "--profile", text(&out), "--record-routing", text(&twice)],
            "--record-routing",
            "--profile",
        ),
        (&["run", "-p", "a", "--session", text(&out), "--profile", text(&out)], "--profile", "--session"),
        (&["run", "-p", "a", "-m", text(&model), "--profile", text(&link)], "--profile", "the model"),
        (&["run", "-f", text(&prompt), "--record-routing", text(&prompt)], "--record-routing", "the prompt"),
        (&["logits", "-p", "a", "-m", text(&link), "-o", text(&model)], "-o", "the model"),
        (&["logits", "-f", text(&prompt), "-o", text(&prompt)], "-o", "the prompt"),
        (&["logits", "--tokens-file", text(&ids), "-o", text(&ids)], "-o", "the prompt"),
    ];
    for (args, output_flag, other) in lines {
        assert_fails(&output(args), 2, &[&format!("{output_flag} would write over {other}, the same file")]);
        assert!(!out.exists());
    }
    assert_eq!((fs::read(&model).unwrap(), fs::read(&prompt).unwrap()), (before, b"fn main".to_vec()));
    // A device holds nothing that could be lost.
    let both = ["run", "-p", "a", "-n", "1", "--profile", "/dev/null", "--record-routing", "/dev/null"];
    assert_eq!(output(&both).status.code(), Some(0));
    for args in [&["run", "-p", "a", "--profile"][..], &["logits", "-p", "a", "-o"], &["run", "-p", "a", "--session"]] {
        assert_fails(&output(&[args, &[text(dir.path())]].concat()), 2, &[text(dir.path())]);
    }
}

/// Whoever reads standard error has left, or has no room: the work is done nevertheless, and the exit code says how it ended.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_said_ends_no_work() {
    let silent = |args: &[&str]| {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        argon(args).stderr(full).output().unwrap()
    };
    let args = ["run", "-p", "fn", "-n", "8", "--temp", "0"];
    assert_eq!(stdout(&silent(&args)), stdout(&output(&args)));
    assert_eq!(silent(&["run", "-m", "no/such.gguf"]).status.code(), Some(2));
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE-APACHE");
    assert!(stdout(&silent(&["perplexity", "-f", text, "-c", "64", "--chunks", "2"])).starts_with("Final estimate"));
}

/// A device that is always full.
#[cfg(target_os = "linux")]
#[test]
fn an_output_without_room_is_named() {
    for args in [&["run", "-p", "a", "-n", "1", "--profile"][..], &["logits", "-p", "a", "-o"]] {
        assert_fails(&output(&[args, &["/dev/full"]].concat()), 1, &["/dev/full", "No space left"]);
    }
}

#[test]
fn a_missing_file_is_named() {
    let commands: [&[&str]; 4] = [
        &["run", "-p", "a", "-m", "no/such.gguf"],
        &["run", "-f", "no/such.gguf"],
        &["inspect", "no/such.gguf"],
        &["logits", "-o", "x.npy", "--tokens-file", "no/such.gguf"],
    ];
    for args in commands {
        assert_fails(&output(args), 2, &["no/such.gguf"]);
    }
}

#[test]
fn a_malformed_model_is_named_with_its_fault() {
    let dir = tempfile::tempdir().unwrap();
    let model = fs::read(embedded()).unwrap();
    let path = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let files = [
        (path("empty.gguf", b""), "empty"),
        (path("text.gguf", b"once upon a time"), "not a GGUF file"),
        (path("header.gguf", &model[..1000]), "header.gguf"),
        (path("data.gguf", &model[..model.len() / 2]), "cut off"),
        (dir.path().to_owned(), "not a regular file"),
    ];
    for (file, fault) in &files {
        for args in [&["run", "-p", "a", "-m"][..], &["inspect"], &["logits", "--tokens", "1", "-o", "x.npy", "-m"]] {
            assert_fails(&output(&[args, &[text(file)]].concat()), 2, &[text(file), fault]);
        }
    }
}

#[test]
fn a_prompt_that_is_no_text_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("latin1.txt");
    fs::write(&file, b"caf\xe9").unwrap();
    assert_fails(&output(&["run", "-f", text(&file)]), 2, &[text(&file), "UTF-8", "byte 3"]);
    assert_fails(&output(&["run", "-f", text(dir.path())]), 2, &[text(dir.path())]);
}

/// A device that never ends must not fill the memory.
#[cfg(unix)]
#[test]
fn an_endless_prompt_is_refused() {
    for args in [&["run", "-f"][..], &["logits", "-o", "x.npy", "--tokens-file"]] {
        assert_fails(&output(&[args, &["/dev/zero"]].concat()), 2, &["/dev/zero", "longer than 67108864 bytes"]);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [
        &["--help"][..],
        &["-h"],
        &["--version"],
        &["run", "--version"],
        &["run", "--help"],
        &["parity", "oracle", "--help"],
    ] {
        let found = output(args);
        assert_eq!(found.status.code(), Some(0), "{args:?}");
        assert!(String::from_utf8(found.stdout).unwrap().contains("argon"), "{args:?}");
    }
}
