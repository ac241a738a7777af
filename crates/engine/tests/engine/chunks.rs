//! How a prompt is cut, what runs beside it and in which order its operations run must not matter.

use argon_engine::compare::{Comparison, max_abs};
use argon_engine::tokenizer::Special;
use argon_engine::{Logits, StatePart};
use argon_kernels::shuffle::ShuffleDevice;

use crate::fixture::{self, all_logits, bits, engine, load_on, long_prompt, prefill, prompts, session};

/// Sizes below, at and above 64 tokens, which is a tile, a block of attention, a group of logits in some backend.
const CHUNKS: [usize; 7] = [1, 7, 16, 63, 64, 65, 200];

/// f32 sums in another order.
const ROUNDING: f64 = 1e-4;

/// One family with hyper-connections, n-grams and QSA, one with grouped DeltaNet heads, one with attention alone.
const FAMILIES: [&str; 3] = ["qwen4exp_s", "qwen3next", "qwen3moe"];

fn assert_same_state(expected: &[StatePart], found: &[StatePart], case: &str) {
    assert_eq!(expected.len(), found.len());
    for (a, b) in expected.iter().zip(found) {
        assert_eq!((a.layer, a.name, a.values.len()), (b.layer, b.name, b.values.len()), "{case}");
        let difference = max_abs(&a.values, &b.values);
        assert!(difference < ROUNDING, "{case}: {} of layer {} differs by {difference:e}", a.name, a.layer);
    }
}

#[test]
fn any_chunk_size_gives_the_same_logits_and_state() {
    let prompt = long_prompt();
    for model in FAMILIES {
        let engine = engine(model);
        let mut whole = session(&engine, prompt.len());
        let expected = prefill(&mut whole, &prompt, Logits::All);
        let state = whole.state().unwrap();
        assert!(state.iter().all(|part| part.values.iter().all(|value| value.is_finite())));
        for chunk in CHUNKS {
            let case = format!("{model} in chunks of {chunk}");
            let mut cut = session(&engine, chunk);
            let found = prefill(&mut cut, &prompt, Logits::All);
            let comparison = Comparison::new(&expected.values, &found.values, expected.width);
            assert!(comparison.max_abs < ROUNDING, "{case}: {comparison:?}");
            assert_eq!(comparison.same_argmax, prompt.len(), "{case}: {comparison:?}");
            assert_same_state(&state, &cut.state().unwrap(), &case);
        }
    }
}

#[test]
fn any_cut_into_calls_gives_the_same_logits() {
    let prompt = long_prompt();
    let engine = engine("qwen4exp_s");
    let expected = all_logits(&engine, 64, &prompt);
    let mut cut = session(&engine, 64);
    let mut found = Vec::new();
    for (i, part) in prompt.chunk_by(|a, _| a % 3 != 0).enumerate() {
        // Logits that nobody asks for change nothing either.
        match i % 2 {
            0 => found.push((part.len(), prefill(&mut cut, part, Logits::Last).values)),
            _ => {
                let none = cut.prefill(part, Logits::None, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
                assert_eq!(none, None);
                found.push((part.len(), Vec::new()));
            }
        }
    }
    let mut end = 0;
    for (len, logits) in found {
        end += len;
        if !logits.is_empty() {
            let row = expected.rows().nth(end - 1).unwrap();
            assert!(max_abs(row, &logits) < ROUNDING, "after {end} tokens");
        }
    }
    assert_eq!(end, prompt.len());
}

#[test]
fn every_length_from_1_to_300_works() {
    let prompt = long_prompt();
    let engine = engine("qwen4exp_s");
    let expected = all_logits(&engine, prompt.len(), &prompt);
    let mut one = session(&engine, prompt.len());
    for (len, row) in (1..=prompt.len()).zip(expected.rows()) {
        one.reset().unwrap();
        let found = prefill(&mut one, &prompt[..len], Logits::Last);
        let difference = max_abs(row, &found.values);
        assert!(difference < ROUNDING, "{len} tokens: {difference:e}");
        assert_eq!(one.len(), len);
    }
}

#[test]
fn a_reset_session_is_a_fresh_one_to_the_bit() {
    let [p0, p1, p2] = prompts();
    for model in FAMILIES {
        let engine = engine(model);
        let expected = all_logits(&engine, 16, &p1);
        let fresh_state = session(&engine, 16).state().unwrap();
        let mut used = session(&engine, 16);
        prefill(&mut used, &p2, Logits::Last);
        prefill(&mut used, &p0, Logits::Last);
        used.reset().unwrap();
        assert_eq!((used.len(), used.state().unwrap()), (0, fresh_state), "{model}");
        let found = prefill(&mut used, &p1, Logits::All);
        assert_eq!(bits(&expected.values), bits(&found.values), "{model}");
    }
}

#[test]
fn equal_chunks_give_equal_bits_from_run_to_run() {
    let prompt = long_prompt();
    for model in FAMILIES {
        let (a, b) = (engine(model), engine(model));
        assert_eq!(bits(&all_logits(&a, 48, &prompt).values), bits(&all_logits(&b, 48, &prompt).values), "{model}");
    }
}

#[test]
fn sessions_side_by_side_do_not_meet() {
    let [_, p1, p2] = prompts();
    for model in FAMILIES {
        let engine = engine(model);
        let alone = (all_logits(&engine, 16, &p1), all_logits(&engine, 10, &p2));
        let (mut a, mut b) = (session(&engine, 16), session(&engine, 10));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let (mut rest_of_p1, mut rest_of_p2) = (p1.chunks(16), p2.chunks(10));
        loop {
            let (one, other) = (rest_of_p1.next(), rest_of_p2.next());
            first.extend(one.into_iter().flat_map(|part| prefill(&mut a, part, Logits::All).values));
            second.extend(other.into_iter().flat_map(|part| prefill(&mut b, part, Logits::All).values));
            if one.is_none() && other.is_none() {
                break;
            }
        }
        assert_eq!(bits(&alone.0.values), bits(&first), "{model}");
        assert_eq!(bits(&alone.1.values), bits(&second), "{model}");
    }
}

#[test]
fn sessions_on_threads_of_their_own_do_not_meet() {
    let [_, p1, p2] = prompts();
    let engine = engine("qwen4exp_s");
    let expected = [&p1, &p2, &p1].map(|prompt| bits(&all_logits(&engine, 16, prompt).values));
    let found = std::thread::scope(|scope| {
        let run = |prompt: &Vec<u32>| {
            let (engine, prompt) = (&engine, prompt.clone());
            scope.spawn(move || bits(&all_logits(engine, 16, &prompt).values))
        };
        [&p1, &p2, &p1].map(run).map(|thread| thread.join().unwrap())
    });
    assert_eq!(expected, found);
}

#[test]
fn any_order_that_the_declared_reads_and_writes_permit_gives_the_same_bytes() {
    let [_, p1, _] = prompts();
    for model in fixture::MODELS {
        let expected = bits(&all_logits(&engine(model), 24, &p1).values);
        for seed in 0..4 {
            let shuffled = load_on(ShuffleDevice::new(fixture::cpu(), seed), fixture::gguf(model));
            assert_eq!(expected, bits(&all_logits(&shuffled, 24, &p1).values), "{model}, seed {seed}");
        }
    }
}

#[test]
fn the_embedded_model_does_not_mind_its_chunks() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/argon-tiny.gguf");
    let engine = load_on(fixture::cpu(), argon_gguf::Gguf::open(path).unwrap());
    let text = include_str!("chunks.rs");
    let mut prompt = engine.tokenizer().unwrap().encode(text, Special::Parse).unwrap();
    prompt.truncate(300);
    assert_eq!(prompt.len(), 300);
    let expected = all_logits(&engine, prompt.len(), &prompt);
    for chunk in CHUNKS {
        let found = all_logits(&engine, chunk, &prompt);
        let comparison = Comparison::new(&expected.values, &found.values, expected.width);
        assert!(comparison.max_abs < ROUNDING && comparison.same_argmax == 300, "chunks of {chunk}: {comparison:?}");
    }
}
