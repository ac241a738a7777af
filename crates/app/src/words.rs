//! Numbers, and texts of files, as people read them.

/// A number of things: `1 token`, `2 tokens`.
pub fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Bytes with the prefix that keeps them below a thousand: `11.36 MB`. Thousands, not 1024.
pub fn bytes(value: u64) -> String {
    scaled(value, ["B", "kB", "MB", "GB", "TB"])
}

/// A count with the letter that keeps it below a thousand: `17.30 M`, `30.50 B`, as models are called.
pub fn many(value: u64) -> String {
    scaled(value, ["", "k", "M", "B", "T"])
}

fn scaled(value: u64, units: [&str; 5]) -> String {
    let power = (value.checked_ilog10().unwrap_or(0) / 3).min(4);
    let unit = units[power as usize];
    if power == 0 {
        return format!("{value} {unit}").trim_end().into();
    }
    format!("{:.2} {unit}", value as f64 / 1000f64.powi(power as i32))
}

/// A text as one line of readable length, whatever a file has put into it: nothing of it moves a terminal's cursor.
pub fn one_line(text: &str) -> String {
    const LONGEST: usize = 2000;
    let mut line = String::new();
    for (index, c) in text.chars().enumerate() {
        if index == LONGEST {
            return line + "...";
        }
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "token")), ["0 tokens", "1 token", "2 tokens"]);
    }

    #[test]
    fn numbers_are_scaled() {
        let shown = [0, 999, 1000, 11_357_696, 45_900_000_000].map(bytes);
        assert_eq!(shown, ["0 B", "999 B", "1.00 kB", "11.36 MB", "45.90 GB"]);
        assert_eq!([12, 30_500_000_000, u64::MAX].map(many), ["12", "30.50 B", "18446744.07 T"]);
    }

    #[test]
    fn a_text_is_one_line_and_no_book() {
        assert_eq!(one_line("a\nb\u{1b}[31mc\u{e9}"), "a\\nb\\u{1b}[31mc\u{e9}");
        assert_eq!(one_line(&"x".repeat(5000)).len(), 2003);
    }
}
