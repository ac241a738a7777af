//! Bars that lie: a row for each thing, cut into parts that are told apart by colour.

use super::scale::Scale;
use super::svg::{Anchor, LINE, Svg, WIDTH, ink_on, text_width};

/// One bar.
pub struct Row {
    /// What it is about, at its left.
    pub label: String,
    /// What it comes to, at its right; behind what a single part has no room for.
    pub total: String,
    /// Its parts in order: series, length, what is written on it where there is room.
    pub parts: Vec<(usize, f64, String)>,
}

/// Height of a row.
const ROW: f64 = 30.0;

/// Bars one below the other over an axis with this title. `names` is the legend, left out where it is empty.
pub fn draw(rows: &[Row], names: &[(usize, &str)], axis: &str, label: &str) -> String {
    let widest = |text: fn(&Row) -> &String| rows.iter().map(|row| text_width(text(row))).fold(0.0, f64::max);
    let (left, right) = (widest(|row| &row.label) + 12.0, WIDTH - widest(|row| &row.total) - 14.0);
    let legend = if names.is_empty() { 0.0 } else { Svg::new(0.0).legend(left, 4.0, names) + 10.0 };
    let (top, bottom) = (4.0 + legend, 4.0 + legend + ROW * rows.len() as f64);
    let mut svg = Svg::new(bottom + 2.0 * LINE + 8.0);
    svg.legend(left, 4.0, names);
    let length = |row: &Row| row.parts.iter().map(|part| part.1).sum::<f64>();
    let scale = Scale::linear(rows.iter().map(length).fold(0.0, f64::max), left, right);
    scale.draw_x(&mut svg, top, bottom, axis);
    for (i, row) in rows.iter().enumerate() {
        let y = top + ROW * i as f64;
        svg.text(left - 10.0, y + 20.0, Anchor::End, "", &row.label);
        let (mut sum, mut total) = (0.0, row.total.clone());
        for (series, part, written) in &row.parts {
            let (from, to) = (scale.at(sum), scale.at(sum + part));
            sum += part;
            let name = names.iter().find(|(named, _)| named == series).map_or("", |(_, name)| name);
            let told: Vec<&str> = [&row.label, name, written].into_iter().filter(|text| !text.is_empty()).collect();
            svg.bar([from, y + 4.0, to - from, ROW - 8.0], *series, &told.join(": "));
            if to - from > text_width(written) + 8.0 {
                svg.text((from + to) / 2.0, y + 19.0, Anchor::Middle, ink_on(*series), written);
            } else if row.parts.len() == 1 && !total.starts_with(written.as_str()) {
                total = format!("{written}, {total}");
            }
        }
        svg.text(scale.at(sum) + 7.0, y + 20.0, Anchor::Start, "", &total);
    }
    svg.finish(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_short_bar_has_no_room_for_stands_beside_it() {
        let row =
            |length| Row { label: "a".into(), total: "5 GB/s".into(), parts: vec![(0, length, "1.00 ms".into())] };
        let drawn = draw(&[row(100.0), row(1.0)], &[], "time", "times");
        assert_eq!(drawn.matches(">1.00 ms<").count(), 1);
        assert_eq!(drawn.matches(">1.00 ms, 5 GB/s<").count(), 1);
        assert_eq!(drawn.matches(">5 GB/s<").count(), 1);
    }
}
