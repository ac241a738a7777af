//! A session's edges: full, empty, stopped, broken.

use std::ops::ControlFlow;

use argon_engine::{CacheTypes, EngineError, Logits, Progress, SessionOptions};
use argon_kernels::{DType, DeviceError};

use crate::edit::overflowing;
use crate::fixture::{CONTEXT, EXACT, all_logits, bits, cpu, engine, load_on, prefill, prompts, session};

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_numbers() {
    let engine = engine("qwen3moe");
    let mut small = engine.session(SessionOptions { context: 10, chunk: 4, cache: EXACT }).unwrap();
    let full = |prompt, held| Err(EngineError::ContextFull { prompt, held, context: 10 });
    assert_eq!(small.prefill(&[1; 11], Logits::Last, &mut go_on), full(11, 0));
    assert_eq!(small.len(), 0);
    prefill(&mut small, &[1; 10], Logits::Last); // exactly full
    assert_eq!((small.len(), small.context()), (10, 10));
    let error = small.prefill(&[1], Logits::Last, &mut go_on).unwrap_err();
    assert_eq!(error.to_string(), "1 tokens do not fit behind the 10 held: the context has room for 10");
    assert_eq!(small.prefill(&[1], Logits::Last, &mut go_on), full(1, 10));
}

#[test]
fn an_id_that_is_no_token_is_refused_before_anything_runs() {
    let engine = engine("qwen3moe");
    let mut session = session(&engine, 2);
    let refused = session.prefill(&[1, 2, 511, 512, 3], Logits::Last, &mut go_on);
    assert_eq!(refused, Err(EngineError::TokenId { index: 3, id: 512, vocabulary: 512 }));
    let refused = session.prefill(&[u32::MAX], Logits::Last, &mut go_on);
    assert_eq!(refused, Err(EngineError::TokenId { index: 0, id: u32::MAX, vocabulary: 512 }));
    assert!(session.is_empty());
    let expected = all_logits(&engine, 2, &[1, 2, 3]);
    assert_eq!(bits(&prefill(&mut session, &[1, 2, 3], Logits::All).values), bits(&expected.values));
}

#[test]
fn no_tokens_are_no_work() {
    let engine = engine("qwen3moe");
    let mut session = session(&engine, 8);
    for logits in [Logits::None, Logits::Last, Logits::All] {
        assert_eq!(session.prefill(&[], logits, &mut |_| panic!("no chunk to report")), Ok(None));
    }
    assert!(session.is_empty());
}

#[test]
fn impossible_sizes_are_refused_by_name() {
    let engine = engine("qwen3moe");
    let fine = SessionOptions { context: 8, chunk: 8, cache: EXACT };
    let refused = |options| match engine.session(options).err() {
        Some(EngineError::Option { option, .. }) => option,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(SessionOptions { context: 0, ..fine }), "context");
    assert_eq!(refused(SessionOptions { chunk: 0, ..fine }), "chunk");
    assert_eq!(refused(SessionOptions { context: usize::MAX, ..fine }), "context");
    assert_eq!(
        refused(SessionOptions { cache: CacheTypes { k: DType::I32, v: DType::F16 }, ..fine }),
        "cache type of keys"
    );
    assert_eq!(
        refused(SessionOptions { cache: CacheTypes { k: DType::F32, v: DType::U32 }, ..fine }),
        "cache type of values"
    );
    // A chunk is never larger than the context; a session larger than any memory is an error, not an abort.
    assert_eq!(engine.session(SessionOptions { chunk: 1 << 30, ..fine }).unwrap().chunk(), 8);
    let huge = engine.session(SessionOptions { context: i32::MAX as usize, ..fine }).err();
    assert!(huge.is_none() || matches!(huge, Some(EngineError::Device(DeviceError::OutOfMemory { .. }))), "{huge:?}");
}

#[test]
fn progress_counts_layers_and_chunks() {
    let engine = engine("qwen3moe");
    let (mut seen, layers) = (Vec::new(), engine.info().layers);
    let mut see = |progress: Progress| {
        assert_eq!((progress.total, progress.layers), (6, layers));
        seen.push((progress.done, progress.chunk, progress.layers_done, progress.work()));
        ControlFlow::Continue(())
    };
    session(&engine, 4).prefill(&[1, 2, 3, 4, 5, 6], Logits::Last, &mut see).unwrap();
    let chunk = |done, chunk| (1..=layers).map(move |layer| (done, chunk, layer, done + chunk * layer / layers));
    let expected: Vec<_> = chunk(0, 4).chain([(4, 0, 0, 4)]).chain(chunk(4, 2)).chain([(6, 0, 0, 6)]).collect();
    assert_eq!(seen, expected);
}

/// Whether it comes between two chunks or inside one.
#[test]
fn a_stop_leaves_a_session_that_goes_on() {
    let [_, p1, _] = prompts();
    for (model, layer) in [("qwen4exp_s", 0), ("qwen4exp_s", 1), ("qwen3next", 0), ("qwen3next", 2)] {
        let engine = engine(model);
        let expected = all_logits(&engine, 16, &p1);
        let mut stopped = session(&engine, 16);
        let done = if layer == 0 { 32 } else { 16 };
        let result = stopped.prefill(&p1, Logits::Last, &mut |progress| {
            let here = progress.done == done && progress.layers_done == layer;
            if here { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(result, Err(EngineError::Stopped { done: 32, total: 64 }));
        assert_eq!(stopped.len(), 32);
        let last = prefill(&mut stopped, &p1[32..], Logits::Last);
        assert_eq!(bits(&last.values), bits(expected.last()), "{model}");
        assert_eq!(stopped.len(), 64);
    }
}

#[test]
fn a_stop_after_the_last_chunk_is_none() {
    let engine = engine("qwen3moe");
    let done = session(&engine, 4).prefill(&[1, 2, 3], Logits::Last, &mut |_| ControlFlow::Break(()));
    assert_eq!(done.unwrap().unwrap().rows().len(), 1);
}

#[test]
fn an_error_in_the_middle_asks_for_a_reset_and_harms_no_other_session() {
    const BAD: u32 = 7;
    let engine = load_on(cpu(), overflowing(BAD));
    let good = [1, 2, 3, 4, 5, 6];
    let expected = all_logits(&engine, 4, &good);
    let (mut bad, mut other) = (session(&engine, 4), session(&engine, 4));
    let start = prefill(&mut other, &good[..3], Logits::All);
    let error = bad.prefill(&[1, 2, 3, 4, 5, BAD], Logits::Last, &mut go_on);
    assert_eq!(error, Err(EngineError::Device(DeviceError::NanLogit { layer: 0, token: 1 })));
    assert_eq!(bad.prefill(&[1], Logits::Last, &mut go_on), Err(EngineError::Unfinished));
    let end = prefill(&mut other, &good[3..], Logits::All);
    let alone = [all_logits(&engine, 4, &good[..3]).values, Vec::new()].concat();
    assert_eq!(bits(&start.values), bits(&alone));
    assert!(end.values.iter().all(|value| value.is_finite()));
    bad.reset().unwrap();
    assert_eq!(bits(&prefill(&mut bad, &good, Logits::All).values), bits(&expected.values));
}

#[test]
fn the_context_may_be_filled_by_one_token_at_a_time() {
    let engine = engine("qwen4exp_s");
    let tokens: Vec<u32> = (0..CONTEXT as u32).map(|i| i * 7 % 509).collect();
    let expected = all_logits(&engine, CONTEXT, &tokens);
    let mut session = session(&engine, CONTEXT);
    let mut last = Vec::new();
    for token in &tokens {
        last = prefill(&mut session, std::slice::from_ref(token), Logits::Last).values;
    }
    // f32 sums in another order.
    assert!(argon_engine::compare::max_abs(&last, expected.last()) < 1e-4);
    assert_eq!(session.len(), session.context());
}

#[test]
fn a_context_smaller_than_a_block_of_keys_works() {
    let engine = engine("qwen4exp_s");
    let tokens = [5, 6, 7, 8, 9];
    let expected = all_logits(&engine, 5, &tokens);
    for context in 1..=5 {
        let mut small = engine.session(SessionOptions { context, chunk: 2, cache: EXACT }).unwrap();
        let found = prefill(&mut small, &tokens[..context], Logits::All);
        // f32 sums in another order.
        assert!(argon_engine::compare::max_abs(&expected.values[..found.values.len()], &found.values) < 1e-4);
    }
}
