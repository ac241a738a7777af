//! The same model written in other ways, and what a file may hold beyond it.

use argon_engine::Logits;
use argon_engine::compare::Comparison;
use argon_engine::probe::{Intermediate, Probe, Shown, Values};
use argon_gguf::{Format, Gguf};

use crate::edit::{Key, Model, edited};
use crate::fixture::{all_logits, bits, cpu, engine, load_on, prompts, session};

/// Logits of p1 and p2 of `gguf`, as bits.
fn answer(gguf: Gguf) -> Vec<u32> {
    let engine = load_on(cpu(), gguf);
    let [_, p1, p2] = prompts();
    [p1, p2].iter().flat_map(|prompt| bits(&all_logits(&engine, 64, prompt).values)).collect()
}

fn unchanged(name: &str) -> Vec<u32> {
    answer(edited(name, |_| ()))
}

/// Puts the rows of several tensors behind each other, expert by expert, into one called `name`.
fn fuse(model: &mut Model, parts: &[&str], name: &str) {
    let parts: Vec<_> = parts.iter().map(|part| model.take(part)).collect();
    let experts = parts[0].shape.get(2).copied().unwrap_or(1);
    let bytes = (0..experts).flat_map(|expert| {
        parts.iter().flat_map(move |part| {
            let len = part.bytes.len() / experts;
            part.bytes[expert * len..(expert + 1) * len].to_vec()
        })
    });
    let rows = parts.iter().map(|part| part.shape[1]).sum();
    let mut shape = vec![parts[0].shape[0], rows];
    shape.extend(parts[0].shape.get(2));
    let format = parts[0].format;
    let bytes = bytes.collect();
    model.add(name, &shape, format, bytes);
}

#[test]
fn gate_and_up_may_be_one_tensor() {
    for name in ["qwen4exp_s", "qwen3moe"] {
        let fused = edited(name, |model| {
            for layer in 0..2 {
                let [gate, up, both] =
                    ["gate", "up", "gate_up"].map(|part| format!("blk.{layer}.ffn_{part}_exps.weight"));
                fuse(model, &[&gate, &up], &both);
            }
        });
        assert_eq!(answer(fused), unchanged(name), "{name}");
    }
}

#[test]
fn queries_keys_and_values_may_be_one_tensor() {
    for name in ["qwen2moe", "olmoe"] {
        let fused = edited(name, |model| {
            let [q, k, v, all] = ["q", "k", "v", "qkv"].map(|part| format!("blk.1.attn_{part}.weight"));
            fuse(model, &[&q, &k, &v], &all);
        });
        assert_eq!(answer(fused), unchanged(name), "{name}");
    }
}

#[test]
fn delta_nets_projections_may_be_one_tensor_in_the_order_of_old_files() {
    const KEY_HEADS: usize = 4;
    // Rows of a key head's query, its key, its values and their gates.
    const PARTS: [usize; 4] = [32, 32, 64, 64];
    let old = edited("qwen3next", |model| {
        for layer in 0..3 {
            let [qkv, z] = ["attn_qkv", "attn_gate"].map(|part| model.take(&format!("blk.{layer}.{part}.weight")));
            let row = z.bytes.len() / z.shape[1];
            let rows = [qkv.bytes, z.bytes].concat();
            let mut bytes = Vec::new();
            for head in 0..KEY_HEADS {
                let mut first = 0;
                for part in PARTS {
                    bytes.extend(&rows[(first + head * part) * row..][..part * row]);
                    first += KEY_HEADS * part;
                }
            }
            model.add(&format!("blk.{layer}.ssm_in.weight"), &[256, KEY_HEADS * 192], z.format, bytes);
        }
    });
    assert_eq!(answer(old), unchanged("qwen3next"));
}

#[test]
fn a_vector_may_be_a_row_or_a_column_and_of_any_float_format() {
    let reshaped = edited("qwen4exp_s", |model| {
        model.tensor("blk.0.hc_attn_norm.weight").shape = vec![128, 4];
        model.tensor("blk.0.ffn_gate_inp_shexp.weight").shape = vec![128, 1];
        model.tensor("output_hc_norm.weight").shape = vec![128, 4, 1, 1];
    });
    assert_eq!(answer(reshaped), unchanged("qwen4exp_s"));
}

#[test]
fn factors_of_one_leave_the_rotation_alone_and_others_do_not() {
    let with_factors = |factor: f32| edited("mixtral", |model| model.add_f32("rope_freqs.weight", &[factor; 32]));
    assert_eq!(answer(with_factors(1.0)), unchanged("mixtral"));
    let slower = answer(with_factors(2.0));
    assert_ne!(slower, unchanged("mixtral"));
    // Dividing every frequency by 2 is what linear scaling by 2 does.
    let scaled = edited("mixtral", |model| {
        model.set("llama.rope.scaling.type", Key::Str("linear".into()));
        model.set("llama.rope.scaling.factor", Key::F32(2.0));
    });
    assert_eq!(answer(scaled), slower);
}

#[test]
fn the_output_may_be_the_embedding() {
    let copied = edited("qwen3moe", |model| {
        let embedding = model.tensor("token_embd.weight").clone();
        *model.tensor("output.weight") = crate::edit::Tensor { name: "output.weight".into(), ..embedding };
    });
    let tied = edited("qwen3moe", |model| drop(model.take("output.weight")));
    assert_eq!(answer(tied), answer(copied));
}

#[test]
fn layers_for_drafting_and_a_vision_tower_are_skipped_and_named() {
    let larger = edited("qwen3next", |model| {
        model.set("qwen3next.block_count", Key::U32(5));
        model.set("qwen3next.nextn_predict_layers", Key::U32(1));
        model.set("qwen3next.attention.recurrent_layers", Key::Bools(vec![true, true, true, false, false]));
        model.add_f32("blk.4.nextn.enorm.weight", &[1.0; 256]);
        model.add_f32("v.patch_embd.weight", &[1.0; 8]);
    });
    let engine = load_on(cpu(), larger.clone());
    assert_eq!(engine.info().layers, 4);
    assert_eq!(engine.info().skipped, ["drafting (MTP): 1 layer(s), 1024 bytes", "vision: 32 bytes"]);
    assert_eq!(answer(larger), unchanged("qwen3next"));
    assert!(self::engine("qwen3next").info().skipped.is_empty());
}

#[test]
fn an_indexer_without_a_ratio_is_dense_attention_and_a_warning() {
    let [p0, _, p2] = prompts();
    let sparse = engine("qwen4exp_s");
    assert_eq!(sparse.info().warnings, [""; 0]);
    let zeros = edited("qwen4exp_s", |model| {
        model.set("qwen4exp.attention.compress_ratios", Key::I32s(vec![0; 4]));
    });
    let without = edited("qwen4exp_s", |model| model.remove_key("qwen4exp.attention.compress_ratios"));
    for file in [zeros, without] {
        let dense = load_on(cpu(), file);
        let [warning] = dense.info().warnings.as_slice() else { panic!("{:?}", dense.info().warnings) };
        assert!(warning.contains("indexer tensors") && warning.contains("dense"), "{warning}");
        // Seven tokens are within the budget, 200 are not.
        assert_eq!(bits(&all_logits(&dense, 64, &p0).values), bits(&all_logits(&sparse, 64, &p0).values));
        assert_ne!(bits(&all_logits(&dense, 64, &p2).values), bits(&all_logits(&sparse, 64, &p2).values));
    }
}

/// The fixture qwen3next as a qwen35moe file: value heads tiled instead of grouped, alpha and beta apart.
fn qwen3next_as_qwen35moe() -> Gguf {
    const KEY_HEADS: usize = 4;
    const VALUE_HEADS: usize = 8;
    const DIM: usize = 32;
    let per_key_head = VALUE_HEADS / KEY_HEADS;
    // Tiled head t, which key head t mod 4 serves, is this one of the grouped heads.
    let grouped = |t: usize| t % KEY_HEADS * per_key_head + t / KEY_HEADS;
    edited("qwen3next", |model| {
        let original = crate::fixture::gguf("qwen3next");
        model.keys.retain(|(key, _)| !key.starts_with("qwen3next."));
        for key in original.metadata().keys().filter(|key| key.starts_with("qwen3next.")) {
            let renamed = key.replace("qwen3next.", "qwen35moe.");
            let metadata = original.metadata();
            let value = match (metadata.u32(key), metadata.f32(key), metadata.bool_array(key)) {
                (Ok(Some(value)), ..) => Key::U32(value),
                (_, Ok(Some(value)), _) => Key::F32(value),
                (.., Ok(Some(values))) => Key::Bools(values),
                _ => panic!("{key}"),
            };
            model.set(&renamed, value);
        }
        model.set("general.architecture", Key::Str("qwen35moe".into()));
        for layer in 0..3 {
            let name = |part: &str| format!("blk.{layer}.{part}");
            // Pieces of so many bytes are put into another order, behind those of the keys and queries.
            let mut reorder = |part: &str, first: usize, piece: usize| {
                let bytes = &mut model.tensor(&name(part)).bytes;
                let old = bytes[first * piece..].to_vec();
                for (t, new) in bytes[first * piece..].chunks_exact_mut(piece).enumerate() {
                    new.copy_from_slice(&old[grouped(t) * piece..][..piece]);
                }
            };
            let row = original.tensor(&name("attn_qkv.weight")).unwrap().row_bytes();
            reorder("attn_qkv.weight", 2 * KEY_HEADS, DIM * row);
            reorder("attn_gate.weight", 0, DIM * row);
            reorder("ssm_conv1d.weight", 2 * KEY_HEADS, DIM * 4 * size_of::<f32>());
            reorder("ssm_a", 0, size_of::<f32>());
            reorder("ssm_dt.bias", 0, size_of::<f32>());
            let out = &mut model.tensor(&name("ssm_out.weight")).bytes;
            let block = Format::Q8_0.block_bytes(); // of 32 weights: one head of a row
            for row in out.chunks_exact_mut(VALUE_HEADS * block) {
                let old = row.to_vec();
                for (t, new) in row.chunks_exact_mut(block).enumerate() {
                    new.copy_from_slice(&old[grouped(t) * block..][..block]);
                }
            }
            let both = model.take(&name("ssm_ba.weight"));
            let row = both.bytes.len() / (2 * VALUE_HEADS);
            for (part, second) in [("ssm_beta.weight", 0), ("ssm_alpha.weight", per_key_head)] {
                let rows = (0..VALUE_HEADS).map(|t| 2 * per_key_head * (t % KEY_HEADS) + second + t / KEY_HEADS);
                let bytes = rows.flat_map(|from| both.bytes[from * row..][..row].to_vec()).collect();
                model.add(&name(part), &[256, VALUE_HEADS], both.format, bytes);
            }
        }
    })
}

#[test]
fn value_heads_grouped_and_tiled_are_two_orders_of_one_model() {
    let (grouped, tiled) = (engine("qwen3next"), load_on(cpu(), qwen3next_as_qwen35moe()));
    assert_eq!(tiled.info().architecture, "qwen35moe");
    for prompt in prompts() {
        let (expected, found) = (all_logits(&grouped, 64, &prompt), all_logits(&tiled, 64, &prompt));
        // The output projection sums the heads in another order: f32 rounding.
        let comparison = Comparison::new(&expected.values, &found.values, 512);
        assert!(comparison.max_abs < 1e-4 && comparison.same_argmax == prompt.len(), "{comparison:?}");
    }
}

/// Keeps what it asked for.
struct Keep {
    wanted: Intermediate,
    shown: Vec<Shown>,
}

impl Probe for Keep {
    fn wants(&self, what: Intermediate, _: usize) -> bool {
        what == self.wanted
    }

    fn see(&mut self, shown: Shown) {
        self.shown.push(shown);
    }
}

/// Everything of one kind that a prefill of `tokens` in chunks of 24 shows.
fn shown(model: &str, wanted: Intermediate, tokens: &[u32]) -> Vec<Shown> {
    let engine = engine(model);
    let mut keep = Keep { wanted, shown: Vec::new() };
    let logits = session(&engine, 24).prefill_probed(tokens, Logits::All, &mut keep).unwrap().unwrap();
    // Looking changes nothing.
    assert_eq!(bits(&logits.values), bits(&all_logits(&engine, 24, tokens).values));
    keep.shown
}

#[test]
fn a_probe_sees_the_router_of_every_layer_and_chunk() {
    let [_, p1, _] = prompts();
    let ids = shown("qwen4exp_s", Intermediate::RouterIds, &p1);
    let at: Vec<_> = ids.iter().map(|shown| (shown.layer, shown.start, shown.width)).collect();
    let expected: Vec<_> = [0, 24, 48].iter().flat_map(|&start| (0..4).map(move |layer| (layer, start, 4))).collect();
    assert_eq!(at, expected);
    for shown in ids {
        let Values::I32(ids) = shown.values else { panic!("ids are integers") };
        assert_eq!(ids.len(), 4 * (p1.len() - shown.start).min(24));
        for chosen in ids.chunks(4) {
            assert!(chosen.iter().all(|id| (0..16).contains(id)));
            assert!((1..4).all(|i| !chosen[..i].contains(&chosen[i])), "{chosen:?}");
        }
    }
    for shown in shown("qwen4exp_s", Intermediate::RouterWeights, &p1) {
        let Values::F32(weights) = shown.values else { panic!("weights are numbers") };
        // Renormalised: f32 rounding of four weights.
        assert!(weights.chunks(4).all(|of_token| (of_token.iter().sum::<f32>() - 1.0).abs() < 1e-6));
    }
}

#[test]
fn a_probe_sees_the_blocks_that_the_indexer_selects() {
    let [p0, _, p2] = prompts();
    assert!(shown("qwen4exp_s", Intermediate::SelectedBlocks, &p0).is_empty());
    let mut rows = 0;
    for shown in shown("qwen4exp_s", Intermediate::SelectedBlocks, &p2) {
        assert_eq!((shown.layer, shown.width), (3, 8)); // a budget of 32 tokens in blocks of 4
        let Values::I32(blocks) = shown.values else { panic!("blocks are integers") };
        for (position, selected) in (shown.start..).zip(blocks.chunks(8)) {
            let complete = (position + 1) / 4;
            let (some, none) = selected.split_at(complete.min(8));
            assert!(none.iter().all(|&block| block == -1));
            assert!(some.is_sorted() && some.windows(2).all(|pair| pair[0] != pair[1]));
            assert!(some.iter().all(|&block| (0..complete as i32).contains(&block)));
            rows += 1;
        }
    }
    assert_eq!(rows, p2.len() - 24); // the first chunk ends with 6 complete blocks, fewer than 8
}

#[test]
fn a_probe_sees_the_residual_of_all_streams() {
    let [p0, ..] = prompts();
    let residuals = shown("qwen4exp_s", Intermediate::Residual, &p0);
    assert_eq!(residuals.len(), 4);
    for shown in residuals {
        assert_eq!(shown.width, 4 * 128);
        let Values::F32(values) = shown.values else { panic!("numbers") };
        assert!(values.len() == 7 * 512 && values.iter().all(|value| value.is_finite()));
    }
}

#[test]
fn the_file_decides_what_info_says() {
    let engine = engine("qwen4exp_s");
    let info = engine.info();
    assert_eq!((info.architecture, info.name.as_deref()), ("qwen4exp", Some("Qwen4Exp_S")));
    assert_eq!((info.layers, info.attention_layers, info.hidden, info.streams), (4, 1, 128, 4));
    assert_eq!((info.experts, info.experts_used, info.vocabulary, info.context), (16, 4, 512, 4096));
    let bytes = crate::fixture::gguf("qwen4exp_s").tensors().iter().map(|tensor| tensor.bytes).sum::<usize>();
    assert_eq!(info.file_bytes, bytes);
    assert_eq!(engine.tokenizer().unwrap().vocab_size(), 512);
}

#[test]
fn a_file_without_a_tokenizer_still_runs_ids() {
    let bare = edited("qwen3moe", |model| model.keys.retain(|(key, _)| !key.starts_with("tokenizer.")));
    let engine = load_on(cpu(), bare.clone());
    assert!(engine.tokenizer().is_err());
    assert_eq!(answer(bare), unchanged("qwen3moe"));
}

#[test]
fn weights_of_one_layer_may_have_different_formats() {
    // The fixture's down rows expanded to f32: products in f32 decode to exactly these numbers.
    let expanded = edited("qwen3moe", |model| {
        let tensor = model.tensor("blk.0.ffn_down_exps.weight");
        let mut values = vec![0f32; tensor.shape.iter().product()];
        argon_gguf::decode_row(tensor.format, &tensor.bytes, &mut values);
        tensor.format = Format::F32;
        tensor.bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    });
    assert_eq!(answer(expanded), unchanged("qwen3moe"));
}
