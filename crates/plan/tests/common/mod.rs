//! What the tests share: one way to run a variant such that nothing it does wrong goes unseen.

use argon_plan::{Difference, Plan, Shape, Variant, build_lenient, check_untouched, compare};

/// What every buffer holds before a run.
pub const POLLUTION: u32 = 0xDEAD_BEEF;

/// Words by which every buffer is longer than it need be.
const SPARE: usize = 37;

/// Weights that differ from entry to entry, and that no float operation would leave alone.
pub fn weights(entries: usize) -> Vec<u32> {
    (1..=entries as u32).map(|i| i.wrapping_mul(0x9E37_79B9)).collect()
}

/// Runs `variant` on polluted buffers. Every defined word must be that of `expected`, and every
/// other word still pollution.
pub fn agree(variant: Variant, shape: Shape, ids: &[i32], expected: &Plan) -> Result<(), Difference> {
    let mut plan = Plan::filled(shape, POLLUTION, SPARE);
    build_lenient(variant, &shape, ids, &weights(ids.len()), &mut plan.buffers()).unwrap();
    compare(expected, &plan)?;
    check_untouched(&plan, POLLUTION)
}

/// [`agree`] for every variant; an error says which, where and for what shape.
pub fn all_agree(shape: Shape, ids: &[i32], expected: &Plan) -> Result<(), String> {
    for variant in Variant::ALL {
        agree(variant, shape, ids, expected)
            .map_err(|difference| format!("{}: {difference} for {shape:?}", variant.name()))?;
    }
    Ok(())
}
