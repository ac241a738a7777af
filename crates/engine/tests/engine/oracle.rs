//! Logits against llama.cpp's, computed in f32 from the same quantised weights (see fixtures/models/README.md).

use std::sync::Arc;

use argon_engine::compare::Comparison;
use argon_engine::{CacheTypes, Engine, EngineOptions, Logits, SessionOptions};
use argon_kernels::reference::ReferenceDevice;
use argon_kernels::{DType, Device};

use crate::fixture::{self, CONTEXT, EXACT, MODELS, load_on, prompts};
use crate::npy;

/// Rounding of two engines that work in f32: transformers and llama.cpp differ by up to 6.4e-5 on these models, and a wrong
/// RMS epsilon alone makes 1.4e-4.
const F32: f64 = 1e-4;

/// Keys and values rounded to 11 bits.
const F16_CACHE: f64 = 2e-2;

/// Compares all that is known about `model` with what `engine` says.
fn check(engine: &Engine, model: &str, cache: CacheTypes, tolerance: f64) {
    let last = npy::read(fixture::path(&format!("{model}.final.npy")));
    let width = last.shape[1];
    assert_eq!(width, engine.info().vocabulary);
    let all_of_p1 = fixture::path(&format!("{model}.p1.npy"));
    for (i, (prompt, expected)) in prompts().iter().zip(last.values.chunks_exact(width)).enumerate() {
        let mut session = engine.session(SessionOptions { context: CONTEXT, chunk: 512, cache }).unwrap();
        let found = fixture::prefill(&mut session, prompt, Logits::All);
        assert_eq!(found.values.len(), prompt.len() * width);
        let case = format!("{model} p{i}");
        assert_close(&case, &Comparison::new(expected, found.last(), width), tolerance);
        if i == 1 && all_of_p1.exists() {
            let expected = npy::read(&all_of_p1);
            assert_eq!(expected.shape, [prompt.len(), width]);
            assert_close(
                &format!("all of {case}"),
                &Comparison::new(&expected.values, &found.values, width),
                tolerance,
            );
        }
    }
}

fn assert_close(case: &str, comparison: &Comparison, tolerance: f64) {
    assert!(comparison.max_abs < tolerance, "{case}: {comparison:?}, not within {tolerance:e}");
    assert_eq!(comparison.same_argmax, comparison.rows, "{case}: {comparison:?}");
}

#[test]
fn the_cpu_agrees_with_llama_cpp() {
    for model in MODELS {
        check(&fixture::engine(model), model, EXACT, F32);
    }
}

#[test]
fn the_reference_device_agrees_with_llama_cpp() {
    for model in MODELS {
        check(&load_on(ReferenceDevice::default(), fixture::gguf(model)), model, EXACT, F32);
    }
}

#[test]
fn a_cache_in_f16_stays_near() {
    for model in MODELS {
        check(&fixture::engine(model), model, CacheTypes { k: DType::F16, v: DType::F16 }, F16_CACHE);
    }
}

/// Coarser operands move single tokens by a logit where they flip an expert, so medians over the tokens are what counts.
fn largest_median_kl(model: &str) -> f64 {
    if matches!(model, "qwen3next" | "qwen35moe") { 2e-2 } else { 5e-3 }
}

#[test]
fn every_precision_of_the_cpu_stays_near() {
    let [_, _, p2] = prompts();
    for model in MODELS {
        let exact = fixture::all_logits(&fixture::engine(model), 64, &p2);
        for precision in fixture::cpu().info().precisions {
            let options = EngineOptions { precision: Some(precision) };
            let engine = Engine::load(fixture::gguf(model), Arc::new(fixture::cpu()), options).unwrap();
            assert_eq!(engine.info().precision, precision);
            let found = fixture::all_logits(&engine, 64, &p2);
            let comparison = Comparison::new(&exact.values, &found.values, exact.width);
            let case = format!("{model} in {}", precision.name());
            assert!(comparison.median_kl < largest_median_kl(model), "{case}: {comparison:?}");
        }
    }
}

#[test]
fn p1_is_known_token_by_token_for_three_families() {
    let known = MODELS.into_iter().filter(|model| fixture::path(&format!("{model}.p1.npy")).exists());
    assert_eq!(known.collect::<Vec<_>>(), ["qwen4exp_s", "qwen3moe", "qwen3next"]);
}

/// 200 tokens whose best successor llama.cpp and an exact engine agree on: the best leads the next by at least 0.002.
#[test]
fn the_embedded_model_chooses_as_llama_cpp_does() {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");
    let json = std::fs::read_to_string(format!("{models}/argon-tiny.reference.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let ids = |key: &str| -> Vec<u32> { serde_json::from_value(json[key].clone()).unwrap() };
    let (tokens, expected) = (ids("tokens"), ids("argmax"));
    assert_eq!((tokens.len(), expected.len()), (200, 200));
    let engine = load_on(fixture::cpu(), argon_gguf::Gguf::open(format!("{models}/argon-tiny.gguf")).unwrap());
    let logits = fixture::all_logits(&engine, 512, &tokens);
    let best =
        |row: &[f32]| (0..row.len() as u32).max_by(|&a, &b| row[a as usize].total_cmp(&row[b as usize])).unwrap();
    let found: Vec<u32> = logits.rows().map(best).collect();
    assert_eq!(found, expected);
}
