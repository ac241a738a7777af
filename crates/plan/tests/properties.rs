//! Every variant against the definition.

use argon_plan::{Plan, Shape, Variant, build_lenient, check_untouched, compare, reference};

const POLLUTION: u32 = 0xDEAD_BEEF;

/// Runs every variant on polluted, oversized buffers and compares all words with the definition.
fn check(shape: Shape, ids: &[i32]) {
    let weights: Vec<u32> = (0..ids.len() as u32)
        .map(|i| i.wrapping_mul(0x9E37_79B9) | 1)
        .collect();
    let expected = reference::plan(shape, ids, &weights);
    for variant in Variant::ALL {
        let mut plan = Plan::filled(shape, POLLUTION, 37);
        build_lenient(variant, &shape, ids, &weights, &mut plan.buffers()).unwrap();
        let result = compare(&expected, &plan).and_then(|()| check_untouched(&plan, POLLUTION));
        if let Err(difference) = result {
            panic!("{}: {difference} ({shape:?})", variant.name());
        }
    }
}

#[test]
fn small_shapes() {
    for (t, k, e, tm) in [
        (0, 2, 4, 8),
        (1, 1, 1, 1),
        (700, 3, 60, 16),
        (513, 10, 512, 16),
    ] {
        let ids: Vec<i32> = (0..t * k)
            .map(|i| (i * i * 31 % (e + 1)) as i32 - 1)
            .collect();
        check(Shape::new(t, k, e, tm).unwrap(), &ids);
    }
}
