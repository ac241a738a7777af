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

#[cfg(test)]
mod tests {
    #[test]
    fn columns_line_up() {
        let rows = [["a".into(), "1".into()], ["long".into(), "123".into()]];
        let mut out = Vec::new();
        super::write(&mut out, ["name", "n"], [false, true], &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "name    n\na       1\nlong  123\n");
    }
}
