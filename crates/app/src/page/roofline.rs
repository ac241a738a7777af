//! The roofline: how fast work runs, over how much arithmetic it does for each byte, below what memory and arithmetic allow.

use super::scale::{Base, Scale};
use super::svg::{Anchor, LINE, REST, Svg, WIDTH, text_width};

/// One piece of work.
pub struct Point {
    /// Its name.
    pub name: String,
    /// Points of a series share a colour.
    pub series: usize,
    /// Operations for each byte.
    pub intensity: f64,
    /// Operations a second.
    pub rate: f64,
    /// Operations a second that such work can reach.
    pub ceiling: f64,
}

/// A rectangle: left, top, right, bottom.
type Field = [f64; 4];

/// Points below the roof of `memory` bytes and `operations` operations a second, and below the lower roofs that some have.
pub fn draw(points: &[Point], memory: f64, operations: f64, names: &[(usize, &str)], label: &str) -> String {
    let ridge = operations / memory;
    let least = |value: fn(&Point) -> f64| points.iter().map(value).fold(f64::INFINITY, f64::min);
    let most = |value: fn(&Point) -> f64| points.iter().map(value).fold(0.0, f64::max);
    let (left, right, bottom) = (64.0, WIDTH - 16.0, 340.0);
    let top = if names.is_empty() { 10.0 } else { 36.0 };
    let mut svg = Svg::new(bottom + 2.0 * LINE + 8.0);
    svg.legend(left, 4.0, names);
    let from = (least(|p| p.intensity) / 2.0).min(ridge / 4.0);
    let x = Scale::log(Base::Ten, from, (most(|p| p.intensity) * 2.0).max(ridge * 8.0), left, right);
    let lowest = (least(|p| p.rate) / 3.0).min(operations / 20.0);
    let y = Scale::log(Base::Ten, lowest / 1e9, operations.max(most(|p| p.rate)) / 1e9 * 2.0, bottom, top);
    x.draw_x(&mut svg, top, bottom, "operations for each byte that has to move");
    y.draw_y(&mut svg, left, right, "speed, GOP/s");

    let place = |intensity: f64, rate: f64| [x.at(intensity), y.at(rate / 1e9)];
    // The slope enters the field at its lower or at its left edge.
    let start = from.max(lowest / memory);
    let corner = place(ridge, operations);
    let what = format!("roof: {:.1} GB/s, {:.0} GOP/s", memory / 1e9, operations / 1e9);
    svg.path(&[place(start, start * memory), corner, [right, corner[1]]], REST, &what);
    let flat = format!("products {:.0} GOP/s", operations / 1e9);
    svg.text(right - 4.0, corner[1] - 7.0, Anchor::End, "faint", &flat);
    let mut taken = vec![[right - text_width(&flat), corner[1] - 20.0, right, corner[1]]];
    let mut lower: Vec<f64> =
        points.iter().map(|point| point.ceiling).filter(|ceiling| *ceiling < operations).collect();
    lower.sort_by(f64::total_cmp);
    lower.dedup();
    for ceiling in lower {
        let [x, y] = place(ceiling / memory, ceiling);
        let what = format!("plain floats {:.0} GOP/s", ceiling / 1e9);
        svg.path(&[[x, y], [right, y]], REST, &what);
        svg.text(right - 4.0, y - 7.0, Anchor::End, "faint", &what);
        taken.push([right - text_width(&what), y - 20.0, right, y]);
    }
    // Beside the slope, below the height that the names of points are at.
    let slope = format!("memory {:.1} GB/s", memory / 1e9);
    let half = place((start * ridge).sqrt(), (start * ridge).sqrt() * memory);
    if half[0] - text_width(&slope) - 12.0 > left {
        svg.text(half[0] - 12.0, half[1], Anchor::End, "faint", &slope);
        taken.push([half[0] - 12.0 - text_width(&slope), half[1] - 12.0, half[0] - 12.0, half[1] + 4.0]);
    }

    let dots: Vec<[f64; 2]> = points.iter().map(|point| place(point.intensity, point.rate)).collect();
    taken.extend(dots.iter().map(|[x, y]| [x - 6.0, y - 6.0, x + 6.0, y + 6.0]));
    for (point, dot) in points.iter().zip(&dots) {
        let told = format!("{}: {:.1} GOP/s, {:.1} operations a byte", point.name, point.rate / 1e9, point.intensity);
        svg.dot(*dot, point.series, &told);
        if let Some((at, anchor, field)) = free(*dot, &point.name, [left, top, right, bottom], &taken) {
            if (at[1] - 4.0 - dot[1]).abs() > 20.0 {
                svg.line(*dot, [at[0], at[1] - 4.0], "axis"); // too far to see whose name it is
            }
            svg.text(at[0], at[1], anchor, "", &point.name);
            taken.push(field);
        }
    }
    svg.finish(label)
}

/// A place beside a dot for its name, inside `field` and clear of what is `taken`.
fn free([x, y]: [f64; 2], name: &str, field: Field, taken: &[Field]) -> Option<([f64; 2], Anchor, Field)> {
    let width = text_width(name);
    let heights = [0.0, -13.0, 13.0, -26.0, 26.0, -39.0, 39.0];
    let beside = heights.into_iter().flat_map(|dy| {
        let fields = |left: f64| [left, y + dy - 7.0, left + width, y + dy + 6.0];
        [
            ([x + 9.0, y + dy + 4.0], Anchor::Start, fields(x + 9.0)),
            ([x - 9.0, y + dy + 4.0], Anchor::End, fields(x - 9.0 - width)),
        ]
    });
    let clear = |a: &Field, b: &Field| a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
    let mut places = beside.filter(|(_, _, place)| {
        place[0] >= field[0] && place[1] >= field[1] && place[2] <= field[2] && place[3] <= field[3]
    });
    places.find(|(_, _, place)| taken.iter().all(|other| clear(place, other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_places_that_are_free() {
        let field = [0.0, 0.0, 200.0, 200.0];
        let mut taken = Vec::new();
        for i in 0..14 {
            let (_, _, place) = free([100.0, 100.0], "name", field, &taken).unwrap();
            assert!(
                taken
                    .iter()
                    .all(|t: &Field| place[0] >= t[2] || t[0] >= place[2] || place[1] >= t[3] || t[1] >= place[3])
            );
            taken.push(place);
            assert_eq!(taken.len(), i + 1);
        }
        assert!(free([100.0, 100.0], "name", field, &taken).is_none());
    }
}
