//! Sessions saved, restored, refused; and what a conversation that changes its past keeps.

use std::sync::Arc;

use argon_engine::{CacheTypes, Engine, EngineError, EngineOptions, Logits, Session, SessionFileError, SessionOptions};
use argon_kernels::{DType, Precision};

use crate::edit::{Key, edited, overflowing};
use crate::fixture::{CONTEXT, EXACT, MODELS, all_logits, bits, cpu, engine, gguf, load_on, prefill, prompts, session};

const HALVES: CacheTypes = CacheTypes { k: DType::F16, v: DType::F16 };

fn saved(session: &Session) -> Vec<u8> {
    let mut file = Vec::new();
    session.save(&mut file).unwrap();
    file
}

/// A small file: three tokens of a model without recurrent states, with a mark behind the second.
fn small() -> (Engine, SessionOptions, Vec<u8>) {
    let (engine, options) = (engine("qwen3moe"), SessionOptions { context: 8, chunk: 8, cache: EXACT });
    let mut session = engine.session(options).unwrap();
    prefill(&mut session, &[1, 2], Logits::Last);
    session.mark().unwrap();
    prefill(&mut session, &[3], Logits::Last);
    let file = saved(&session);
    (engine, options, file)
}

fn refusal(engine: &Engine, file: &[u8], options: SessionOptions) -> SessionFileError {
    match engine.restore(file, options).err() {
        Some(EngineError::SessionFile(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one_to_the_bit() {
    let [_, _, p2] = prompts();
    for model in MODELS {
        for cache in [EXACT, HALVES] {
            let options = SessionOptions { context: CONTEXT, chunk: 16, cache };
            for held in [0, 7, 150] {
                let case = format!("{model} {cache:?}, {held} tokens");
                let mut through = engine(model).session(options).unwrap();
                let mut first = engine(model).session(options).unwrap();
                for session in [&mut through, &mut first] {
                    session.prefill(&p2[..held], Logits::None, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
                }
                let mut resumed = engine(model).restore(&saved(&first)[..], options).unwrap();
                assert_eq!(resumed.tokens(), &p2[..held], "{case}");
                let rest = [&mut through, &mut resumed].map(|session| prefill(session, &p2[held..], Logits::All));
                assert_eq!(bits(&rest[0].values), bits(&rest[1].values), "{case}");
                assert_eq!(through.state().unwrap(), resumed.state().unwrap(), "{case}");
                assert_eq!(saved(&through), saved(&resumed), "{case}");
            }
        }
    }
}

#[test]
fn a_resumed_run_returns_to_its_mark_as_an_uninterrupted_one() {
    let [_, p1, _] = prompts();
    let options = SessionOptions { context: CONTEXT, chunk: 16, cache: HALVES };
    for model in MODELS {
        for marked in [0, 29, 32] {
            let case = format!("{model}, marked behind {marked}");
            let engine = engine(model);
            let mut through = engine.session(options).unwrap();
            through.prefill(&p1[..marked], Logits::None, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
            through.mark().unwrap();
            prefill(&mut through, &p1[marked..50], Logits::Last);
            let mut resumed = engine.restore(&saved(&through)[..], options).unwrap();
            let changed = [&p1[..40], &[3, 1, 4, 1, 5]].concat();
            let kept = [&mut through, &mut resumed].map(|session| session.keep(&changed).unwrap());
            assert!(kept[0] == kept[1] && kept[0] >= marked, "{case}: {kept:?}");
            let rest = [&mut through, &mut resumed].map(|session| prefill(session, &changed[kept[0]..], Logits::All));
            assert_eq!(bits(&rest[0].values), bits(&rest[1].values), "{case}");
            assert_eq!(saved(&through), saved(&resumed), "{case}");
        }
    }
}

#[test]
fn a_mark_that_cannot_be_is_refused() {
    let engine = engine("qwen3next");
    let options = SessionOptions { context: 8, chunk: 8, cache: EXACT };
    let mut session = engine.session(options).unwrap();
    prefill(&mut session, &[1, 2], Logits::Last);
    let unmarked = saved(&session);
    session.mark().unwrap();
    let marked = saved(&session);
    let at = unmarked.len() - 17; // before the checksum
    assert_eq!((unmarked[at], marked[at], marked[at + 1]), (0, 1, 2));
    for (offset, byte, what) in [
        (0, 2, "it has 2 marks, not 0 or 1"),
        (1, 3, "its mark is behind 3 tokens of 2"),
        (8, 0xff, "its mark is behind 18374686479671623682 tokens of 2"),
        (16, 0xff, "its mark has 18374686479671"),
    ] {
        let mut spoilt = marked.clone();
        spoilt[at + offset] = byte;
        let SessionFileError::Damaged { what: found } = refusal(&engine, &spoilt, options) else { panic!("{what}") };
        assert!(found.starts_with(what), "{found}");
    }
}

#[test]
fn context_and_chunk_may_change() {
    let [_, p1, _] = prompts();
    for model in ["qwen4exp_s", "qwen3moe"] {
        let engine = engine(model);
        let expected = all_logits(&engine, 16, &p1);
        let mut first = engine.session(SessionOptions { context: 32, chunk: 32, cache: EXACT }).unwrap();
        prefill(&mut first, &p1[..32], Logits::Last);
        let larger = SessionOptions { context: 64, chunk: 7, cache: EXACT };
        let mut resumed = engine.restore(&saved(&first)[..], larger).unwrap();
        let found = prefill(&mut resumed, &p1[32..], Logits::Last);
        // f32 sums in another order.
        assert!(argon_engine::compare::max_abs(expected.last(), &found.values) < 1e-4, "{model}");
    }
}

#[test]
fn a_session_of_another_model_is_refused() {
    let (engine, options, file) = small();
    let other = load_on(cpu(), edited("qwen3moe", |model| model.set("general.name", Key::Str("another".into()))));
    assert_eq!(refusal(&other, &file, options), SessionFileError::OtherModel);
    let trained = load_on(
        cpu(),
        edited("qwen3moe", |model| {
            let bytes = &mut model.tensor("blk.0.ffn_down_exps.weight").bytes;
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }),
    );
    assert_eq!(refusal(&trained, &file, options), SessionFileError::OtherModel);
    let error = refusal(&crate::fixture::engine("olmoe"), &file, options);
    assert_eq!(error.to_string(), "the architecture of the saved session is qwen3moe, not olmoe");
    let again = load_on(cpu(), gguf("qwen3moe"));
    assert_eq!(again.restore(&file[..], options).unwrap().tokens(), [1, 2, 3]);
    drop(engine);
}

#[test]
fn another_precision_or_type_of_cache_is_refused() {
    let (engine, options, file) = small();
    let precision = EngineOptions { precision: Some(Precision::F16) };
    let other = Engine::load(gguf("qwen3moe"), Arc::new(cpu()), precision).unwrap();
    assert_eq!(
        refusal(&other, &file, options),
        SessionFileError::Differs { what: "precision", saved: "f32".into(), expected: "f16".into() }
    );
    for (what, cache) in [
        ("type of cached keys", CacheTypes { k: DType::F16, ..EXACT }),
        ("type of cached values", CacheTypes { v: DType::F16, ..EXACT }),
    ] {
        assert_eq!(
            refusal(&engine, &file, SessionOptions { cache, ..options }),
            SessionFileError::Differs { what, saved: "f32".into(), expected: "f16".into() }
        );
    }
}

#[test]
fn a_session_that_does_not_fit_the_context_is_refused() {
    let (engine, options, file) = small();
    let error = refusal(&engine, &file, SessionOptions { context: 2, ..options });
    assert_eq!(error, SessionFileError::ContextTooSmall { tokens: 3, context: 2 });
    assert!(engine.restore(&file[..], SessionOptions { context: 3, ..options }).is_ok());
}

#[test]
fn what_is_no_saved_session_is_refused() {
    let (engine, options, file) = small();
    let model = std::fs::read(crate::fixture::path("qwen3moe.gguf")).unwrap();
    for other in [&b""[..], b"ARGON", b"a text that is no session", &model] {
        assert_eq!(refusal(&engine, other, options), SessionFileError::NotASession);
    }
    for version in [1, 3] {
        let mut other = file.clone();
        other[8] = version;
        let error = refusal(&engine, &other, options);
        assert_eq!(error, SessionFileError::Version { version: u32::from(version) });
        assert_eq!(error.to_string(), format!("a saved session of version {version}; version 2 is supported"));
    }
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let (engine, options, file) = small();
    for len in 0..file.len() {
        match refusal(&engine, &file[..len], options) {
            SessionFileError::Truncated { .. } => assert!(len >= 8, "{len}"),
            SessionFileError::NotASession => assert!(len < 8, "{len}"),
            other => panic!("{len} bytes: {other:?}"),
        }
    }
    let longer = [&file[..], &[0]].concat();
    assert_eq!(
        refusal(&engine, &longer, options),
        SessionFileError::Damaged { what: "something follows its end".into() }
    );
}

#[test]
fn every_spoilt_byte_is_noticed() {
    let (engine, options, file) = small();
    for i in 0..file.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut spoilt = file.clone();
            spoilt[i] ^= flip;
            refusal(&engine, &spoilt, options);
        }
    }
}

#[test]
fn lengths_of_the_file_decide_nothing() {
    let (engine, options, file) = small();
    let count = (0..file.len()).find(|&i| file[i..].starts_with(&3u64.to_le_bytes())).unwrap();
    for huge in [9, 1 << 40, u64::MAX] {
        let mut spoilt = file.clone();
        spoilt[count..count + 8].copy_from_slice(&huge.to_le_bytes());
        let refused = SessionFileError::ContextTooSmall { tokens: huge, context: 8 };
        assert_eq!(refusal(&engine, &spoilt, options), refused);
    }
    let mut foreign = file.clone();
    foreign[count + 8..count + 12].copy_from_slice(&512u32.to_le_bytes());
    let what = "token 0 is 512, outside the vocabulary of 512".into();
    assert_eq!(refusal(&engine, &foreign, options), SessionFileError::Damaged { what });
    let name = (0..file.len()).find(|&i| file[i..].starts_with(b"keys")).unwrap();
    let mut longer = file.clone();
    longer[name + 4..name + 12].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
    let SessionFileError::Damaged { what } = refusal(&engine, &longer, options) else { panic!("accepted") };
    assert!(what.starts_with("\"keys\" of layer 0 has 9223372036854775807 bytes, not "), "{what}");
}

#[test]
fn an_unfinished_session_is_not_saved_and_keeps_nothing() {
    let engine = load_on(cpu(), overflowing(7));
    let mut session = session(&engine, 4);
    prefill(&mut session, &[1, 2], Logits::Last);
    session.prefill_probed(&[7], Logits::Last, &mut Nothing).unwrap_err();
    assert_eq!(session.save(Vec::new()), Err(EngineError::Unfinished));
    assert_eq!(session.keep(&[1, 2, 3]), Ok(0));
    let expected = all_logits(&engine, 4, &[1, 2, 3]);
    assert_eq!(bits(&prefill(&mut session, &[1, 2, 3], Logits::All).values), bits(&expected.values));
}

struct Nothing;

impl argon_engine::probe::Probe for Nothing {
    fn wants(&self, _: argon_engine::probe::Intermediate, _: usize) -> bool {
        false
    }

    fn see(&mut self, _: argon_engine::probe::Shown) {}
}

#[test]
fn a_conversation_that_grows_keeps_everything() {
    let [p0, p1, _] = prompts();
    for model in ["qwen3next", "qwen3moe", "qwen4exp_s"] {
        let engine = engine(model);
        let mut talk = session(&engine, 16);
        prefill(&mut talk, &p0, Logits::Last);
        let longer = [p0.clone(), p1.clone()].concat();
        assert_eq!(talk.keep(&longer), Ok(p0.len()), "{model}");
        assert_eq!(talk.tokens(), p0);
    }
}

#[test]
fn a_changed_past_is_kept_up_to_the_change_where_no_state_is_recurrent() {
    let [_, p1, _] = prompts();
    let changed = [&p1[..40], &[3, 1, 4, 1, 5]].concat();
    for (model, kept) in [("qwen3moe", 40), ("mixtral", 40), ("qwen3next", 0), ("qwen4exp_s", 0)] {
        let engine = engine(model);
        let expected = all_logits(&engine, 16, &changed);
        let mut talk = session(&engine, 16);
        prefill(&mut talk, &p1, Logits::Last);
        assert_eq!(talk.keep(&changed), Ok(kept), "{model}");
        assert_eq!(talk.len(), kept);
        let found = prefill(&mut talk, &changed[kept..], Logits::Last);
        // f32 sums in another order.
        assert!(argon_engine::compare::max_abs(expected.last(), &found.values) < 1e-4, "{model}");
    }
}

#[test]
fn a_recurrent_state_returns_to_the_mark_to_the_bit_and_again() {
    let [_, p1, _] = prompts();
    // Blocks of keys that are cut by the mark, and not.
    for marked in [29, 30, 32] {
        for (model, kept) in [("qwen3next", marked), ("qwen4exp_s", marked), ("qwen3moe", 40)] {
            let engine = engine(model);
            let (mut talk, mut fresh) = (session(&engine, 16), session(&engine, 16));
            prefill(&mut talk, &p1[..marked], Logits::Last);
            talk.mark().unwrap();
            prefill(&mut talk, &p1[marked..], Logits::Last);
            for other in [7, 8] {
                let changed = [&p1[..40], &[other; 20]].concat();
                assert_eq!(talk.keep(&changed), Ok(kept), "{model}");
                let found = prefill(&mut talk, &changed[kept..], Logits::All);
                fresh.reset().unwrap();
                prefill(&mut fresh, &p1[..marked], Logits::Last);
                if kept > marked {
                    prefill(&mut fresh, &p1[marked..], Logits::Last);
                    fresh.keep(&changed).unwrap();
                }
                let expected = prefill(&mut fresh, &changed[kept..], Logits::All);
                assert_eq!(bits(&found.values), bits(&expected.values), "{model}");
                assert_eq!(talk.state().unwrap(), fresh.state().unwrap(), "{model}");
            }
        }
    }
}

#[test]
fn a_mark_behind_the_change_or_from_before_a_reset_is_none() {
    let [_, p1, _] = prompts();
    let engine = engine("qwen3next");
    let mut talk = session(&engine, 16);
    prefill(&mut talk, &p1[..30], Logits::Last);
    talk.mark().unwrap();
    prefill(&mut talk, &p1[30..], Logits::Last);
    assert_eq!(talk.keep(&[&p1[..29], &[1, 2]].concat()), Ok(0));
    prefill(&mut talk, &p1, Logits::Last);
    assert_eq!(talk.keep(&[&p1[..40], &[1, 2]].concat()), Ok(0));
    prefill(&mut talk, &p1[..2], Logits::Last);
    talk.mark().unwrap();
    talk.reset().unwrap();
    prefill(&mut talk, &p1[..4], Logits::Last);
    assert_eq!(talk.keep(&[p1[0], p1[1], p1[2] + 1, 0]), Ok(0));
}

#[test]
fn there_is_always_a_token_left_to_ask_for_logits() {
    for (model, kept) in [("qwen3moe", 2), ("qwen3next", 0)] {
        let engine = engine(model);
        let mut talk = session(&engine, 16);
        prefill(&mut talk, &[1, 2, 3], Logits::Last);
        assert_eq!(talk.keep(&[1, 2, 3]), Ok(kept), "{model}");
        assert_eq!(talk.keep(&[]), Ok(0));
        assert!(talk.is_empty());
    }
}
