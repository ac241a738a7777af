//! `--device` and `--threads`: what is chosen, what is refused, and what is said of it.

use crate::{argon, assert_fails, fixture, output, stderr, stdout, text};

/// A short answer of a small model.
fn run(args: &[&str]) -> std::process::Output {
    output(&[&["run", "-m", text(&fixture("qwen3moe.gguf")), "-p", "a b c", "-n", "2", "--temp", "0"], args].concat())
}

/// The lines on standard error that begin so.
fn lines<'a>(found: &'a std::process::Output, begin: &str) -> Vec<&'a str> {
    stderr(found).lines().filter(|line| line.starts_with(begin)).collect()
}

/// No machine has that many cards, and most have no driver.
#[test]
fn a_gpu_that_is_not_there_is_an_error_and_never_replaced() {
    for command in ["run", "perplexity", "logits"] {
        let rest: &[&str] = match command {
            "run" => &["-p", "a"],
            "perplexity" => &["-f", concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE-APACHE"), "-c", "64"],
            _ => &["--tokens", "1", "-o", "/dev/null"],
        };
        for device in ["cuda:4095", "wgpu:4095"] {
            assert_fails(&output(&[&[command, "--device", device], rest].concat()), 2, &["--device", device]);
        }
    }
    let bench = ["bench", "model", "-p", "1", "-n", "0", "-r", "1", "--device", "cuda:4095"];
    assert_fails(&output(&bench), 2, &["--device", "cuda:4095"]);
}

#[test]
fn the_processor_is_the_default_and_nothing_is_said_of_a_choice() {
    let found = run(&[]);
    assert_eq!(stdout(&found), stdout(&run(&["--device", "cpu"])));
    assert!(stderr(&found).contains("; cpu (") && lines(&found, "--device auto").is_empty(), "{}", stderr(&found));
}

#[test]
fn auto_says_once_what_it_chose_and_why() {
    let found = run(&["--device", "auto"]);
    assert!(!stdout(&found).is_empty());
    let said = lines(&found, "--device auto: ");
    assert_eq!(said.len(), 1, "{}", stderr(&found));
    // Every GPU that it did not take has a reason.
    let not = ["cuda:0", "wgpu:0"].map(|gpu| lines(&found, &format!("  {gpu}: ")).len());
    let expected = match said[0].trim_start_matches("--device auto: ") {
        "cuda:0, which passed the self-test" => [0, 0],
        "wgpu:0, which passed the self-test" => [1, 0],
        "cpu, as there is no GPU to use" => [1, 1],
        other => panic!("{other}"),
    };
    assert_eq!(not, expected, "{}", stderr(&found));
}

#[test]
fn more_threads_than_the_machine_runs_are_not_started() {
    let found = run(&["-t", "100000"]);
    assert_eq!(stdout(&found), stdout(&run(&[])));
    assert_eq!(lines(&found, "warning: --threads is 100000, ").len(), 1, "{}", stderr(&found));
}

/// Nothing of the user's environment is needed, and none of it is followed where it is not absolute.
#[test]
fn an_environment_without_anything_is_enough() {
    let mut command = argon(&["run", "-p", "a", "-n", "1", "--device", "cuda:4095"]);
    let found = command.env_clear().env("XDG_CACHE_HOME", "cache").env("CUDA_PATH", "").output().unwrap();
    assert_fails(&found, 2, &["cuda:4095"]);
}

#[test]
fn every_instruction_set_can_be_named() {
    let first_line = |isa: &str| {
        let mut command = argon(&["run", "-p", "a", "-n", "1", "--temp", "0"]);
        command.env("ARGON_CPU_ISA", isa).output().unwrap()
    };
    assert!(stderr(&first_line("portable")).contains(", portable, "), "{}", stderr(&first_line("portable")));
    assert_fails(&first_line("mmx"), 2, &["ARGON_CPU_ISA is mmx", "portable"]);
}

#[test]
fn a_precision_that_the_device_has_not_is_the_flags_fault() {
    for command in [&["run", "-p", "a"][..], &["bench", "model"], &["bench", "dense", "-T", "1"]] {
        let found = output(&[command, &["--device", "reference", "--precision", "int8"]].concat());
        assert_fails(&found, 2, &["error: --precision: reference has f32, not int8"]);
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn a_limit_that_no_adapter_has_is_refused_by_its_name() {
    for (name, value) in
        [("ARGON_WGPU_MAX_BINDING", "0"), ("ARGON_WGPU_MAX_BINDING", "1000"), ("ARGON_WGPU_MAX_GROUPS", "0")]
    {
        let mut command = argon(&["parity", "plan", "--device", "wgpu", "-T", "1"]);
        assert_fails(&command.env(name, value).output().unwrap(), 2, &[name, value, "it must be a number from"]);
    }
}

/// Where there is an adapter; none sees four gigabytes.
#[cfg(feature = "wgpu")]
#[test]
fn a_tensor_beyond_an_adapters_kernels_is_refused_before_it_is_made() {
    let found = output(&[
        "bench", "dense", "--device", "wgpu", "-T", "1048576", "-D", "1024", "-N", "32", "--pool", "1", "-r", "1",
    ]);
    let error = stderr(&found).lines().find(|line| line.starts_with("error: ")).unwrap();
    assert_eq!(found.status.code(), Some(2), "{error}");
    assert!(error.contains("no adapter") || error.contains("a tensor of 4.29 GB, kernels of wgpu:0 see"), "{error}");
}
