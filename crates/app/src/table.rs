//! A table of text, columns as wide as their widest cell.

use std::io::{self, Write};

/// Writes `rows` under `header`; cells of a column marked `true` in `right` stand at its right edge.
///
/// # Errors
/// Those of `out`.
pub fn write<const N: usize>(
    out: &mut impl Write,
    header: [&str; N],
    right: [bool; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].as_str());
        cells.chain([header[column]]).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut line = |cells: [&str; N]| {
        let padded: [String; N] = std::array::from_fn(|column| {
            let (cell, width) = (cells[column], widths[column]);
            if right[column] { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        writeln!(out, "{}", padded.join("  ").trim_end())
    };
    line(header)?;
    rows.iter().try_for_each(|row| line(std::array::from_fn(|column| row[column].as_str())))
}

/// Writes `rows` under `header` as a Markdown table; cells of a column marked `true` in `right` stand at its right edge.
/// Every row is as long as the header.
///
/// # Errors
/// Those of `out`.
pub fn markdown(out: &mut impl Write, header: &[&str], right: &[bool], rows: &[Vec<String>]) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].as_str());
        cells.chain([header[column]]).map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut line = |cells: Vec<&str>| {
        let columns = cells.into_iter().zip(&widths).zip(right);
        let padded = columns.map(|((cell, &width), &right)| match right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        writeln!(out, "| {} |", padded.collect::<Vec<_>>().join(" | "))
    };
    line(header.to_vec())?;
    let rule = |(&width, &right): (&usize, &bool)| match right {
        true => "-".repeat(width - 1) + ":",
        false => "-".repeat(width),
    };
    let rules: Vec<String> = widths.iter().zip(right).map(rule).collect();
    line(rules.iter().map(String::as_str).collect())?;
    rows.iter().try_for_each(|row| line(row.iter().map(String::as_str).collect()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn markdown_lines_up() {
        let rows = [vec!["a".into(), "12.0 µs".into()], vec!["long".into(), "1".into()]];
        let mut out = Vec::new();
        super::markdown(&mut out, &["name", "n"], &[false, true], &rows).unwrap();
        let expected = "| name |       n |\n| ---- | ------: |\n| a    | 12.0 µs |\n| long |       1 |\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a".into(), "1".into()], ["long".into(), "123".into()]];
        let mut out = Vec::new();
        super::write(&mut out, ["name", "n"], [false, true], &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "name    n\na       1\nlong  123\n");
    }
}
