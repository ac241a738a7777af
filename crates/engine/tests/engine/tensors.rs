//! Tensors that are missing, too many or of another shape.

use std::sync::Arc;

use argon_engine::{Engine, EngineError, EngineOptions};
use argon_gguf::{Format, Gguf};

use crate::edit::edited;
use crate::fixture::{MODELS, cpu, gguf};

fn load(gguf: Gguf) -> Result<(), EngineError> {
    Engine::load(gguf, Arc::new(cpu()), EngineOptions::default()).map(drop)
}

#[test]
fn every_tensor_is_missed_by_name() {
    for model in MODELS {
        for name in gguf(model).tensors().iter().map(|tensor| tensor.name.clone()) {
            let found = load(edited(model, |model| drop(model.take(&name))));
            match name.as_str() {
                "output.weight" => assert_eq!(found, Ok(())), // the embedding serves instead
                _ => assert_eq!(found, Err(EngineError::MissingTensor { tensor: name }), "{model}"),
            }
        }
    }
}

#[test]
fn every_tensor_of_another_shape_is_refused_with_both_shapes() {
    for model in MODELS {
        for info in gguf(model).tensors() {
            let (name, shape) = (&info.name, &info.shape);
            // One row fewer; of a vector, as many elements as a block more.
            let changed = edited(model, |model| {
                let tensor = model.tensor(name);
                match tensor.shape.last_mut() {
                    Some(last) if shape.len() > 1 => *last -= 1,
                    _ => tensor.shape[0] += tensor.format.block_len(),
                }
                let rows: usize = tensor.shape[1..].iter().product();
                tensor.bytes.resize(tensor.format.row_bytes(tensor.shape[0]).unwrap() * rows, 0);
            });
            match load(changed) {
                Err(EngineError::Shape { tensor, expected, found }) => {
                    // The vocabulary is what the embedding says, so that it is the output that differs.
                    let blamed = if name == "token_embd.weight" { "output.weight" } else { name };
                    assert_eq!(tensor, blamed);
                    assert_ne!(expected, found, "{model}: {name}");
                }
                Err(EngineError::Key { key, .. }) => assert_eq!(key, "qwen4exp.ple.head_vocab_sizes"),
                other => {
                    assert!(name == "per_layer_token_embd.weight" && other == Ok(()), "{model}: {name}: {other:?}")
                }
            }
        }
    }
}

#[test]
fn a_tensor_that_the_architecture_does_not_have_is_refused() {
    for (model, name, architecture) in [
        ("qwen3moe", "blk.0.attn_norm.bias", "qwen3moe"),
        ("qwen3moe", "blk.2.attn_norm.weight", "qwen3moe"),
        ("mixtral", "blk.1.attn_q_norm.weight", "llama"),
        ("olmoe", "blk.0.ffn_gate_exps.scale", "olmoe"),
        ("qwen4exp_s", "output_norm.weight", "qwen4exp"),
        ("qwen3next", "blk.0.indexer.k_norm.weight", "qwen3next"),
    ] {
        let found = load(edited(model, |model| model.add_f32(name, &[1.0; 32])));
        assert_eq!(found, Err(EngineError::ForeignTensor { tensor: name.into(), architecture }));
    }
}

#[test]
fn a_bias_of_queries_alone_is_refused() {
    let found = load(edited("qwen3moe", |model| model.add_f32("blk.0.attn_q.bias", &[0.0; 512])));
    assert_eq!(found, Err(EngineError::MissingTensor { tensor: "blk.0.attn_k.bias".into() }));
}

#[test]
fn integers_are_no_weights() {
    let name = "blk.0.attn_norm.weight";
    let found = load(edited("qwen3moe", |model| model.tensor(name).format = Format::I32));
    assert_eq!(found, Err(EngineError::NotWeights { tensor: name.into(), format: Format::I32 }));
}

#[test]
fn a_vocabulary_larger_than_the_embedding_is_refused() {
    let small = edited("qwen3moe", |model| {
        for name in ["token_embd.weight", "output.weight"] {
            let tensor = model.tensor(name);
            tensor.shape[1] = 500;
            tensor.bytes.truncate(tensor.format.row_bytes(tensor.shape[0]).unwrap() * 500);
        }
    });
    let what = "has 512 tokens, but token_embd.weight has 500 rows".into();
    assert_eq!(load(small), Err(EngineError::Key { key: "tokenizer.ggml.tokens".into(), what }));
}

#[test]
fn a_precision_that_the_device_lacks_is_refused_with_those_it_has() {
    use argon_kernels::Precision;
    use argon_kernels::reference::ReferenceDevice;
    let options = EngineOptions { precision: Some(Precision::Int8) };
    let found = Engine::load(gguf("qwen3moe"), Arc::new(ReferenceDevice::default()), options).err();
    let what = "reference has f32, not int8".into();
    assert_eq!(found, Some(EngineError::Option { option: "precision", what }));
}
