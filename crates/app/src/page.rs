//! A page of pictures in one file: no script, no network, no other file. Pictures are SVG with a style of their own, so that
//! each can also be cut out and stand by itself; light or dark is the reader's choice.
//!
//! Drawn by hand, since plotting crates fix their colours when they draw and know no second scheme.

pub mod bars;
pub mod columns;
pub mod heat;
pub mod lines;
pub mod roofline;
pub mod scale;
pub mod svg;

use std::fmt::Write;

use svg::escape;

/// A page under construction.
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// A page with a heading and lines of small print below it.
    pub fn new(title: &str, lines: &[String]) -> Page {
        let mut page = Page { title: title.into(), body: String::new() };
        let _ = writeln!(page.body, "<h1>{}</h1>", escape(title));
        let lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
        let _ = writeln!(page.body, "<p class=\"small\">{}</p>", lines.join("<br>\n"));
        page
    }

    /// Something that a reader must know before anything else.
    pub fn warning(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"warning\">{}</p>", escape(text));
    }

    /// A picture with a heading, and what there is to see in it.
    pub fn picture(&mut self, heading: &str, text: &str, svg: &str) {
        let (heading, text) = (escape(heading), escape(text));
        let _ = writeln!(
            self.body,
            "<section>\n<h2>{heading}</h2>\n<p>{text}</p>\n<div class=\"wide\">{svg}</div>\n</section>"
        );
    }

    /// A table with a heading; the first column stands at its left edge, the others at their right.
    pub fn table(&mut self, heading: &str, header: &[&str], rows: &[Vec<String>]) {
        let line = |tag: &str, cells: &mut dyn Iterator<Item = &str>| {
            let cells: String = cells.map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let head = line("th", &mut header.iter().copied());
        let body: String = rows.iter().map(|row| line("td", &mut row.iter().map(String::as_str))).collect();
        let _ = writeln!(
            self.body,
            "<section>\n<h2>{}</h2>\n<div class=\"wide\"><table>\n<thead>{head}</thead>\n<tbody>\n{body}</tbody></table></div>\n</section>",
            escape(heading)
        );
    }

    /// The whole file.
    pub fn html(&self) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
            escape(&self.title),
            self.body
        )
    }
}

const STYLE: &str = "
:root { color-scheme: light dark; --page: #fff; --text: #1c2128; --faint: #57606a; --line: #d0d7de; }
@media (prefers-color-scheme: dark) { :root { --page: #14171c; --text: #e6e9ee; --faint: #9aa4b0; --line: #343b45; } }
body { margin: 2rem auto; max-width: 960px; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; } h2 { font-size: 1.1rem; margin: 2.5rem 0 .25rem; }
p { margin: .25rem 0 .75rem; } .small { color: var(--faint); font-size: .85rem; }
.warning { border-left: 3px solid #d9a400; padding-left: .6rem; }
.wide { overflow-x: auto; } svg { display: block; min-width: 720px; width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
";
