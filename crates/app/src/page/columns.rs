//! Bars that stand: one for each number along an axis, such as layers, cut into parts that are told apart by colour.

use super::scale::Scale;
use super::svg::{Anchor, LINE, Svg, WIDTH};

/// Columns over 0, 1, 2, ...; `values[i]` are the parts of column i in `unit`, in the order of `names`. `axes` are what is
/// along and what is up.
pub fn draw(values: &[Vec<f64>], names: &[(usize, &str)], axes: [&str; 2], unit: &str, label: &str) -> String {
    let (left, right, field) = (64.0, WIDTH - 8.0, 240.0);
    let legend = Svg::new(0.0).legend(left, 4.0, names) + 10.0;
    let (top, bottom) = (8.0 + legend, 8.0 + legend + field);
    let mut svg = Svg::new(bottom + 2.0 * LINE + 8.0);
    svg.legend(left, 4.0, names);
    let most = values.iter().map(|parts| parts.iter().sum::<f64>()).fold(0.0, f64::max);
    let scale = Scale::linear(most, bottom, top);
    scale.draw_y(&mut svg, left, right, &format!("{}, {unit}", axes[1]));
    let step = (right - left) / values.len().max(1) as f64;
    let width = (step - 2.0).clamp(0.5, 40.0);
    let apart = (values.len() / 16).max(1).next_power_of_two();
    for (i, parts) in values.iter().enumerate() {
        let middle = left + step * (i as f64 + 0.5);
        let mut sum = 0.0;
        for (&(series, name), &part) in names.iter().zip(parts) {
            let (low, high) = (scale.at(sum), scale.at(sum + part));
            sum += part;
            if part > 0.0 {
                let told = format!("{} {i}: {name}: {part:.3} {unit}", axes[0]);
                svg.bar([middle - width / 2.0, high, width, low - high], series, &told);
            }
        }
        if i % apart == 0 {
            svg.text(middle, bottom + 16.0, Anchor::Middle, "faint", &i.to_string());
        }
    }
    svg.line([left, bottom], [right, bottom], "axis");
    svg.text((left + right) / 2.0, bottom + 35.0, Anchor::Middle, "faint", axes[0]);
    svg.finish(label)
}
