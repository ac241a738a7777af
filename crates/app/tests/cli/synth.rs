//! `argon synth`.

use std::fs;

use argon_gguf::{Format, Gguf};

use crate::{assert_fails, output, stderr, stdout, text};

/// A shell's limit to the size of files is an error like a full disk, and leaves nothing behind.
#[cfg(unix)]
#[test]
fn a_file_longer_than_allowed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long.gguf");
    let command = "ulimit -f 8; exec \"$0\" synth --preset tiny -o \"$1\"";
    let arguments = ["-c", command, env!("CARGO_BIN_EXE_argon"), text(&path)];
    let found = std::process::Command::new("sh").args(arguments).output().unwrap();
    assert_fails(&found, 1, &["long.gguf", "File too large"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_is_written_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tiny.gguf");
    let made = output(&["synth", "--preset", "tiny", "--layers", "5", "--experts", "6", "-o", text(&file)]);
    assert_eq!(stdout(&made), "");
    let gguf = Gguf::open(&file).unwrap();
    assert_eq!(gguf.metadata().require_u32("qwen4exp.block_count"), Ok(5));
    let expert = gguf.tensor("blk.3.ffn_gate_exps.weight").unwrap();
    assert_eq!((&expert.shape[..], expert.format), (&[256, 64, 6][..], Format::IQ2_XS));
    let ran = output(&["run", "-m", text(&file), "-p", "fn main() {", "-n", "4", "--ignore-eos"]);
    assert!(!stdout(&ran).is_empty());
    assert!(!stderr(&ran).contains("warning"), "{}", stderr(&ran));
}

/// Some petabytes.
#[cfg(unix)]
#[test]
fn a_file_that_the_disk_has_no_room_for_is_not_begun() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("big.gguf");
    let big = ["--layers", "1024", "--experts", "65536", "--expert-width", "65536"];
    let found = output(&[&["synth", "--preset", "qwen3.8-flash-next", "-o", text(&file)], &big[..]].concat());
    assert_fails(&found, 2, &[text(&file), "it takes ", "there is room for "]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Fewer layers than from one attention to the next: the last one has it, for other programs load no model without.
#[test]
fn a_model_of_one_layer_runs() {
    let dir = tempfile::tempdir().unwrap();
    for layers in ["1", "2", "3"] {
        let file = dir.path().join(layers);
        stdout(&output(&["synth", "--preset", "tiny", "--layers", layers, "-o", text(&file)]));
        let gguf = Gguf::open(&file).unwrap();
        let mut names = gguf.tensors().iter().map(|tensor| tensor.name.as_str());
        assert!(names.any(|name| name.ends_with("attn_k.weight")));
        assert!(!stdout(&output(&["run", "-m", text(&file), "-p", "fn", "-n", "2", "--ignore-eos"])).is_empty());
    }
}

/// The file that times a layer in other engines, which know its architecture.
#[test]
fn the_experts_alone_run_in_any_width() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("layer.gguf");
    let args = ["synth", "--preset", "moe-layer", "--experts", "16", "--expert-width", "256", "--types", "down=q6_k"];
    stdout(&output(&[&args[..], &["-o", text(&file)]].concat()));
    let gguf = Gguf::open(&file).unwrap();
    assert_eq!(gguf.metadata().require_u32("qwen3moe.expert_used_count"), Ok(10));
    let down = gguf.tensor("blk.0.ffn_down_exps.weight").unwrap();
    assert_eq!((&down.shape[..], down.format), (&[256, 2560, 16][..], Format::Q6_K));
    assert!(!stdout(&output(&["run", "-m", text(&file), "-p", "fn", "-n", "2", "--ignore-eos"])).is_empty());
}

#[test]
fn a_file_that_is_there_stays_unless_forced() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("precious");
    fs::write(&file, "precious").unwrap();
    let args = ["synth", "--preset", "tiny", "-o", text(&file)];
    assert_fails(&output(&args), 2, &["precious exists", "--force"]);
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    stdout(&output(&[&args[..], &["--force"]].concat()));
    assert!(Gguf::open(&file).is_ok());
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.gguf");
    let args = ["synth", "--preset", "tiny", "-o", text(&file)];
    assert_fails(&output(&[&args[..], &["--types", "down=q4_k"]].concat()), 2, &["blk.0.ffn_down_exps.weight", "64"]);
    assert_fails(&output(&[&args[..], &["--types", "down"]].concat()), 2, &["--types down"]);
    assert_eq!(output(&[&args[..], &["--vocab", "10"]].concat()).status.code(), Some(2));
    assert_eq!(output(&[&args[..], &["--preset", "no-such"]].concat()).status.code(), Some(2));
    assert!(!file.exists());
    let nowhere = dir.path().join("no/x.gguf");
    assert_fails(&output(&["synth", "--preset", "tiny", "-o", text(&nowhere)]), 2, &[text(&nowhere)]);
    // A directory is no file, and stays.
    assert_fails(&output(&["synth", "--preset", "tiny", "--force", "-o", text(dir.path())]), 2, &[]);
    assert!(dir.path().is_dir());
}

/// One Ctrl-C asks it to stop, two at once end it; SIGTERM does as Ctrl-C.
#[cfg(unix)]
#[test]
fn ctrl_c_leaves_nothing_behind() {
    for signals in [&["-INT"][..], &["-INT", "-INT"], &["-TERM"], &["-INT", "-TERM"]] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("large.gguf");
        // Takes seconds to write.
        let args =
            ["synth", "--preset", "qwen3.8-flash-next", "--layers", "1", "--ple-rows", "1024", "-o", text(&file)];
        let mut child = crate::argon(&args).spawn().unwrap();
        while fs::read_dir(dir.path()).unwrap().count() == 0 {
            assert_eq!(child.try_wait().unwrap(), None);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let pid = child.id().to_string();
        for signal in signals {
            assert!(std::process::Command::new("kill").args([signal, pid.as_str()]).status().unwrap().success());
        }
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[cfg(unix)]
#[test]
fn a_device_is_not_written_to_and_stays() {
    assert_fails(&output(&["synth", "--preset", "tiny", "--force", "-o", "/dev/null"]), 2, &["not a regular file"]);
    assert!(fs::metadata("/dev/null").is_ok());
}

#[test]
fn a_size_can_be_asked_for_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tiny.gguf");
    for args in [&["--dry-run"][..], &["--dry-run", "-o", text(&file)]] {
        let found = output(&[&["synth", "--preset", "qwen3-30b-a3b", "--layers", "2"], args].concat());
        assert_eq!(stdout(&found), "");
        let said = stderr(&found);
        assert!(said.starts_with("nothing is written: ") && said.contains(" GB\n"), "{said}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_fails(&output(&["synth", "--preset", "tiny"]), 2, &["required arguments"]);
    assert_fails(&output(&["synth", "--preset", "tiny", "-o", "-"]), 2, &["-: not standard output but a file"]);
}
