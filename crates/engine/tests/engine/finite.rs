//! Weights that are no numbers: found before they are used, and named by tensor, or by layer and expert.

use std::sync::Arc;

use argon_engine::probe::{Intermediate, Probe, Shown, Values};
use argon_engine::{Engine, EngineError, EngineOptions, Logits};
use argon_gguf::quant::scales::{Scales, scales};
use argon_gguf::{Format, Gguf};
use argon_kernels::Device;
use argon_kernels::reference::ReferenceDevice;

use crate::edit::{Tensor, edited};
use crate::fixture::{MODELS, all_logits, bits, cpu, engine, gguf, load_on, prefill, prompts, session};

/// Spoils the first scale of row `row`, of whatever format, or all of its weights.
fn spoil(tensor: &mut Tensor, row: usize, half: u16) {
    let row_bytes = tensor.format.row_bytes(tensor.shape[0]).unwrap();
    let bytes = &mut tensor.bytes[row * row_bytes..][..row_bytes];
    match scales(tensor.format) {
        Scales::Halves(offsets) => bytes[offsets[0]..][..2].copy_from_slice(&half.to_le_bytes()),
        Scales::None if tensor.format == Format::F32 => {
            let value = f32::from_bits(u32::from(half & 0x8000) << 16 | 0x7f80_0000 | u32::from(half & 0x3ff));
            bytes[..4].copy_from_slice(&value.to_le_bytes());
        }
        Scales::None => bytes[..2].copy_from_slice(&half.to_le_bytes()),
        other => panic!("{other:?}"),
    }
}

const NAN: u16 = 0x7e01;
const INFINITE: u16 = 0xfc00;

fn load(device: impl Device + 'static, gguf: Gguf) -> Result<Engine, EngineError> {
    Engine::load(gguf, Arc::new(device), EngineOptions::default())
}

/// What running `prompt` says, on a device that reads weights in place.
fn refusal(gguf: Gguf, prompt: &[u32]) -> EngineError {
    let engine = match load(cpu(), gguf) {
        Ok(engine) => engine,
        Err(error) => return error,
    };
    let error = session(&engine, 64).prefill_probed(prompt, Logits::Last, &mut Choices::default()).err();
    error.expect("a NaN is found before the end")
}

/// Remembers the chosen experts.
#[derive(Default)]
struct Choices(Vec<Vec<i32>>);

impl Probe for Choices {
    fn wants(&self, what: Intermediate, _: usize) -> bool {
        what == Intermediate::RouterIds
    }

    fn see(&mut self, shown: Shown) {
        let Values::I32(ids) = shown.values else { panic!("ids") };
        self.0.resize_with(self.0.len().max(shown.layer + 1), Vec::new);
        self.0[shown.layer].extend(ids);
    }
}

fn choices(engine: &Engine, prompt: &[u32]) -> Vec<Vec<i32>> {
    let mut choices = Choices::default();
    session(engine, 64).prefill_probed(prompt, Logits::Last, &mut choices).unwrap();
    choices.0
}

#[test]
fn every_weight_of_every_family_is_looked_at() {
    let [_, _, p2] = prompts();
    let prompt = [&p2[..], &[511]].concat();
    for model in MODELS {
        for info in gguf(model).tensors() {
            let (name, last) = (&info.name, info.rows() - 1);
            // Which rows of the n-gram table a prompt needs, only its hashes know: all are spoilt.
            let rows = if name == "per_layer_token_embd.weight" { 0..last + 1 } else { last..last + 1 };
            let spoilt =
                |half| edited(model, |model| rows.clone().for_each(|row| spoil(model.tensor(name), row, half)));
            let expected = match name.strip_prefix("blk.").filter(|rest| rest.contains("_exps.")) {
                None => None,
                Some(rest) => {
                    let (layer, experts) = (rest.split('.').next().unwrap().parse().unwrap(), info.shape[2]);
                    let row = info.rows() / experts - 1;
                    Some(EngineError::BadExpert { layer, expert: experts - 1, tensor: name.clone(), row })
                }
            };
            for half in [NAN, INFINITE] {
                let in_place = refusal(spoilt(half), &prompt);
                let copied = load(ReferenceDevice::default(), spoilt(half)).err().expect("looked at while loaded");
                for found in [in_place, copied] {
                    match (&expected, &found) {
                        (Some(expected), found) => assert_eq!(found, expected),
                        (None, EngineError::BadWeight { tensor, row }) => {
                            assert!(tensor == name && rows.contains(row), "{model}: {name}: {found:?}");
                        }
                        _ => panic!("{model}: {name}: {found:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn the_message_names_layer_and_expert() {
    let [_, _, p2] = prompts();
    let spoilt = edited("qwen3moe", |model| {
        let down = model.tensor("blk.1.ffn_down_exps.weight");
        spoil(down, 5 * 256 + 17, NAN);
    });
    let expected = "layer 1, expert 5: tensor \"blk.1.ffn_down_exps.weight\" has a scale in row 17 of it that is not a \
                    finite number";
    assert_eq!(refusal(spoilt, &p2).to_string(), expected);
}

#[test]
fn an_expert_that_no_token_needs_is_not_looked_at() {
    let [p0, _, p2] = prompts();
    let whole = engine("qwen4exp_s");
    let (few, many) = (choices(&whole, &p0), choices(&whole, &p2));
    let expected = all_logits(&whole, 64, &p0);
    for layer in 0..4 {
        let spared = |expert: &i32| !few[layer].contains(expert) && many[layer].contains(expert);
        let expert = (0..16).find(spared).expect("an expert that p2 needs and p0 does not") as usize;
        let name = format!("blk.{layer}.ffn_gate_exps.weight");
        let engine = load_on(
            cpu(),
            edited("qwen4exp_s", |model| {
                let gate = model.tensor(&name);
                spoil(gate, expert * gate.shape[1] + 3, NAN);
            }),
        );
        assert_eq!(bits(&all_logits(&engine, 64, &p0).values), bits(&expected.values));
        let mut one = session(&engine, 64);
        // Found each time, by every session, and by a session that goes on after a reset.
        for _ in 0..2 {
            let error = one.prefill_probed(&p2, Logits::Last, &mut Choices::default());
            assert_eq!(error, Err(EngineError::BadExpert { layer, expert, tensor: name.clone(), row: 3 }));
            one.reset().unwrap();
            assert_eq!(bits(&prefill(&mut one, &p0, Logits::All).values), bits(&expected.values));
            one.reset().unwrap();
        }
    }
}

#[test]
fn a_bad_embedding_is_refused_before_anything_runs() {
    let engine = load_on(cpu(), edited("olmoe", |model| spoil(model.tensor("token_embd.weight"), 7, NAN)));
    let mut one = session(&engine, 4);
    prefill(&mut one, &[1, 2], Logits::Last);
    let error = one.prefill_probed(&[3, 4, 5, 6, 7], Logits::Last, &mut Choices::default());
    assert_eq!(error, Err(EngineError::BadWeight { tensor: "token_embd.weight".into(), row: 7 }));
    assert_eq!(one.tokens(), [1, 2]);
    prefill(&mut one, &[3], Logits::Last);
}
