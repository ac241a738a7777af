//! Lines through points, each named at its end.

use super::scale::{Base, Scale};
use super::svg::{Anchor, LINE, Svg, WIDTH, text_width};

/// One line.
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points from left to right, one at least.
    pub points: Vec<[f64; 2]>,
    /// Points that stand out, with what a pointer is told.
    pub marks: Vec<([f64; 2], String)>,
}

/// How the numbers along an axis are spaced.
#[derive(Clone, Copy, PartialEq)]
pub enum Spacing {
    /// From 0.
    Linear,
    /// In equal factors; for numbers above 0.
    Log(Base),
}

/// Most points of a line that are drawn.
const POINTS: usize = 512;

/// Lines over axes with these titles.
pub fn draw(lines: &[Line], spacing: [Spacing; 2], axes: [&str; 2], label: &str) -> String {
    let names = lines.iter().map(|line| text_width(&line.name)).fold(0.0, f64::max);
    let (left, right, top, bottom) = (64.0, WIDTH - names - 22.0, 10.0, 270.0);
    let mut svg = Svg::new(bottom + 2.0 * LINE + 8.0);
    let x = scale(lines, 0, spacing[0], [left, right]);
    let y = scale(lines, 1, spacing[1], [bottom, top]);
    x.draw_x(&mut svg, top, bottom, axes[0]);
    y.draw_y(&mut svg, left, right, axes[1]);
    let place = |[a, b]: [f64; 2]| [x.at(a), y.at(b)];
    for (series, line) in lines.iter().enumerate() {
        let points: Vec<[f64; 2]> = thinned(&line.points).map(place).collect();
        svg.path(&points, series, &line.name);
        for (point, told) in &line.marks {
            svg.dot(place(*point), series, &format!("{}: {told}", line.name));
        }
    }
    let ends: Vec<f64> = lines.iter().map(|line| line.points.last().map_or(bottom, |point| y.at(point[1]))).collect();
    for (series, (line, at)) in lines.iter().zip(apart(&ends, [top, bottom])).enumerate() {
        svg.key(right + 5.0, at - 5.0, series);
        svg.text(right + 21.0, at + 5.0, Anchor::Start, "", &line.name);
    }
    svg.finish(label)
}

/// The axis that holds every point.
fn scale(lines: &[Line], axis: usize, spacing: Spacing, [start, end]: [f64; 2]) -> Scale {
    let values = || lines.iter().flat_map(|line| line.points.iter().map(|point| point[axis]));
    let most = values().fold(0.0, f64::max);
    match spacing {
        Spacing::Linear => Scale::linear(most, start, end),
        Spacing::Log(base) => {
            let least = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
            Scale::log(base, least, most, start, end)
        }
    }
}

/// At most [`POINTS`] of them, the first and the last among these.
fn thinned(points: &[[f64; 2]]) -> impl Iterator<Item = [f64; 2]> + '_ {
    let last = points.len().saturating_sub(1);
    let drawn = points.len().min(POINTS);
    (0..drawn).map(move |i| points[if drawn > 1 { i * last / (drawn - 1) } else { 0 }])
}

/// The places next to these, within `top` and `bottom` as far as there is room, at which lines of text do not overlap.
fn apart(places: &[f64], [top, bottom]: [f64; 2]) -> Vec<f64> {
    const HEIGHT: f64 = 15.0;
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|&a, &b| places[b].total_cmp(&places[a]));
    let (mut moved, mut limit) = (places.to_vec(), bottom);
    for &i in &order {
        moved[i] = places[i].min(limit);
        limit = moved[i] - HEIGHT;
    }
    limit = top;
    for &i in order.iter().rev() {
        moved[i] = moved[i].max(limit);
        limit = moved[i] + HEIGHT;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_overlap() {
        assert_eq!(apart(&[100.0, 100.0, 20.0, 103.0], [0.0, 100.0]), [85.0, 70.0, 20.0, 100.0]);
        assert_eq!(apart(&[10.0, 12.0, 11.0], [10.0, 100.0]), [10.0, 40.0, 25.0]);
    }

    #[test]
    fn both_ends_of_a_long_line_are_drawn() {
        let points: Vec<[f64; 2]> = (0..10_000).map(|i| [f64::from(i), 0.0]).collect();
        let drawn: Vec<[f64; 2]> = thinned(&points).collect();
        assert_eq!((drawn.len(), drawn[0][0], drawn[POINTS - 1][0]), (POINTS, 0.0, 9999.0));
        assert_eq!(thinned(&points[..1]).count(), 1);
    }
}
