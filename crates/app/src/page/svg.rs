//! A picture under construction: shapes and text, in units that are pixels where there is room for them.

use std::fmt::{Display, Write};

/// Width of every picture.
pub const WIDTH: f64 = 920.0;

/// Height of a line of text.
pub const LINE: f64 = 18.0;

/// A picture.
pub struct Svg {
    height: f64,
    body: String,
}

/// Which end of a text stands at its point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Anchor {
    /// Its start.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// Colours of series, told apart by hue and lightness, each with whether black text reads better on it than white.
pub const SERIES: [(&str, bool); 15] = [
    ("#3b76c4", false),
    ("#e8893c", true),
    ("#4a9d5b", true),
    ("#c8504f", false),
    ("#8a63b8", false),
    ("#3aa6a6", true),
    ("#d9b93b", true),
    ("#96684c", false),
    ("#d983b4", true),
    ("#7f95e0", true),
    ("#8fb04a", true),
    ("#b0456f", false),
    ("#5b93b0", true),
    ("#b3a27c", true),
    ("#9aa0a6", true),
];

/// The colour of whatever is not worth a colour.
pub const REST: usize = SERIES.len() - 1;

/// Everything that differs between light and dark.
const STYLE: &str = "
svg.argon { --ink: #1c2128; --faint: #57606a; --grid: #e4e8ec; --gap: #fff; --low: #eef3fa; --mid: #6f9fd8; --high: #123d78; }
@media (prefers-color-scheme: dark) {
  svg.argon { --ink: #e6e9ee; --faint: #9aa4b0; --grid: #2a3039; --gap: #14171c; --low: #1d242e; --mid: #3f76b8; --high: #cfe3ff; }
}
svg.argon text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: var(--ink); }
svg.argon text.faint { fill: var(--faint); }
svg.argon text.on-dark { fill: #fff; } svg.argon text.on-light { fill: #15181c; }
svg.argon .grid { stroke: var(--grid); } svg.argon .axis { stroke: var(--faint); }
svg.argon .gap { stroke: var(--gap); }
";

impl Svg {
    /// An empty picture.
    pub fn new(height: f64) -> Svg {
        Svg { height, body: String::new() }
    }

    /// A rectangle (left, top, width, height) in the colour of a series, with what a pointer that rests on it is told. A
    /// thin gap keeps neighbours apart.
    pub fn bar(&mut self, [x, y, width, height]: [f64; 4], series: usize, told: &str) {
        let (fill, _) = SERIES[series.min(REST)];
        let gap = if width > 3.0 && height > 3.0 { " class=\"gap\"" } else { "" };
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"{gap}>\
             <title>{}</title></rect>",
            escape(told)
        );
    }

    /// A small square that stands for a series in a legend.
    pub fn key(&mut self, x: f64, y: f64, series: usize) {
        let (fill, _) = SERIES[series.min(REST)];
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{fill}\"/>"
        );
    }

    /// A straight line of a class: `grid` or `axis`.
    pub fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], class: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    /// A line through points, in the colour of a series.
    pub fn path(&mut self, points: &[[f64; 2]], series: usize, told: &str) {
        let (stroke, _) = SERIES[series.min(REST)];
        let mut d = String::new();
        for (i, [x, y]) in points.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
        }
        let _ = writeln!(
            self.body,
            "<path d=\"{d}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"2\" stroke-linejoin=\"round\">\
             <title>{}</title></path>",
            escape(told)
        );
    }

    /// A dot in the colour of a series.
    pub fn dot(&mut self, [x, y]: [f64; 2], series: usize, told: &str) {
        let (fill, _) = SERIES[series.min(REST)];
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{fill}\" class=\"gap\"><title>{}</title></circle>",
            escape(told)
        );
    }

    /// Shapes that are drawn elsewhere.
    pub fn raw(&mut self, shapes: impl Display) {
        let _ = writeln!(self.body, "{shapes}");
    }

    /// Text whose baseline is at `y`; `class` is empty, `faint`, or as [`ink_on`] says.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let _ = writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}{class}>{}</text>", escape(text));
    }

    /// The title of a vertical axis, at its left, reading upwards.
    pub fn text_up(&mut self, x: f64, y: f64, text: &str) {
        let _ = writeln!(
            self.body,
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\" class=\"faint\">{}</text>",
            escape(text)
        );
    }

    /// A legend in as many lines as it takes; returns their height.
    pub fn legend(&mut self, left: f64, top: f64, names: &[(usize, &str)]) -> f64 {
        let (mut x, mut y) = (left, top);
        for &(series, name) in names {
            let width = 17.0 + text_width(name) + 18.0;
            if x + width > WIDTH && x > left {
                (x, y) = (left, y + LINE);
            }
            self.key(x, y, series);
            self.text(x + 17.0, y + 10.0, Anchor::Start, "", name);
            x += width;
        }
        y + LINE - top
    }

    /// The whole picture; `label` is what somebody is told who does not see it.
    pub fn finish(&self, label: &str) -> String {
        let (height, label) = (self.height.ceil(), escape(label));
        format!(
            "<svg class=\"argon\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{label}\">\n<style>{STYLE}</style>\n{}</svg>",
            self.body
        )
    }
}

/// The class of text on a bar of a series.
pub fn ink_on(series: usize) -> &'static str {
    if SERIES[series.min(REST)].1 { "on-light" } else { "on-dark" }
}

/// About how wide a text is; rather more than less.
pub fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if c.is_uppercase() || c == 'm' || c == 'w' { 9.5 } else { 7.7 }).sum()
}

/// Text with everything replaced that means something in HTML or SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
