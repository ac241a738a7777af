//! `argon perplexity`, against `llama-perplexity`.

use crate::{SETS_BOS, assert_fails, fixture, output, output_of, stderr, stdout, text, with_keys};

/// A text that does not change: 1581 words of English.
const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE-APACHE");

/// What f32 takes.
const EXACT: [&str; 6] = ["--precision", "f32", "-ctk", "f32", "-ctv", "f32"];

/// The two numbers of `Final estimate: PPL = 4363.3565 +/- 733.69265`.
fn estimate(line: &str) -> (f64, f64) {
    let (perplexity, error) =
        line.trim_end().strip_prefix("Final estimate: PPL = ").unwrap().split_once(" +/- ").unwrap();
    (perplexity.parse().unwrap(), error.parse().unwrap())
}

/// `llama-perplexity -c 64 --chunks 4 -ctk f32 -ctv f32 -fa off` of llama.cpp b11434 on the models with every weight
/// expanded to f32 (`llama-quantize --allow-requantize ... F32`), and of the same with a tokenizer that sets BOS
/// (`--override-kv tokenizer.ggml.add_bos_token=bool:true,tokenizer.ggml.bos_token_id=int:510`).
#[test]
fn the_estimate_is_that_of_llama_cpp() {
    // A loss is as exact as the logits that it comes from, and those are summed in another order: 1e-5.
    let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-5;
    let dir = tempfile::tempdir().unwrap();
    for (model, bos, windows, perplexity, error) in [
        ("mixtral", false, [3659.4400, 3593.0964, 4275.6265, 4363.3565], 4363.3565, 733.69265),
        ("qwen3moe", false, [5333.6554, 5744.8105, 6712.4281, 5345.6768], 5345.6768, 986.28871),
        ("mixtral", true, [3328.9082, 3683.2408, 4253.9698, 4361.5664], 4361.5664, 756.77974),
        ("qwen3moe", true, [5317.4474, 5891.5006, 6577.0148, 5256.4525], 5256.4525, 933.93052),
    ] {
        let name = format!("{model}.gguf");
        let model = if bos { dir.path().join(&name) } else { fixture(&name) };
        if bos {
            with_keys(&fixture(&name), &SETS_BOS, &model);
        }
        let args = ["perplexity", "-m", text(&model), "-f", TEXT, "-c", "64", "--chunks", "4"];
        let found = output(&[&args[..], &EXACT].concat());
        let (found_perplexity, found_error) = estimate(stdout(&found));
        assert!(close(found_perplexity, perplexity) && close(found_error, error), "{found:?}");
        let first = stderr(&found).lines().next().unwrap();
        assert!(first.contains("; cpu (") && first.ends_with(", precision f32"), "{first}");
        for (i, expected) in windows.into_iter().enumerate() {
            let begin = format!("[{}/4] ", i + 1);
            let line = stderr(&found).lines().find_map(|line| line.strip_prefix(&begin)).unwrap();
            assert!(close(line.parse().unwrap(), expected), "{}", stderr(&found));
        }
    }
}

#[test]
fn a_text_shorter_than_two_windows_is_refused_with_both_numbers() {
    let args = ["perplexity", "-f", "-", "-c", "64"];
    assert_fails(&output_of(&args, b"a b c"), 2, &["the text has ", "two windows of 64 (-c) need 128"]);
    assert_fails(&output_of(&args, b""), 2, &["the text has 0 tokens"]);
    assert_fails(&output_of(&args, b"a\xff"), 2, &["standard input: not UTF-8: byte 1 is invalid"]);
    assert_fails(&output(&["perplexity", "-f", TEXT, "-c", "3"]), 2, &["--ctx-size"]);
    assert_fails(&output(&["perplexity", "-f", TEXT, "--chunks", "0"]), 2, &["--chunks"]);
    assert_fails(&output(&["perplexity", "-f", "no/such.txt"]), 2, &["no/such.txt"]);
}
