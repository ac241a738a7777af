//! A bench's report as pictures.

use super::plan::tables;
use super::report::{Record, Report};
use super::stage::{OF_LAYER, OF_PLAN, legend, name, series};
use crate::measure::pictures;
use crate::measure::times::{digits, time, unit};
use crate::page::bars::{self, Row};
use crate::page::roofline::{self, Point};
use crate::page::{Page, heat};

/// The whole page.
pub fn of(report: &Report) -> String {
    let mut page = Page::new(&format!("argon bench {}", report.bench), &small_print(report));
    report.warnings.iter().for_each(|warning| page.warning(warning));
    match report.bench {
        "plan" => plan(&mut page, report),
        "moe" => moe(&mut page, report),
        "dense" => dense(&mut page, report),
        _ => gather(&mut page, report),
    }
    if !report.plans.is_empty() {
        let named = report.plans.iter().map(|plan| (format!("T = {}", plan.tokens), plan.clone()));
        pictures::routing(&mut page, "each number of tokens", &named.collect::<Vec<_>>());
    }
    if !report.loads.is_empty() {
        let text =
            "Each cell is an expert of a layer, in a stronger colour the more of the longest chunk's tokens it gets.";
        page.picture("Load of the experts, layer by layer", text, &heat::draw(&report.loads, "load of experts"));
    }
    let (header, rows) = filled(&HEADER, report.records.iter().map(row).collect());
    page.table("All measurements", &header, &rows);
    page.html()
}

/// What was measured, on what, and how.
fn small_print(report: &Report) -> Vec<String> {
    let (m, mut lines) = (&report.machine, Vec::new());
    lines.push(report.about.line());
    lines.push(format!("{} ({}), products in {}", m.device, m.name, m.precision));
    lines.extend(Some(m.details.clone()).filter(|details| !details.is_empty()));
    lines.push(m.ceilings());
    lines.push(format!("medians; timed by {}", m.clock));
    lines.extend(report.notes.iter().cloned());
    lines
}

const HEADER: [&str; 11] =
    ["stage", "variant", "T", "median", "p10", "p90", "runs", "GB/s", "of memory", "GOP/s", "of products"];

fn row(record: &Record) -> Vec<String> {
    vec![
        name(&record.stage).to_owned(),
        record.variant.clone(),
        record.tokens.to_string(),
        time(record.times.median),
        time(record.times.p10),
        time(record.times.p90),
        record.times.runs.to_string(),
        record.gigabytes(),
        record.of_memory(),
        record.gigaoperations(),
        record.of_products(),
    ]
}

/// The columns that have something to show.
fn filled<'a>(header: &[&'a str], rows: Vec<Vec<String>>) -> (Vec<&'a str>, Vec<Vec<String>>) {
    let kept: Vec<usize> = (0..header.len()).filter(|&i| rows.iter().any(|row| !row[i].is_empty())).collect();
    let rows = rows.into_iter().map(|row| kept.iter().map(|&i| row[i].clone()).collect()).collect();
    (kept.iter().map(|&i| header[i]).collect(), rows)
}

/// Chunks that were measured.
fn chunks(report: &Report) -> Vec<usize> {
    let mut chunks: Vec<usize> = report.records.iter().map(|record| record.tokens).collect();
    chunks.dedup();
    chunks
}

fn plan(page: &mut Page, report: &Report) {
    let sequences = tables::sequences(report);
    let header: Vec<&str> = sequences.header.iter().map(String::as_str).collect();
    page.table(&format!("A layer of a sequence of {} layers", report.setting["layers"]), &header, &sequences.rows);
    let names = legend(&OF_PLAN);
    for tokens in chunks(report) {
        let of_chunk: Vec<&Record> = report.records.iter().filter(|record| record.tokens == tokens).collect();
        let (per_second, unit) = axis(&of_chunk);
        let mut rows: Vec<Row> = Vec::new();
        for record in of_chunk.iter().filter(|record| record.stage != "plan") {
            let label = record.variant.clone();
            if rows.last().is_none_or(|row| row.label != label) {
                rows.push(Row { label, total: String::new(), parts: Vec::new() });
            }
            if let Some(row) = rows.last_mut() {
                row.parts.push((
                    series(&OF_PLAN, &record.stage),
                    record.times.median * per_second,
                    time(record.times.median),
                ));
            }
        }
        for row in &mut rows {
            row.total = time(row.parts.iter().map(|part| part.1).sum::<f64>() / per_second);
        }
        if !rows.is_empty() {
            let heading = format!("T = {tokens}: stages alone");
            page.picture(
                &heading,
                "Each stage called by itself.",
                &bars::draw(&rows, &names, &in_unit("time", unit), &heading),
            );
        }
        let whole = of_chunk.iter().filter(|record| record.stage == "plan").map(|record| Row {
            label: record.variant.clone(),
            total: format!("{} ({} to {})", time(record.times.median), time(record.times.p10), time(record.times.p90)),
            parts: vec![(4, record.times.median * per_second, String::new())],
        });
        let heading = format!("T = {tokens}: a layer of a sequence of {} layers", report.setting["layers"]);
        let text = "Whole plans, enqueued one a layer as a model does; medians, and the middle 80 % of the runs.";
        page.picture(
            &heading,
            text,
            &bars::draw(&whole.collect::<Vec<_>>(), &[], &in_unit("time of a layer", unit), &heading),
        );
    }
}

fn moe(page: &mut Page, report: &Report) {
    let series = |stage: &str| series(&OF_LAYER, stage);
    let rows = chunks(report).into_iter().map(|tokens| {
        let of_chunk = || report.records.iter().filter(move |record| record.tokens == tokens);
        let layer = of_chunk().find(|record| record.stage == "layer").map_or(0.0, |record| record.times.median);
        let stages = of_chunk().filter(|record| record.stage != "layer");
        Row {
            label: format!("T = {tokens}"),
            total: time(layer),
            parts: stages
                .map(|record| {
                    let each = record.times.median * 1e6 / tokens as f64;
                    (series(&record.stage), each, time(record.times.median))
                })
                .collect(),
        }
    });
    let text = "How long a token takes in a layer, by stage. On the bars, the time of the whole chunk; beside them, that of \
                the layer in one go, after routing.";
    let rows: Vec<Row> = rows.collect();
    page.picture(
        "Where the time goes",
        text,
        &bars::draw(&rows, &legend(&OF_LAYER), "time for each token, µs", "time by stage"),
    );
    let points = report.records.iter().filter(|record| ["gate_up", "down"].contains(&record.stage.as_str()));
    let points = points.filter_map(|record| point(record, format!("T = {}", record.tokens), series(&record.stage)));
    roof(page, report, &points.collect::<Vec<_>>(), &legend(&OF_LAYER[1..3]));
}

fn dense(page: &mut Page, report: &Report) {
    for tokens in chunks_sorted(report) {
        let of_chunk: Vec<&Record> = report.records.iter().filter(|record| record.tokens == tokens).collect();
        let (per_second, unit) = axis(&of_chunk);
        let rows = of_chunk.iter().map(|record| Row {
            label: record.variant.clone(),
            total: format!("{} GOP/s, {}", record.gigaoperations(), record.of_products()),
            parts: vec![(0, record.times.median * per_second, time(record.times.median))],
        });
        let heading = format!("{tokens} rows of activations");
        let text = "Beside the bars, how fast that is, and which share that is of what the device's arithmetic allows.";
        page.picture(&heading, text, &bars::draw(&rows.collect::<Vec<_>>(), &[], &in_unit("time", unit), &heading));
    }
    let several = chunks_sorted(report).len() > 1;
    let name = |record: &Record| match several {
        true => format!("{}, T = {}", record.variant, record.tokens),
        false => record.variant.clone(),
    };
    let points: Vec<Point> = report.records.iter().filter_map(|record| point(record, name(record), 0)).collect();
    roof(page, report, &points, &[]);
}

fn gather(page: &mut Page, report: &Report) {
    let (per_second, unit) = axis(&report.records.iter().collect::<Vec<_>>());
    let rows = report.records.iter().map(|record| Row {
        label: format!("T = {}, from {}", record.tokens, record.variant),
        total: format!("{} GB/s", digits(record.bytes_per_s.unwrap_or(0.0) / 1e9)),
        parts: vec![(
            usize::from(record.variant != "f32"),
            record.times.median * per_second,
            time(record.times.median),
        )],
    });
    let text = "Copies of tokens to the rows of their experts. A share of memory above 100 % is what caches add: tokens that were \
                just written are read from there.";
    page.picture(
        "Gather",
        text,
        &bars::draw(&rows.collect::<Vec<_>>(), &[], &in_unit("time", unit), "time of the gather"),
    );
}

/// The unit of an axis for these times.
fn axis(records: &[&Record]) -> (f64, &'static str) {
    unit(records.iter().map(|record| record.times.median).fold(0.0, f64::max))
}

/// The title of an axis.
fn in_unit(what: &str, unit: &str) -> String {
    format!("{what}, {unit}")
}

/// Chunks in ascending order.
fn chunks_sorted(report: &Report) -> Vec<usize> {
    let mut chunks = chunks(report);
    chunks.sort_unstable();
    chunks.dedup();
    chunks
}

fn point(record: &Record, name: String, series: usize) -> Option<Point> {
    let (bytes, operations, rate) = (record.bytes?, record.operations?, record.operations_per_s?);
    Some(Point { name, series, intensity: operations / bytes, rate, ceiling: record.operations_ceiling? })
}

fn roof(page: &mut Page, report: &Report, points: &[Point], names: &[(usize, &str)]) {
    let m = &report.machine;
    let lower = points.iter().any(|point| point.ceiling < m.operations_per_s);
    let floats = if lower { " The lower flat part is for weights that are plain floats." } else { "" };
    let text = format!(
        "The grey roof is what memory (its slope) and arithmetic (its flat part) allow on this device, as measured. A \
         point on the roof cannot be faster; below it, the distance is what is left to gain.{floats}"
    );
    let svg = roofline::draw(points, m.memory_bytes_per_s, m.operations_per_s, names, "roofline");
    page.picture("Roofline", &text, &svg);
}

#[cfg(test)]
mod tests {
    use super::filled;

    #[test]
    fn a_column_of_nothing_is_left_out() {
        let rows = vec![vec!["1".into(), String::new(), String::new()], vec!["2".into(), String::new(), "x".into()]];
        let (header, rows) = filled(&["a", "b", "c"], rows);
        assert_eq!(
            (header, rows),
            (vec!["a", "c"], vec![vec!["1".into(), String::new()], vec!["2".into(), "x".to_string()]])
        );
    }
}
