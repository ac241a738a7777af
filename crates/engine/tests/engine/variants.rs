//! What files of the families may have beyond what the other fixtures do, against another engine's logits of every token
//! (see fixtures/models/README.md), or against a fixture that says the same in another way.

use argon_engine::compare::Comparison;
use argon_gguf::Format;

use crate::edit::{Key, Model, edited};
use crate::fixture::{self, all_logits, bits, cpu, engine, load_on, prompts};
use crate::npy;

/// Rounding of two engines that work in f32; what they differ by here is below 8e-6.
const F32: f64 = 5e-5;

/// Compares the logits of every token of `prompt`, read in chunks of two lengths, with those of the fixture.
#[track_caller]
fn assert_agrees(model: &str, prompt: &[u32]) {
    let expected = npy::read(fixture::path(&format!("{model}.npy")));
    let [rows, vocabulary] = expected.shape[..] else { panic!("{model}: {:?}", expected.shape) };
    assert_eq!(rows, prompt.len());
    for chunk in [7, 64] {
        let found = all_logits(&engine(model), chunk, prompt);
        let comparison = Comparison::new(&expected.values, &found.values, vocabulary);
        assert!(comparison.max_abs < F32, "{model} in chunks of {chunk}: {comparison:?}");
        assert_eq!(comparison.same_argmax, rows, "{model} in chunks of {chunk}");
    }
}

#[test]
fn rotations_by_yarn_agree_with_llama_cpp() {
    let prompt: Vec<u32> = (0..40).map(|i| i * 11 % 29).collect();
    for model in ["yarn_qwen3next", "yarn_llama", "yarn_qwen4exp"] {
        assert_agrees(model, &prompt);
    }
}

/// llama.cpp refuses biases here, and gives DeltaNet the epsilon of the norms.
#[test]
fn an_epsilon_of_the_norms_alone_and_biases_agree_with_transformers() {
    assert_agrees("hf_qwen35moe", &(0..64).collect::<Vec<u32>>());
}

/// Both changes of a fixture give the same bits, which are not those of the fixture.
#[track_caller]
fn assert_same(model: &str, one: impl FnOnce(&mut Model), other: impl FnOnce(&mut Model)) {
    let [_, p1, _] = prompts();
    let logits = |gguf| bits(&all_logits(&load_on(cpu(), gguf), 64, &p1).values);
    let (one, other) = (logits(edited(model, one)), logits(edited(model, other)));
    assert_ne!(one, logits(fixture::gguf(model)));
    assert_eq!(one, other);
}

#[test]
fn the_old_name_of_linear_scaling_is_known_where_the_new_one_is_missing() {
    let factor = |model: &mut Model| model.set("qwen3moe.rope.scaling.factor", Key::F32(4.0));
    assert_same("qwen3moe", factor, |model| model.set("qwen3moe.rope.scale_linear", Key::F32(4.0)));
    assert_same("qwen3moe", factor, |model| {
        model.set("qwen3moe.rope.scale_linear", Key::F32(9.0));
        factor(model);
    });
}

/// Adds a bias of 0, 0.5, 0, 0.5, ... to the queries of the first layer, and one of zeros to keys and values.
fn biased(model: &mut Model) {
    let queries: Vec<f32> = (0..512).map(|i| 0.5 * (i % 2) as f32).collect();
    model.add_f32("blk.0.attn_q.bias", &queries);
    model.add_f32("blk.0.attn_k.bias", &[0.0; 128]);
    model.add_f32("blk.0.attn_v.bias", &[0.0; 128]);
}

#[test]
fn biases_of_projections_are_taken_in_one_tensor_or_three() {
    assert_same("qwen3moe", biased, |model| {
        biased(model);
        let bytes = ["q", "k", "v"].map(|part| model.take(&format!("blk.0.attn_{part}.bias")).bytes).concat();
        model.add("blk.0.attn_qkv.bias", &[768], Format::F32, bytes);
    });
}

#[test]
fn a_bias_of_the_attention_is_added_to_every_token() {
    let [_, p1, _] = prompts();
    let logits = |change: fn(&mut Model)| all_logits(&load_on(cpu(), edited("mixtral", change)), 64, &p1).values;
    let zeros = logits(|model| model.add_f32("blk.0.attn_output.bias", &[0.0; 256]));
    assert_eq!(bits(&zeros), bits(&all_logits(&engine("mixtral"), 64, &p1).values));
    let ones = logits(|model| model.add_f32("blk.0.attn_output.bias", &[1.0; 256]));
    for (zeros, ones) in zeros.chunks(512).zip(ones.chunks(512)) {
        assert_ne!(bits(zeros), bits(ones));
    }
}

#[test]
fn experts_are_as_long_as_the_dense_length_says_where_theirs_is_missing() {
    let [_, p1, _] = prompts();
    let missing = |key: &'static str, length| {
        let gguf = edited("qwen2moe", |model| {
            model.remove_key(&format!("qwen2moe.{key}"));
            model.set("qwen2moe.feed_forward_length", Key::U32(length));
        });
        bits(&all_logits(&load_on(cpu(), gguf), 64, &p1).values)
    };
    let expected = bits(&all_logits(&engine("qwen2moe"), 64, &p1).values);
    // Three experts of 64 a token; the shared one has all of a dense layer's length.
    assert_eq!(missing("expert_feed_forward_length", 3 * 64), expected);
    assert_eq!(missing("expert_shared_feed_forward_length", 160), expected);
}
