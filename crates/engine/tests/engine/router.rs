//! The choice of experts as the metadata say it, and experts beyond what a byte can count.

use argon_engine::Logits;
use argon_engine::probe::{Intermediate, Probe, Shown, Values};
use argon_gguf::Gguf;

use crate::edit::{Key, Model, edited};
use crate::fixture::{all_logits, cpu, load_on, prompts, session};

/// What the first router chose for each token of p1.
#[derive(Debug, Default)]
struct Chosen {
    ids: Vec<i32>,
    weights: Vec<f32>,
}

impl Probe for Chosen {
    fn wants(&self, what: Intermediate, layer: usize) -> bool {
        layer == 0 && matches!(what, Intermediate::RouterIds | Intermediate::RouterWeights)
    }

    fn see(&mut self, shown: Shown) {
        match shown.values {
            Values::I32(ids) => self.ids = ids,
            Values::F32(weights) => self.weights = weights,
        }
    }
}

fn chosen(gguf: Gguf) -> Chosen {
    let [_, p1, _] = prompts();
    let mut chosen = Chosen::default();
    session(&load_on(cpu(), gguf), 64).prefill_probed(&p1, Logits::None, &mut chosen).unwrap();
    assert_eq!((chosen.ids.len(), chosen.weights.len()), (64 * 3, 64 * 3));
    chosen
}

/// The three experts of the fixture qwen3moe, changed.
fn changed(change: impl FnOnce(&mut Model)) -> Chosen {
    chosen(edited("qwen3moe", change))
}

fn assert_near(found: &[f32], expected: impl Iterator<Item = f32>, what: &str) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        // Exponentials and a division of three numbers in f32.
        assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{what}, entry {i}: {found}, not {expected}");
    }
}

/// Each weight over the sum of its token's.
fn renormalised(weights: &[f32]) -> impl Iterator<Item = f32> {
    weights.chunks(3).flat_map(|of_token| of_token.iter().map(|weight| weight / of_token.iter().sum::<f32>()))
}

#[test]
fn weights_are_renormalised_and_scaled_as_the_file_says() {
    const NORM: &str = "qwen3moe.expert_weights_norm";
    const SCALE: &str = "qwen3moe.expert_weights_scale";
    let missing = changed(|model| model.remove_key(NORM));
    let yes = changed(|model| model.set(NORM, Key::Bool(true)));
    let no = changed(|model| model.set(NORM, Key::Bool(false)));
    assert!(missing.ids == yes.ids && no.ids == yes.ids);
    assert_eq!(missing.weights, yes.weights, "a family that renormalises");
    assert!(no.weights.chunks(3).all(|of_token| of_token.iter().sum::<f32>() < 0.99));
    assert_near(&yes.weights, renormalised(&no.weights), "renormalised");
    for (norm, unscaled) in [(true, &yes), (false, &no)] {
        let scaled = changed(|model| {
            model.set(NORM, Key::Bool(norm));
            model.set(SCALE, Key::F32(2.5));
        });
        assert_near(&scaled.weights, unscaled.weights.iter().map(|weight| 2.5 * weight), "scaled");
    }
    // OLMoE does not renormalise unless its file says so.
    let olmoe = |norm: Option<bool>| {
        let key = "olmoe.expert_weights_norm";
        chosen(edited("olmoe", |model| match norm {
            Some(norm) => model.set(key, Key::Bool(norm)),
            None => model.remove_key(key),
        }))
    };
    assert_eq!(olmoe(None).weights, olmoe(Some(false)).weights);
    assert_near(&olmoe(Some(true)).weights, renormalised(&olmoe(None).weights), "olmoe");
}

#[test]
fn softmax_and_sigmoid_are_of_the_same_logits() {
    let gated = |gating: Option<u32>| {
        changed(|model| {
            model.set("qwen3moe.expert_weights_norm", Key::Bool(gating == Some(1)));
            if let Some(gating) = gating {
                model.set("qwen3moe.expert_gating_func", Key::U32(gating));
            }
        })
    };
    let (softmax, sigmoid) = (gated(Some(1)), gated(Some(2)));
    assert_eq!(softmax.ids, sigmoid.ids);
    // A logit is what the sigmoid hides; exponentials of logits, renormalised, are the softmax.
    let odds: Vec<f32> = sigmoid.weights.iter().map(|weight| weight / (1.0 - weight)).collect();
    for (found, expected) in softmax.weights.iter().zip(renormalised(&odds)) {
        // 1 - weight loses digits where the weight is near 1.
        assert!((found - expected).abs() < 1e-4, "{found}, not {expected}");
    }
    assert_eq!(gated(None).ids, softmax.ids);
}

/// Eight biases that halves cannot tell apart, for logits that are all equal.
#[test]
fn the_bias_selects_in_f32_and_does_not_weigh() {
    let order = [5, 2, 7, 0, 3, 6, 1, 4];
    let mut bias = [0.0; 8];
    for (rank, &expert) in order.iter().enumerate() {
        bias[expert] = 1.0 - rank as f32 * 1e-5;
    }
    assert_eq!(half::f16::from_f32(bias[5]), half::f16::from_f32(bias[4]));
    let biased = changed(|model| {
        model.set("qwen3moe.expert_gating_func", Key::U32(2));
        for layer in 0..2 {
            model.tensor(&format!("blk.{layer}.ffn_gate_inp.weight")).bytes.fill(0);
            model.add_f32(&format!("blk.{layer}.exp_probs_b.bias"), &bias);
        }
    });
    assert!(biased.ids.chunks(3).all(|ids| ids == [5, 2, 7]), "{:?}", &biased.ids[..3]);
    assert_near(&biased.weights, std::iter::repeat(1.0 / 3.0), "the scores of the three are equal");
}

/// The eight experts of the fixture at the ids of a wider model, whose other experts a bias keeps from being chosen.
#[test]
fn winners_at_255_256_and_beyond_answer_as_elsewhere() {
    const AT: [usize; 8] = [254, 255, 256, 257, 299, 511, 512, 519];
    const WIDE: usize = 520;
    let wide = edited("qwen3moe", |model| {
        model.set("qwen3moe.expert_count", Key::U32(WIDE as u32));
        for layer in 0..2 {
            for part in ["ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"] {
                let tensor = model.tensor(&format!("blk.{layer}.{part}.weight"));
                let expert = tensor.bytes.len() / 8;
                // The others are whatever the first one is.
                let of = |id: usize| AT.iter().position(|&at| at == id).unwrap_or(0);
                tensor.bytes = (0..WIDE).flat_map(|id| tensor.bytes[of(id) * expert..][..expert].to_vec()).collect();
                *tensor.shape.last_mut().unwrap() = WIDE;
            }
            let bias: Vec<f32> = (0..WIDE).map(|id| if AT.contains(&id) { 0.0 } else { -1e9 }).collect();
            model.add_f32(&format!("blk.{layer}.exp_probs_b.bias"), &bias);
        }
    });
    let narrow = chosen(edited("qwen3moe", |_| ()));
    let found = chosen(wide.clone());
    let expected: Vec<i32> = narrow.ids.iter().map(|&id| AT[id as usize] as i32).collect();
    assert_eq!(found.ids, expected);
    let [_, p1, _] = prompts();
    let logits = |gguf| all_logits(&load_on(cpu(), gguf), 64, &p1);
    let (wide, narrow) = (logits(wide), logits(edited("qwen3moe", |_| ())));
    // The softmax sums over more experts before it is renormalised: f32 rounding.
    assert!(argon_engine::compare::max_abs(&wide.values, &narrow.values) < 1e-4);
}
