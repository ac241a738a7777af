//! A field of cells, a row for each layer and a column for each expert, in stronger colours where more tokens went.

use std::fmt::Write;

use super::svg::{Anchor, LINE, Svg, WIDTH};

/// Load by the mean load of a layer, up to which a cell has a shade; beyond the last there is one more.
const SHADES: [f64; 7] = [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// What the legend calls them.
const NAMES: [&str; SHADES.len() + 1] = ["none", "to ¼", "to ½", "to 1", "to 2", "to 4", "to 8", "more"];

/// Columns that a picture can have.
const COLUMNS: usize = 1024;

/// Entries of each expert, `[layer][E]`.
pub fn draw(loads: &[Vec<u32>], label: &str) -> String {
    let experts = loads.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let (left, right, top) = (64.0, WIDTH - 8.0, 34.0);
    let height = (480.0 / loads.len().max(1) as f64).clamp(6.0, 20.0);
    let bottom = top + height * loads.len() as f64;
    let mut svg = Svg::new(bottom + 2.0 * LINE + 8.0);
    legend(&mut svg, left);
    let columns = experts.min(COLUMNS);
    let width = (right - left) / columns as f64;
    let apart = (loads.len() / 12).max(1).next_power_of_two();
    let mut paths = vec![String::new(); NAMES.len()];
    for (layer, loads) in loads.iter().enumerate() {
        let y = top + height * (layer as f64 + 0.5);
        for (shade, from, to) in runs(loads, columns) {
            let (x, length) = (left + width * from as f64, width * (to - from) as f64);
            let _ = write!(paths[shade], "M{x:.1} {y:.1}h{length:.1}");
        }
        if layer % apart == 0 {
            svg.text(left - 7.0, y + 4.0, Anchor::End, "faint", &layer.to_string());
        }
    }
    for (shade, path) in paths.iter().enumerate() {
        let style = format!("stroke:{}", colour(shade));
        svg.raw(format_args!("<path d=\"{path}\" style=\"{style}\" stroke-width=\"{height:.2}\"/>"));
    }
    for expert in (0..experts).step_by((experts / 8).max(1)) {
        let x = left + (right - left) * (expert as f64 + 0.5) / experts as f64;
        svg.text(x, bottom + 16.0, Anchor::Middle, "faint", &expert.to_string());
    }
    svg.text((left + right) / 2.0, bottom + 35.0, Anchor::Middle, "faint", "expert");
    svg.text_up(14.0, (top + bottom) / 2.0, "layer");
    svg.finish(label)
}

/// Neighbouring columns of one shade: shade, first column, one past the last. A column of several experts shows the one with
/// the most.
fn runs(loads: &[u32], columns: usize) -> Vec<(usize, usize, usize)> {
    let mean = loads.iter().map(|&load| f64::from(load)).sum::<f64>() / loads.len().max(1) as f64;
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for column in 0..columns {
        let of_column = column * loads.len() / columns..(column + 1) * loads.len() / columns;
        let most = loads[of_column].iter().copied().max().unwrap_or(0);
        let share = if mean > 0.0 { f64::from(most) / mean } else { 0.0 };
        let shade = SHADES.iter().position(|&limit| share <= limit).unwrap_or(SHADES.len());
        match runs.last_mut() {
            Some((last, _, to)) if *last == shade => *to = column + 1,
            _ => runs.push((shade, column, column + 1)),
        }
    }
    runs
}

/// From the colour of the page to that which is furthest from it.
fn colour(shade: usize) -> String {
    let (last, middle) = (SHADES.len(), SHADES.len() / 2 + 1);
    match shade {
        s if s <= middle => format!("color-mix(in oklab, var(--mid) {}%, var(--low))", 100 * s / middle),
        s => format!("color-mix(in oklab, var(--high) {}%, var(--mid))", 100 * (s - middle) / (last - middle)),
    }
}

fn legend(svg: &mut Svg, left: f64) {
    svg.text(left, 14.0, Anchor::Start, "faint", "times the layer's mean:");
    let mut x = left + 160.0;
    for (shade, name) in NAMES.iter().enumerate() {
        let style = format!("fill:{}", colour(shade));
        svg.raw(format_args!(
            "<rect x=\"{x:.1}\" y=\"4\" width=\"11\" height=\"11\" rx=\"2\" style=\"{style}\" class=\"grid\"/>"
        ));
        svg.text(x + 16.0, 14.0, Anchor::Start, "", name);
        x += 64.0;
    }
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn shades_are_by_the_mean() {
        // Mean 2: none, exactly the mean, 1.5 times, half, none, 4 times.
        let expected = [(0, 0, 2), (3, 2, 3), (4, 3, 4), (2, 4, 5), (0, 5, 6), (5, 6, 7)];
        assert_eq!(runs(&[0, 0, 2, 3, 1, 0, 8], 7), expected);
        assert_eq!(runs(&[0, 0], 2), [(0, 0, 2)]);
        assert_eq!(runs(&[0, 4, 0, 0], 2), [(5, 0, 1), (0, 1, 2)]);
    }
}
