//! What `transformers` gives a template beyond Jinja itself.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::time::SystemTime;

use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, Utc};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use regex_automata::meta::Regex;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// Jinja with the white space rules, the functions, the filter and Python's methods that chat templates count on.
pub(super) fn transformers() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("Jinja's own delimiters"));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_filter("tojson", tojson);
    environment.set_formatter(|out, state, value| {
        pay_for(state, value)?;
        minijinja::escape_formatter(out, state, value)
    });
    // In Python, None cannot be iterated over; `tools is iterable` counts on that.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment
}

/// `{% generation %}` marks what a model said, for training. It renders what is in it.
pub(super) fn without_generation_tags(source: &str) -> String {
    let tag = Regex::new(r"\{%[-+]?\s*(?:end)?generation\s*[-+]?%\}").expect("a pattern that tests compile");
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    for found in tag.find_iter(source) {
        let renamed = source[found.range()].replace("endgeneration", "endif").replace("generation", "if true");
        out.push_str(&source[at..found.start()]);
        out.push_str(&renamed);
        at = found.end();
    }
    out.push_str(&source[at..]);
    out
}

/// What a template said when it called `raise_exception`.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Refusal(message)))
}

/// The template's own words, if it called `raise_exception`.
pub(super) fn refusal(error: &Error) -> Option<String> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(Refusal(message)) = error.downcast_ref() {
            return Some(message.clone());
        }
        cause = error.source();
    }
    None
}

/// The error without the name of the template.
pub(super) fn describe(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// Python's `datetime.strftime` at a fixed time.
pub(super) fn strftime_at(now: Option<SystemTime>) -> impl Fn(&str) -> Result<String, Error> {
    move |format| {
        let invalid = |reason: &'static str| Error::new(ErrorKind::InvalidOperation, reason);
        let now = now.ok_or_else(|| invalid("the template writes the date, and no time was given"))?;
        let items: Vec<Item<'_>> = StrftimeItems::new(format).collect();
        if items.contains(&Item::Error) {
            return Err(invalid("the template's date format is not known"));
        }
        Ok(DateTime::<Utc>::from(now).format_with_items(items.into_iter()).to_string())
    }
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=indent)`.
fn tojson(state: &State, value: Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    pay_for(state, &value)?;
    let failed = |reason: String| Error::new(ErrorKind::InvalidOperation, reason);
    if options.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        return Err(failed("tojson: ensure_ascii=true is not supported".into()));
    }
    let indent = indent.or(options.get("indent")?);
    options.assert_all_used()?;
    let mut json = Vec::new();
    let written = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut json, Spaced)),
        Some(width @ 0..=16) => {
            let indent = [b' '; 16];
            let formatter = PrettyFormatter::with_indent(&indent[..width]);
            value.serialize(&mut Serializer::with_formatter(&mut json, formatter))
        }
        Some(width) => return Err(failed(format!("tojson: indent={width} is more than 16"))),
    };
    written.map_err(|error| failed(format!("tojson: {error}")))?;
    String::from_utf8(json).map_err(|error| failed(format!("tojson: {error}")))
}

/// Takes fuel for writing out `value` before that is done.
///
/// The engine itself takes it afterwards, which is too late for a list of lists that holds the same list twice on each of
/// a hundred levels, or is nested a hundred thousand deep.
fn pay_for(state: &State, value: &Value) -> Result<(), Error> {
    const DEEPEST: usize = 64;
    pay_for_level(state, value, DEEPEST)
}

fn pay_for_level(state: &State, value: &Value, levels: usize) -> Result<(), Error> {
    state.consume_fuel(1 + value.as_str().map_or(0, |text| text.len() as u64 / 64))?;
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
        return Ok(());
    }
    let deeper = levels.checked_sub(1).ok_or_else(|| {
        Error::new(ErrorKind::InvalidOperation, "lists or maps are nested too deeply to be written out")
    })?;
    for item in value.try_iter()? {
        pay_for_level(state, &item, deeper)?;
        if value.kind() == ValueKind::Map {
            pay_for_level(state, &value.get_item(&item)?, deeper)?;
        }
    }
    Ok(())
}

/// JSON with a space behind each comma and colon, as Python writes it.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
