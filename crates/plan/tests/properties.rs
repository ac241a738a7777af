//! Every variant against the definition, on ids of every kind, below, at and above every limit.

mod common;

use argon_plan::{Plan, Shape, Variant, build, reference};
use common::{POLLUTION, agree, all_agree, weights};
use proptest::prelude::*;
use proptest::sample::select;

const EXPERTS: [usize; 17] = [1, 2, 60, 64, 127, 128, 129, 255, 256, 257, 384, 512, 896, 1023, 1024, 1025, 4096];
const TILES: [usize; 5] = [1, 8, 16, 32, 64];

/// How the ids of a chunk may lie.
#[derive(Debug, Clone, Copy)]
enum Routing {
    /// Distinct experts within each token, as a router gives them (if there are K of them).
    Distinct,
    /// Any expert for any entry.
    Any,
    /// Few experts get most entries.
    Skewed,
    /// One expert gets all entries.
    One,
    /// A token gets the same expert K times.
    Repeated,
    /// No entry has an expert.
    Skipped,
    /// Any expert or -1.
    SomeSkipped,
    /// Any expert, -1, or an id that no expert has.
    SomeRejected,
}

const ROUTINGS: [Routing; 8] = [
    Routing::Distinct,
    Routing::Any,
    Routing::Skewed,
    Routing::One,
    Routing::Repeated,
    Routing::Skipped,
    Routing::SomeSkipped,
    Routing::SomeRejected,
];

/// Ids for a shape. The same seed gives the same ids.
fn route(shape: &Shape, routing: Routing, seed: u64) -> Vec<i32> {
    let experts = shape.experts() as u64;
    let mut state = seed | 1;
    let mut below = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) % limit
    };
    let no_expert = [i32::MIN, -2, experts as i32, experts as i32 + 1, i32::MAX];
    let one = below(experts);
    let mut of_token = 0;
    let id = |entry: usize| {
        let place_in_token = entry % shape.top_k();
        if place_in_token == 0 {
            of_token = below(experts);
        }
        match (routing, below(8)) {
            (Routing::Distinct, _) => ((of_token + place_in_token as u64) % experts) as i32,
            (Routing::Skewed, _) => {
                let hot = below(experts) + 1;
                below(hot) as i32
            }
            (Routing::One, _) => one as i32,
            (Routing::Repeated, _) => of_token as i32,
            (Routing::Skipped, _) => -1,
            (Routing::SomeSkipped | Routing::SomeRejected, 0..2) => -1,
            (Routing::SomeRejected, 2..4) => no_expert[below(5) as usize],
            (Routing::Any | Routing::SomeSkipped | Routing::SomeRejected, _) => below(experts) as i32,
        }
    };
    (0..shape.entries()).map(id).collect()
}

/// Every variant gives what the definition says.
fn check(shape: Shape, ids: &[i32]) -> Result<(), String> {
    all_agree(shape, ids, &reference::plan(shape, ids, &weights(ids.len())))
}

fn tokens() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..12usize, 4 => 0..300usize, 1 => 0..=3000usize]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_and_routing(
        tokens in tokens(),
        top_k in 1..=16usize,
        experts in select(&EXPERTS[..]),
        tile in select(&TILES[..]),
        routing in select(&ROUTINGS[..]),
        seed: u64,
    ) {
        let shape = Shape::new(tokens, top_k, experts, tile).unwrap();
        check(shape, &route(&shape, routing, seed)).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn every_expert_count_with_every_tile() {
    for (i, experts) in EXPERTS.into_iter().enumerate() {
        for tile in TILES {
            let shape = Shape::new(130 + i, 10, experts, tile).unwrap();
            check(shape, &route(&shape, Routing::SomeRejected, 1)).unwrap();
        }
    }
}

#[test]
fn every_routing_around_a_block() {
    for entries in [0, 1, 31, 32, 33, 1023, 1024, 1025, 2047, 2048, 2049] {
        for routing in ROUTINGS {
            let shape = Shape::new(entries, 1, 60, 16).unwrap();
            check(shape, &route(&shape, routing, 2)).unwrap();
        }
    }
}

#[test]
fn around_sixteen_bits_of_entries() {
    for (tokens, top_k, experts) in [
        (65535, 1, 60),
        (65536, 1, 129),
        (65537, 1, 8),
        (4369, 15, 256),
        (4096, 16, 257),
        (6553, 10, 512),
        (6554, 10, 128),
    ] {
        let shape = Shape::new(tokens, top_k, experts, 32).unwrap();
        check(shape, &route(&shape, Routing::SomeRejected, 3)).unwrap();
    }
}

/// The counters of `Packed` hold 15: one expert with as many, one more, and all of 32 entries.
#[test]
fn around_the_limit_of_a_packed_counter() {
    for (sub_block, times) in [(0, 15), (0, 16), (5, 15), (5, 16), (5, 17), (31, 16), (31, 32)] {
        let shape = Shape::new(2048, 1, 512, 8).unwrap();
        let mut ids = route(&shape, Routing::Distinct, 4);
        for i in 0..32 {
            ids[sub_block * 32 + i] = if i < times { 500 } else { i as i32 };
        }
        ids[1000] = 500;
        check(shape, &ids).unwrap();
    }
}

/// As many tiles as `Shape` allows for, in buffers without a word to spare.
#[test]
fn the_largest_plan_of_a_shape() {
    for (tokens, experts, tile) in [(5, 8, 4), (8, 8, 4), (9, 8, 4), (12, 8, 4), (11, 1, 4), (700, 60, 16)] {
        let shape = Shape::new(tokens, 1, experts, tile).unwrap();
        let ids: Vec<i32> = (0..tokens).map(|i| i.min(experts - 1) as i32).collect();
        for variant in Variant::ALL {
            let plan = Plan::build(shape, &ids, &weights(tokens), variant).unwrap();
            assert_eq!((plan.tiles().len(), plan.rows()), (shape.max_tiles(), shape.max_rows()));
        }
        check(shape, &ids).unwrap();
    }
}

#[test]
fn no_tokens() {
    let shape = Shape::new(0, 10, 512, 16).unwrap();
    for variant in Variant::ALL {
        let plan = Plan::build(shape, &[], &[], variant).unwrap();
        assert_eq!(plan.meta(), [0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0], "{}", variant.name());
        assert_eq!(plan.eoff(), [0; 513]);
    }
    check(shape, &[]).unwrap();
}

/// Large enough for `Auto` to go parallel: too large for the definition, so against `Running`.
#[test]
fn large_chunks_on_pools_of_any_size() {
    let shape = Shape::new(16_411, 8, 384, 16).unwrap();
    let ids = route(&shape, Routing::SomeRejected, 5);
    let expected = Plan::build_lenient(shape, &ids, &weights(ids.len()), Variant::Running).unwrap();
    for variant in [Variant::Packed, Variant::Fused] {
        agree(variant, shape, &ids, &expected).unwrap();
    }
    for threads in [1, 2, 3, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let chosen = if threads == 1 { Variant::Running } else { Variant::Parallel };
            assert_eq!(Variant::Auto.resolve(&shape), chosen);
            for variant in [Variant::Auto, Variant::Parallel] {
                agree(variant, shape, &ids, &expected).unwrap();
            }
        });
    }
}

/// A buffer that served a larger chunk serves a smaller one.
#[test]
fn buffers_are_used_again() {
    let large = Shape::new(600, 4, 64, 16).unwrap();
    let small = Shape::new(7, 4, 64, 16).unwrap();
    for variant in Variant::ALL {
        let mut used = Plan::filled(large, POLLUTION, 0);
        let ids = route(&large, Routing::Any, 6);
        build(variant, &large, &ids, &weights(ids.len()), &mut used.buffers()).unwrap();

        let ids = route(&small, Routing::Any, 7);
        let weights = weights(ids.len());
        build(variant, &small, &ids, &weights, &mut used.buffers()).unwrap();
        let fresh = Plan::build(small, &ids, &weights, variant).unwrap();
        let words = used.buffers();
        assert_eq!(&words.meta[..11], fresh.meta());
        assert_eq!(&words.pos[..ids.len()], fresh.pos());
        assert_eq!(&words.stok[..fresh.rows()], fresh.stok());
        assert_eq!(&words.sw[..fresh.rows()], fresh.sw());
    }
}
