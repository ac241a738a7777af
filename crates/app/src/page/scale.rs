//! From numbers to places: axes with round numbers on them.

use super::svg::{Anchor, Svg};

/// An axis from 0, or a logarithmic one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    /// Linear where absent; else the round numbers of a decade, or of a doubling.
    log: Option<Base>,
}

/// What the numbers on a logarithmic axis are powers of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Base {
    /// 1, 2, 5, 10, ...
    Ten,
    /// 1, 2, 4, 8, ...
    Two,
}

impl Scale {
    /// From 0 at `start` to `most` at `end`.
    pub fn linear(most: f64, start: f64, end: f64) -> Scale {
        let most = if most > 0.0 && most.is_finite() { most } else { 1.0 };
        Scale { from: 0.0, to: most, start, end, log: None }
    }

    /// From `least` to `most` in equal factors.
    pub fn log(base: Base, least: f64, most: f64, start: f64, end: f64) -> Scale {
        let least = if least > 0.0 && least.is_finite() { least } else { 1.0 };
        let most = if most > least && most.is_finite() { most } else { least * 10.0 };
        Scale { from: least, to: most, start, end, log: Some(base) }
    }

    /// Where a value is; on a logarithmic axis, what is below its start is at its start.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.log {
            Some(_) => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            None => (value - self.from) / (self.to - self.from),
        };
        self.start + share * (self.end - self.start)
    }

    /// Round numbers on the axis, some five of them.
    pub fn ticks(&self) -> Vec<f64> {
        let inside = |tick: &f64| (self.from * 0.9999..=self.to * 1.0001).contains(tick);
        match self.log {
            None => {
                let step = round_step(self.to / 5.0);
                (0..).map(|i| f64::from(i) * step).take_while(inside).collect()
            }
            Some(Base::Two) => {
                let (first, last) = (self.from.log2().floor() as i32, self.to.log2().ceil() as i32);
                let apart = ((last - first) / 12 + 1) as usize;
                (first..=last).step_by(apart).map(|power| 2f64.powi(power)).filter(inside).collect()
            }
            Some(Base::Ten) => {
                let decades = (self.to / self.from).log10();
                let within: &[f64] = match decades {
                    d if d > 3.0 => &[1.0],
                    d if d > 1.0 => &[1.0, 2.0, 5.0],
                    _ => &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
                };
                let (first, last) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
                let all = (first..=last).flat_map(|decade| within.iter().map(move |digit| digit * 10f64.powi(decade)));
                all.filter(inside).collect()
            }
        }
    }

    /// Draws lines and numbers of a horizontal axis below a field from `top` to `bottom`, and its title.
    pub fn draw_x(&self, svg: &mut Svg, top: f64, bottom: f64, title: &str) {
        for tick in self.ticks() {
            let x = self.at(tick);
            svg.line([x, top], [x, bottom], "grid");
            svg.text(x, bottom + 16.0, Anchor::Middle, "faint", &number(tick));
        }
        svg.line([self.start, bottom], [self.end, bottom], "axis");
        svg.text((self.start + self.end) / 2.0, bottom + 35.0, Anchor::Middle, "faint", title);
    }

    /// Draws lines and numbers of a vertical axis at the left of a field from `left` to `right`, and its title.
    pub fn draw_y(&self, svg: &mut Svg, left: f64, right: f64, title: &str) {
        for tick in self.ticks() {
            let y = self.at(tick);
            svg.line([left, y], [right, y], "grid");
            svg.text(left - 7.0, y + 4.0, Anchor::End, "faint", &number(tick));
        }
        svg.line([left, self.start], [left, self.end], "axis");
        svg.text_up(14.0, (self.start + self.end) / 2.0, title);
    }
}

/// 1, 2 or 5 times a power of ten, not less than `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|round| *round >= step * 0.9999).unwrap_or(step)
}

/// A round number, without zeros at its end.
fn number(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    match rounded {
        v if v >= 1e6 => format!("{} M", v / 1e6),
        v if v >= 1e4 => format!("{} k", v / 1e3),
        v => format!("{v}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_ticks() {
        let scale = Scale::linear(47.0, 100.0, 147.0);
        assert_eq!((scale.at(0.0), scale.at(47.0)), (100.0, 147.0));
        assert_eq!(scale.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0]);
        let scale = Scale::log(Base::Ten, 1.0, 100.0, 0.0, 200.0);
        assert_eq!((scale.at(1.0), scale.at(10.0), scale.at(0.0)), (0.0, 100.0, 0.0));
        assert_eq!(scale.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(Scale::log(Base::Ten, 18.0, 54.0, 0.0, 1.0).ticks(), [20.0, 30.0, 40.0, 50.0]);
        assert_eq!(Scale::log(Base::Two, 1.0, 16.0, 0.0, 1.0).ticks(), [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!(Scale::linear(0.0, 0.0, 1.0).ticks().len(), 6);
        assert_eq!([0.0, 0.1 + 0.2, 1500.0, 20_000.0, 2e6].map(number), ["0", "0.3", "1500", "20 k", "2 M"]);
    }

    #[test]
    fn no_number_is_too_odd() {
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let log = |least, most| Scale::log(Base::Ten, least, most, 0.0, 1.0);
            let scales = [Scale::linear(odd, 0.0, 1.0), log(odd, odd), log(1.0, odd)];
            assert!(scales.iter().all(|scale| scale.at(1.0).is_finite() && scale.ticks().len() < 20), "{scales:?}");
        }
    }
}
