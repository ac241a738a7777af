//! Pictures of a routing.

use super::layout::Layout;
use crate::page::Page;
use crate::page::lines::{self, Line, Spacing};
use crate::page::scale::Base;

/// How many rows the experts got, and what padding to whole tiles costs, for plans by name: those of `whose`.
pub fn routing(page: &mut Page, whose: &str, plans: &[(String, Layout)]) {
    let by_rank = |(name, plan): &(String, Layout)| {
        let loaded = plan.rows_per_expert.iter().take_while(|rows| **rows > 0).enumerate();
        let points = loaded.map(|(i, &rows)| [i as f64, f64::from(rows)]);
        Line { name: name.clone(), points: points.collect(), marks: Vec::new() }
    };
    let active = plans.iter().map(|(name, plan)| format!("{} of {} ({name})", plan.active, plan.rows_per_expert.len()));
    let active = active.collect::<Vec<_>>().join(", ");
    let text = format!("Of {whose}: experts in the order of their load. Experts that have rows: {active}.");
    let lines: Vec<Line> = plans.iter().map(by_rank).collect();
    let axes = ["experts, the one with the most rows first", "rows of an expert"];
    let svg = lines::draw(&lines, [Spacing::Linear, Spacing::Log(Base::Ten)], axes, "rows of each expert");
    page.picture("Rows of each expert", &text, &svg);

    let share = |plan: &Layout, tile: u32| {
        let rows = plan.rows_in_tiles_of(tile);
        if rows == 0 { 0.0 } else { 100.0 * f64::from(rows - plan.kept) / f64::from(rows) }
    };
    let padding = |(name, plan): &(String, Layout)| Line {
        name: name.clone(),
        points: (0..=7).map(|i| 1 << i).map(|tile| [f64::from(tile), share(plan, tile)]).collect(),
        marks: vec![(
            [f64::from(plan.tile), share(plan, plan.tile)],
            format!("{:.1} % of {} rows are padding in tiles of {}", share(plan, plan.tile), plan.rows, plan.tile),
        )],
    };
    let lines: Vec<Line> = plans.iter().map(padding).collect();
    let axes = ["rows of a tile", "padding, % of all rows"];
    let svg = lines::draw(&lines, [Spacing::Log(Base::Two), Spacing::Linear], axes, "padding by tile height");
    let text = "Every expert's rows are padded to whole tiles. The dots are the tile heights that the device chose.";
    page.picture("Padding", text, &svg);
}
