//! `argon bench model`: prefill and generation of a whole model, measured and shown as `llama-bench` does.
//!
//! Each test runs once unmeasured, so that weights are in memory, then as often as asked, each time from an empty
//! session. The tokens are drawn from the whole vocabulary, so that they spread over the experts.

use std::io::{self, Write};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use argon_engine::{Engine, EngineError, Logits, Session};
use argon_gguf::Gguf;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde::Serialize;

use super::outputs::{self, CutShort, Ended};
use super::speed::Speed;
use crate::about::About;
use crate::failure::{Failure, OrFail, stdout_failure};
use crate::inspect::census;
use crate::interrupt::Interrupt;
use crate::measure::load;
use crate::measure::profile::{Profile, Profiler};
use crate::model;
use crate::page::Page;
use crate::page::bars::{self, Row};
use crate::settings::{self, BenchTest};
use crate::words::{counted, one_line};

/// What was measured on what.
#[derive(Debug, Serialize)]
struct Record {
    /// `pp512`: a prompt of 512 tokens; `tg16`: 16 tokens generated one by one.
    test: String,
    tokens: usize,
    tokens_per_second: f64,
    /// Standard deviation of one run.
    tokens_per_second_sd: f64,
    /// Of each run.
    seconds: Vec<f64>,
    /// Whether all tests ran as often as asked.
    ended: Ended,
    #[serde(flatten)]
    setting: Setting,
}

/// What all measurements of a run have in common.
#[derive(Clone, Debug, Serialize)]
struct Setting {
    #[serde(flatten)]
    about: About,
    file: String,
    model: String,
    size_bytes: u64,
    parameters: u64,
    backend: String,
    device: String,
    precision: &'static str,
    /// Of the processor; `None` on another device.
    threads: Option<usize>,
    chunk: usize,
    /// What a reader must know of the machine.
    warning: Option<String>,
}

/// Runs the command: a row on standard output as soon as it is measured, the JSON at the end.
///
/// # Errors
/// Of the input, or of the work.
pub fn run(settings: settings::BenchModel) -> Result<(), Failure> {
    let path = settings.model.as_deref();
    let gguf = model::open(path)?;
    settings.outputs.check(model::files(&gguf))?;
    let busy = load::warning(settings.device.threads());
    let engine = model::load(&gguf, path, &settings.device)?;
    let setting = Setting::new(path, &gguf, &engine, &settings, busy)?;
    eprintln!("{}", setting.about.line());
    model::introduce(&engine, path);
    setting.warning.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let interrupt = Interrupt::catch();
    let mut out = io::stdout().lock();
    write!(out, "{}", setting.header()).and_then(|()| out.flush()).map_err(stdout_failure)?;
    let mut records = Vec::new();
    let mut one = |&test: &BenchTest| {
        let options = settings.session.with_context(test.tokens());
        let session = model::session(&engine, options, &format!("{test}"))?;
        let seconds = measure(session, test, settings.repetitions, engine.info().vocabulary, &interrupt)?;
        if seconds.is_empty() {
            return Err(Failure::Interrupted);
        }
        let record = Record::new(test, seconds, &setting);
        writeln!(out, "{}", record.row()).and_then(|()| out.flush()).map_err(stdout_failure)?;
        records.push(record);
        interrupt.check()
    };
    let measured = settings.tests.iter().try_for_each(&mut one);
    let cut_short = outputs::cut_short(measured, !records.is_empty())?;
    let ended = cut_short.as_ref().map_or(Ended::Complete, |cut_short| cut_short.ended);
    records.iter_mut().for_each(|record| record.ended = ended);
    let page = || {
        let profile = if cut_short.is_some() { None } else { profile(&engine, &settings)? };
        Ok(html(&records, &setting, cut_short.as_ref(), profile.as_ref()))
    };
    settings.outputs.write(&records, || csv(&records), page, &interrupt)?;
    cut_short.map_or(Ok(()), |cut_short| Err(cut_short.failure))
}

fn csv(records: &[Record]) -> String {
    let mut out =
        String::from("test,tokens,tokens_per_second,tokens_per_second_sd,runs,backend,precision,threads,chunk,ended\n");
    for record in records {
        let Record { test, tokens, tokens_per_second, tokens_per_second_sd, seconds, ended, setting } = record;
        let Setting { backend, precision, threads, chunk, .. } = setting;
        let threads = threads.map_or_else(String::new, |threads| threads.to_string());
        let (speed, deviation) = (format!("{tokens_per_second:.3}"), format!("{tokens_per_second_sd:.3}"));
        let runs = seconds.len();
        let ended = ended.name();
        out += &format!("{test},{tokens},{speed},{deviation},{runs},{backend},{precision},{threads},{chunk},{ended}\n");
    }
    out
}

/// The longest prompt, read once more and watched; `None` where there is none.
fn profile(engine: &Engine, settings: &settings::BenchModel) -> Result<Option<Profile>, Failure> {
    let prompt = |test: &BenchTest| if let BenchTest::Prompt(tokens) = *test { Some(tokens) } else { None };
    let Some(length) = settings.tests.iter().filter_map(prompt).max() else { return Ok(None) };
    let failure = |error| model::failure(error, "the watched prompt");
    let mut session = engine.session(settings.session.with_context(length)).map_err(failure)?;
    let tokens = random_tokens(length, engine.info().vocabulary);
    let mut profiler = Profiler::new(engine);
    profiler.start();
    session.prefill_probed(&tokens, Logits::Last, &mut profiler).map_err(failure)?;
    profiler.stop().or_work("the watched prompt")?;
    Ok(Some(profiler.profile(model::name(settings.model.as_deref()), length, session.chunk())))
}

/// The speeds, and where the time of a prompt went.
fn html(records: &[Record], setting: &Setting, cut_short: Option<&CutShort>, profile: Option<&Profile>) -> String {
    let Setting { about, file, model, device, precision, chunk, .. } = setting;
    let lines = [
        about.line(),
        format!("{model}; {} ({device}), products in {precision}, chunks of {chunk}", setting.backend),
        format!(
            "means of {} from an empty context, with their standard deviation; each ran once unmeasured before",
            counted(records.iter().map(|record| record.seconds.len()).max().unwrap_or(0), "run")
        ),
    ];
    let mut page = Page::new(&format!("argon bench model: {file}"), &lines);
    setting.warning.iter().for_each(|warning| page.warning(warning));
    cut_short.iter().for_each(|cut_short| page.warning(&cut_short.warning));
    let row = |record: &Record| Row {
        label: record.test.clone(),
        total: format!("{:.2} ± {:.2}", record.tokens_per_second, record.tokens_per_second_sd),
        parts: vec![(usize::from(record.test.starts_with("tg")), record.tokens_per_second, String::new())],
    };
    let rows: Vec<Row> = records.iter().map(row).collect();
    let text = "pp: a prompt of so many tokens; tg: so many tokens generated one by one.";
    page.picture("Speed", text, &bars::draw(&rows, &[], "speed, tokens a second", "speed"));
    if let Some(profile) = profile {
        profile.draw(&mut page);
    }
    page.html()
}

/// Tokens drawn from the whole vocabulary.
fn random_tokens(count: usize, vocabulary: usize) -> Vec<u32> {
    let mut random = Pcg32::seed_from_u64(0);
    (0..count).map(|_| random.next_u32() % vocabulary as u32).collect()
}

/// The seconds that each run of `test` took, of those that were through when Ctrl-C came.
fn measure(
    mut session: Session,
    test: BenchTest,
    repetitions: usize,
    vocabulary: usize,
    interrupt: &Interrupt,
) -> Result<Vec<f64>, Failure> {
    let mut random = Pcg32::seed_from_u64(0);
    let stop = &mut |_| if interrupt.came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let mut once = || {
        session.reset()?;
        let tokens: Vec<u32> = (0..test.tokens()).map(|_| random.next_u32() % vocabulary as u32).collect();
        let piece = match test {
            BenchTest::Prompt(tokens) => tokens,
            BenchTest::Generate(_) => 1,
        };
        let start = Instant::now();
        for piece in tokens.chunks(piece) {
            session.prefill(piece, Logits::Last, stop)?;
        }
        Ok(start.elapsed().as_secs_f64())
    };
    let mut seconds = Vec::new();
    for run in 0..=repetitions {
        match once() {
            Err(EngineError::Stopped { .. }) => break,
            Err(error) => return Err(model::failure(error, &test.to_string())),
            Ok(_) if run == 0 => {}
            Ok(took) => seconds.push(took),
        }
        if interrupt.came() {
            break;
        }
    }
    Ok(seconds)
}

impl Record {
    fn new(test: BenchTest, seconds: Vec<f64>, setting: &Setting) -> Record {
        let Speed { mean, deviation } = Speed::new(test.tokens(), &seconds);
        Record {
            test: test.to_string(),
            tokens: test.tokens(),
            tokens_per_second: mean,
            tokens_per_second_sd: deviation,
            seconds,
            ended: Ended::Complete,
            setting: setting.clone(),
        }
    }

    /// Its line of the table.
    fn row(&self) -> String {
        let speed = Speed { mean: self.tokens_per_second, deviation: self.tokens_per_second_sd };
        self.setting.row(&self.test, speed)
    }
}

impl Setting {
    fn new(
        path: Option<&Path>,
        gguf: &Gguf,
        engine: &Engine,
        settings: &settings::BenchModel,
        warning: Option<String>,
    ) -> Result<Setting, Failure> {
        let (info, device) = (engine.info(), engine.device().info());
        let label = gguf.metadata().str("general.size_label").or_input(model::name(path))?;
        let census = census::take(gguf, None);
        let all = std::thread::available_parallelism().map_or(1, NonZero::get);
        Ok(Setting {
            about: About::now(),
            file: model::name(path),
            model: one_line(&[Some(info.architecture), label].into_iter().flatten().collect::<Vec<_>>().join(" ")),
            size_bytes: census.bytes,
            parameters: census.parameters,
            threads: (device.id == "cpu").then(|| settings.device.threads.map_or(all, NonZero::get)),
            backend: device.id,
            device: device.name,
            precision: info.precision.name(),
            chunk: settings.session.chunk(),
            warning,
        })
    }

    /// The first two lines of the table.
    fn header(&self) -> String {
        format!(
            "| {:<24} | {:>10} | {:>10} | {:<10} | {:>7} | {:>8} | {:>20} |\n\
             | {:-<24} | {:->9}: | {:->9}: | {:-<10} | {:->6}: | {:->7}: | {:->19}: |\n",
            "model", "size", "params", "backend", "threads", "test", "t/s", "", "", "", "", "", "", "",
        )
    }

    fn row(&self, test: &str, speed: Speed) -> String {
        const MIB: f64 = (1 << 20) as f64;
        let size = match self.size_bytes as f64 / MIB {
            mib if mib < 1024.0 => format!("{mib:.2} MiB"),
            mib => format!("{:.2} GiB", mib / 1024.0),
        };
        let parameters = match self.parameters as f64 / 1e6 {
            millions if millions < 1000.0 => format!("{millions:.2} M"),
            millions => format!("{:.2} B", millions / 1000.0),
        };
        let threads = self.threads.map_or_else(|| "-".into(), |threads| threads.to_string());
        format!(
            "| {:<24} | {size:>10} | {parameters:>10} | {:<10} | {threads:>7} | {:>8} | {:>20} |",
            self.model,
            format!("{} {}", self.backend, self.precision),
            test,
            speed.to_string(),
        )
    }
}
