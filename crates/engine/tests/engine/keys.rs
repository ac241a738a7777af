//! Metadata that cannot be right: each wrong key is refused by name, and none of them panics.

use std::sync::Arc;

use argon_engine::{Engine, EngineError, EngineOptions, Logits, SessionOptions};
use argon_gguf::{Error, Gguf};

use crate::edit::{Key, Model, edited};
use crate::fixture::{EXACT, MODELS, cpu, gguf, prefill};

fn load(gguf: Gguf) -> Result<Engine, EngineError> {
    Engine::load(gguf, Arc::new(cpu()), EngineOptions::default())
}

fn error(gguf: Gguf) -> EngineError {
    load(gguf).err().expect("the file should be refused")
}

/// Loading `model` with `key` set to `value` fails with an error about the key, for this reason.
#[track_caller]
fn refused(model: &str, key: &str, value: Key, reason: &str) {
    let found = error(edited(model, |model| model.set(key, value)));
    let EngineError::Key { key: named, what } = &found else { panic!("{found:?}") };
    assert_eq!(named, key);
    assert!(what.contains(reason), "{found}");
}

/// Loading `model` with `key` set to `value` fails because `tensor` has another shape.
#[track_caller]
fn contradicts(model: &str, key: &str, value: Key, tensor: &str) {
    let found = error(edited(model, |model| model.set(key, value)));
    let EngineError::Shape { tensor: named, expected, found } = &found else { panic!("{found:?}") };
    assert_eq!(named, tensor);
    assert_ne!(expected, found);
}

#[test]
fn an_unknown_architecture_is_named_with_those_that_are_known() {
    let found = error(edited("qwen3moe", |model| model.set("general.architecture", Key::Str("gptj".into()))));
    let supported = "qwen4exp, qwen3moe, qwen3next, qwen35moe, qwen2moe, olmoe, llama";
    assert_eq!(found, EngineError::Architecture { found: "gptj".into(), supported: supported.into() });
    assert_eq!(found.to_string(), format!("architecture \"gptj\" is not supported (supported: {supported})"));
}

#[test]
fn sizes_out_of_range_are_refused() {
    for (key, values) in [
        ("block_count", [0, 100_000]),
        ("embedding_length", [0, u32::MAX]),
        ("context_length", [0, u32::MAX]),
        ("attention.head_count", [0, 5000]),
        ("attention.head_count_kv", [0, 9]),
        ("attention.key_length", [0, u32::MAX]),
        ("attention.value_length", [0, u32::MAX]),
        ("expert_count", [0, u32::MAX]),
        ("expert_used_count", [0, 9]),
    ] {
        for value in values {
            refused("qwen3moe", &format!("qwen3moe.{key}"), Key::U32(value), "not within");
        }
    }
    for (key, values) in [
        ("hyper_connection.count", [0, 1]),
        ("hyper_connection.low_rank", [0, u32::MAX]),
        ("attention.indexer.head_count", [0, 5000]),
        ("attention.indexer.key_length", [0, 8]), // less than the rotation turns
        ("attention.indexer.top_k", [0, u32::MAX]),
        ("ssm.conv_kernel", [0, 1000]),
        ("ssm.state_size", [0, u32::MAX]),
        ("ssm.group_count", [0, 5000]),
        ("ssm.time_step_rank", [0, 5000]),
        ("ssm.inner_size", [0, u32::MAX]),
        ("ple.ngram_size", [0, 9]),
        ("ple.heads_per_ngram", [0, u32::MAX]),
        ("ple.conv_kernel", [0, u32::MAX]),
        ("embedding_length_per_layer_input", [0, u32::MAX]),
        ("rope.dimension_count", [0, 33]),
    ] {
        for value in values {
            refused("qwen4exp_s", &format!("qwen4exp.{key}"), Key::U32(value), "not within");
        }
    }
    // The fixtures of qwen4exp have no dense length to fall back to where a length is 0.
    for key in ["expert_feed_forward_length", "expert_shared_feed_forward_length"] {
        for value in [0, u32::MAX] {
            refused("qwen4exp_s", &format!("qwen4exp.{key}"), Key::U32(value), "not within");
        }
    }
}

#[test]
fn sizes_that_contradict_each_other_are_refused() {
    refused("qwen3moe", "qwen3moe.attention.head_count_kv", Key::U32(3), "no divisor of the 8 heads");
    refused("qwen2moe", "qwen2moe.attention.head_count", Key::U32(6), "no divisor of the width 256");
    refused("qwen4exp_s", "qwen4exp.attention.value_length", Key::U32(16), "gated heads are 32 wide");
    refused("qwen4exp_s", "qwen4exp.ssm.time_step_rank", Key::U32(3), "no multiple of the 2 groups");
    refused("qwen4exp_s", "qwen4exp.ssm.inner_size", Key::U32(126), "no multiple of the 4 value heads");
    refused("qwen4exp_s", "qwen4exp.rope.dimension_count", Key::U32(15), "an odd number");
    refused("qwen3next", "qwen3next.attention.recurrent_layers", Key::Bools(vec![true]), "1 entries for 4 layers");
    refused("qwen3next", "qwen3next.nextn_predict_layers", Key::U32(4), "not within 0 to 3");
}

#[test]
fn an_indexer_that_cannot_work_is_refused() {
    let ratios = "qwen4exp.attention.compress_ratios";
    refused("qwen4exp_s", ratios, Key::I32s(vec![0, 0, 0, 1]), "not above 1");
    refused("qwen4exp_s", ratios, Key::I32s(vec![0, 0, 0, 5]), "divisor of the budget 32");
    refused("qwen4exp_s", ratios, Key::I32s(vec![0, 0, 2, 4]), "one ratio is supported");
    refused("qwen4exp_s", ratios, Key::I32s(vec![0, 0, 0, -4]), "not an integer from 0");
    refused("qwen4exp_s", ratios, Key::I32s(vec![4]), "fewer than the 4 needed");
    let found = error(edited("qwen4exp_s", |model| model.remove_key("qwen4exp.attention.indexer.head_count")));
    let key = "qwen4exp.attention.indexer.head_count".into();
    assert_eq!(found, EngineError::Gguf(Error::MissingKey { key }));
}

#[test]
fn n_grams_that_no_table_holds_are_refused() {
    let sizes = "qwen4exp.ple.head_vocab_sizes";
    refused("qwen4exp_s", sizes, Key::U64s(vec![307, 311, 313, 350]), "reach row 1281 of a table that has 1280");
    refused("qwen4exp_s", sizes, Key::U64s(vec![307, 0, 313, 317]), "gives head 1 the 0 rows");
    refused("qwen4exp_s", sizes, Key::U64s(vec![307, 311, u64::MAX, 317]), "gives head 2");
    refused("qwen4exp_s", sizes, Key::U64s(vec![307, 311, 313]), "fewer than the 4 needed");
    refused("qwen4exp_s", "qwen4exp.ple.eos_token_id", Key::U32(512), "is 512, outside the vocabulary of 512");
    refused("qwen4exp_s", "qwen4exp.ple.layer_multipliers", Key::U64s(vec![1, 2]), "fewer than the 3 needed");
    refused("qwen4exp_s", "qwen4exp.ple.layers", Key::I32s(vec![4]), "names layer 4 of 4");
    refused("qwen4exp_s", "qwen4exp.ple.layers", Key::I32s(vec![0, 1]), "names 2 layers");
    contradicts("qwen4exp_s", "qwen4exp.ple.ngram_size", Key::U32(2), "blk.1.ple_key.weight");
}

#[test]
fn numbers_that_are_none_are_refused() {
    for value in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        for key in ["attention.layer_norm_rms_epsilon", "rope.freq_base", "attention.scale", "expert_weights_scale"] {
            refused("qwen3moe", &format!("qwen3moe.{key}"), Key::F32(value), "not a number above 0");
        }
    }
}

#[test]
fn what_would_silently_change_the_answer_is_refused() {
    refused("olmoe", "olmoe.attention.clamp_kqv", Key::F32(8.0), "not supported");
    refused("qwen3moe", "qwen3moe.attention.sliding_window", Key::U32(128), "not supported");
    refused("mixtral", "llama.residual_scale", Key::F32(0.5), "not supported");
    refused("qwen3moe", "qwen3moe.rope.scaling.type", Key::Str("longrope".into()), "supported: none, linear, yarn");
    refused("qwen3moe", "qwen3moe.attention.causal", Key::Bool(false), "not supported");
    refused("qwen3moe", "qwen3moe.expert_gating_func", Key::U32(4), "supported: 1 softmax, 2 sigmoid");
    refused("qwen3moe", "qwen3moe.attention.head_count", Key::I32s(vec![8, 4]), "differs from layer to layer");
    load(edited("qwen3moe", |model| model.set("qwen3moe.attention.sliding_window", Key::U32(0)))).unwrap();
    load(edited("qwen3moe", |model| model.set("qwen3moe.attention.head_count", Key::I32s(vec![8, 8])))).unwrap();
}

#[test]
fn sizes_that_contradict_the_tensors_are_refused() {
    contradicts("qwen3moe", "qwen3moe.expert_count", Key::U32(7), "blk.0.ffn_gate_inp.weight");
    contradicts("qwen3moe", "qwen3moe.expert_feed_forward_length", Key::U32(32), "blk.0.ffn_gate_exps.weight");
    contradicts("qwen3moe", "qwen3moe.embedding_length", Key::U32(512), "token_embd.weight");
    contradicts("qwen3moe", "qwen3moe.attention.head_count", Key::U32(4), "blk.0.attn_q.weight");
    contradicts("qwen4exp_s", "qwen4exp.hyper_connection.count", Key::U32(2), "blk.0.hc_attn_norm.weight");
    contradicts("qwen4exp_s", "qwen4exp.ssm.state_size", Key::U32(16), "blk.0.attn_qkv.weight");
    let found = error(edited("qwen3moe", |model| model.set("qwen3moe.block_count", Key::U32(3))));
    assert_eq!(found, EngineError::MissingTensor { tensor: "blk.2.attn_norm.weight".into() });
    let found = error(edited("qwen3moe", |model| model.set("qwen3moe.block_count", Key::U32(1))));
    assert!(matches!(&found, EngineError::ForeignTensor { tensor, .. } if tensor.starts_with("blk.1.")), "{found:?}");
}

#[test]
fn groups_of_experts_are_checked() {
    let grouped = |groups, used| {
        edited("qwen3moe", |model: &mut Model| {
            model.set("qwen3moe.expert_group_count", Key::U32(groups));
            model.set("qwen3moe.expert_group_used_count", Key::U32(used));
        })
    };
    let message = |groups, used| error(grouped(groups, used)).to_string();
    assert!(message(3, 1).contains("no divisor of the 8 experts"));
    assert!(message(4, 1).contains("too few groups of 2 for 3 experts"));
    assert!(message(4, 5).contains("not within 1 to 4"));
    assert!(message(4, 2).contains("only supported beside a bias"));
    let biased = edited("qwen3moe", |model| {
        model.set("qwen3moe.expert_group_count", Key::U32(4));
        model.set("qwen3moe.expert_group_used_count", Key::U32(2));
        (0..2).for_each(|layer| model.add_f32(&format!("blk.{layer}.exp_probs_b.bias"), &[0.0; 8]));
    });
    load(biased).unwrap();
}

/// A fixture turned by YaRN, with one more key.
fn yarn(model: &str, architecture: &str, key: &str, value: Key) -> EngineError {
    error(edited(model, |model| {
        model.set(&format!("{architecture}.rope.scaling.type"), Key::Str("yarn".into()));
        model.set(&format!("{architecture}.rope.scaling.factor"), Key::F32(4.0));
        model.set(&format!("{architecture}.{key}"), value);
    }))
}

#[test]
fn rotations_that_yarn_cannot_be_read_from_are_refused() {
    for (key, value, reason) in [
        ("rope.freq_base", Key::F32(1.0), "YaRN cannot mix"),
        ("rope.scaling.yarn_ext_factor", Key::F32(0.5), "not supported"),
        ("rope.scaling.yarn_log_multiplier", Key::F32(0.1), "not supported"),
        ("rope.scaling.yarn_beta_fast", Key::F32(0.0), "not a number above 0"),
        ("rope.scaling.original_context_length", Key::U32(0), "not within"),
    ] {
        let found = yarn("qwen3moe", "qwen3moe", key, value);
        let EngineError::Key { key: named, what } = &found else { panic!("{found:?}") };
        assert_eq!(*named, format!("qwen3moe.{key}"));
        assert!(what.contains(reason), "{found}");
    }
    // Nothing scales some of the columns where no norm comes before.
    let found = yarn("mixtral", "llama", "rope.dimension_count", Key::U32(32));
    assert!(found.to_string().contains("is 32, fewer than the 64 columns"), "{found}");
}

#[test]
fn a_key_of_another_type_is_refused() {
    let found = error(edited("qwen3moe", |model| model.set("qwen3moe.block_count", Key::Str("2".into()))));
    assert!(
        matches!(&found, EngineError::Gguf(Error::ValueType { key, .. }) if key == "qwen3moe.block_count"),
        "{found:?}"
    );
    let found = error(edited("qwen3moe", |model| model.set("qwen3moe.block_count", Key::I32s(vec![]))));
    assert!(matches!(&found, EngineError::Key { key, .. } if key == "qwen3moe.block_count"), "{found:?}");
}

#[test]
fn a_missing_key_is_named() {
    for key in ["embedding_length", "block_count", "context_length", "attention.head_count", "expert_used_count"] {
        let key = format!("qwen3moe.{key}");
        let found = error(edited("qwen3moe", |model| model.remove_key(&key)));
        assert_eq!(found, EngineError::Gguf(Error::MissingKey { key }));
    }
}

/// Every key of every family, set to anything: the file loads and answers, or is refused; nothing else happens.
#[test]
fn no_value_of_any_key_panics() {
    let values = [
        Key::U32(0),
        Key::U32(1),
        Key::U32(3),
        Key::U32(u32::MAX),
        Key::I32(-1),
        Key::F32(f32::NAN),
        Key::F32(0.5),
        Key::Str(String::new()),
        Key::I32s(vec![]),
        Key::I32s(vec![-1; 4]),
        Key::U64s(vec![u64::MAX; 5]),
        Key::Bools(vec![true; 4]),
        Key::Bools(vec![false; 4]),
    ];
    for model in MODELS {
        let original = gguf(model);
        let architecture = original.metadata().require_str("general.architecture").unwrap();
        let keys: Vec<_> = original.metadata().keys().filter(|key| key.starts_with(architecture)).collect();
        assert!(keys.len() >= 10, "{keys:?}");
        for key in keys {
            for value in &values {
                if let Ok(engine) = load(edited(model, |model| model.set(key, value.clone()))) {
                    let mut session = engine.session(SessionOptions { context: 8, chunk: 3, cache: EXACT }).unwrap();
                    let found = prefill(&mut session, &[1, 2, 3, 4, 5], Logits::Last);
                    assert_eq!(found.values.len(), 512, "{key} = {value:?}");
                }
            }
        }
    }
}
