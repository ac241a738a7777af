//! What a probe is told about the order of a forward pass.

use std::ops::ControlFlow;

use argon_engine::Logits;
use argon_engine::probe::{Intermediate, Probe, Shown, Stage};

use crate::fixture::{MODELS, bits, engine, prefill, prompts, session};

/// Writes down which stage was entered, and of which layer.
#[derive(Default)]
struct Diary(Vec<(Stage, Option<usize>)>);

impl Probe for Diary {
    fn wants(&self, _: Intermediate, _: usize) -> bool {
        false
    }

    fn see(&mut self, _: Shown) {}

    fn enter(&mut self, stage: Stage, layer: Option<usize>) {
        self.0.push((stage, layer));
    }
}

#[test]
fn every_stage_of_every_layer_is_entered_in_order() {
    let [_, prompt, _] = prompts();
    for model in MODELS {
        let engine = engine(model);
        let (mut diary, mut session) = (Diary::default(), session(&engine, 24));
        let watched = session
            .prefill_watched(&prompt, Logits::Last, &mut |_| ControlFlow::Continue(()), &mut diary)
            .unwrap()
            .unwrap();
        session.reset().unwrap();
        let alone = prefill(&mut session, &prompt, Logits::Last);
        assert_eq!(bits(&watched.values), bits(&alone.values), "watching changes nothing");

        let chunks = prompt.len().div_ceil(24);
        let count = |stage| diary.0.iter().filter(|(entered, _)| *entered == stage).count();
        assert_eq!(count(Stage::Embedding), chunks, "{model}");
        assert_eq!(count(Stage::Head), chunks, "{model}");
        assert_eq!(count(Stage::Attention) + count(Stage::DeltaNet), chunks * engine.info().layers, "{model}");
        assert_eq!(count(Stage::Attention), chunks * engine.info().attention_layers, "{model}");
        for layer in 0..engine.info().layers {
            let mut experts =
                vec![Stage::Routing, Stage::Shared, Stage::Plan, Stage::GateUp, Stage::Down, Stage::Combine];
            if ["qwen3moe", "olmoe", "mixtral"].contains(&model) {
                experts.retain(|stage| *stage != Stage::Shared);
            }
            let of_layer = diary.0.iter().filter(|(stage, of)| *of == Some(layer) && experts.contains(stage));
            let entered: Vec<Stage> = of_layer.map(|(stage, _)| *stage).collect();
            assert_eq!(entered, experts.repeat(chunks), "{model}, layer {layer}");
        }
        assert_eq!(diary.0.first(), Some(&(Stage::Checks, None)));
        assert_eq!(diary.0.last(), Some(&(Stage::Other, None)));
    }
}

#[test]
fn every_stage_has_a_name_of_its_own() {
    let mut names: Vec<&str> = Stage::ALL.iter().map(|stage| stage.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Stage::ALL.len());
}
