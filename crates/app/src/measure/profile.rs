//! `argon run --profile`: where a prompt's time went, by stage and by layer, and which experts its tokens chose.
//!
//! The clock is the host's. When a stage ends, the device is waited for, so that what it did is counted there; on a device
//! that overlaps stages the sum is therefore more than the prompt takes by itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use argon_engine::Engine;
use argon_engine::probe::{Intermediate, Probe, Shown, Stage, Values};
use argon_kernels::DeviceError;
use argon_plan::{Plan, Shape, Variant};
use serde::Serialize;

use super::layout::Layout;
use super::pictures;
use super::routing::{self, Recorded};
use super::times::{digits, time, unit};
use crate::about::About;
use crate::failure::{Failure, OrFail};
use crate::interrupt::Interrupt;
use crate::output;
use crate::page::bars::{self, Row};
use crate::page::{Page, columns, heat};

/// A stage of a layer, or of none.
type Place = (Stage, Option<usize>);

/// Watches a prompt on its way.
pub struct Profiler {
    engine: Engine,
    /// Where the time goes now, and since when.
    at: Place,
    since: Instant,
    spent: BTreeMap<Place, Duration>,
    /// Chosen experts `[layer][T*K]`.
    ids: Vec<Vec<i32>>,
    /// What waiting for the device brought up.
    failed: Option<DeviceError>,
}

impl Profiler {
    /// For prompts through this model.
    pub fn new(engine: &Engine) -> Profiler {
        let ids = vec![Vec::new(); engine.info().layers];
        let at = (Stage::Other, None);
        Profiler { engine: engine.clone(), at, since: Instant::now(), spent: BTreeMap::new(), ids, failed: None }
    }

    /// A prompt begins.
    pub fn start(&mut self) {
        (self.at, self.since) = ((Stage::Other, None), Instant::now());
    }

    /// The prompt is through.
    ///
    /// # Errors
    /// What the device reported meanwhile.
    pub fn stop(&mut self) -> Result<(), DeviceError> {
        self.turn_to((Stage::Other, None));
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Ends what is going on.
    fn turn_to(&mut self, next: Place) {
        if let Err(error) = self.engine.device().sync() {
            self.failed.get_or_insert(error);
        }
        let now = Instant::now();
        *self.spent.entry(self.at).or_default() += now - self.since;
        (self.at, self.since) = (next, now);
    }

    /// Writes the choices, if there are any.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_routing(&self, path: &Path, interrupt: &Interrupt) -> Result<(), Failure> {
        let top_k = self.engine.info().experts_used;
        let tokens = self.ids.iter().map(Vec::len).min().unwrap_or(0) / top_k.max(1);
        if tokens == 0 {
            return Ok(());
        }
        let ids: Vec<i32> = self.ids.iter().flat_map(|ids| &ids[..tokens * top_k]).copied().collect();
        routing::write(path, Recorded { layers: self.ids.len(), tokens, top_k }, &ids, interrupt)
    }

    /// What was found, about a prompt of so many tokens in chunks of so many through the model in `file`.
    pub fn profile(&self, file: String, tokens: usize, chunk: usize) -> Profile {
        let (info, device) = (self.engine.info(), self.engine.device().info());
        let seconds = |wanted: &dyn Fn(&Place) -> bool| {
            self.spent.iter().filter(|(place, _)| wanted(place)).map(|(_, spent)| spent.as_secs_f64()).sum::<f64>()
        };
        let load = |ids: &Vec<i32>| {
            let mut load = vec![0; info.experts];
            ids.iter().filter_map(|&id| usize::try_from(id).ok()).for_each(|id| load[id] += 1);
            load
        };
        let stages = Stage::ALL.map(|stage| Spent { stage: stage.name(), seconds: seconds(&|at| at.0 == stage) });
        let layers = (0..info.layers).map(|layer| {
            let of_stage =
                |stage: Stage| Spent { stage: stage.name(), seconds: seconds(&|at| *at == (stage, Some(layer))) };
            Stage::ALL.map(of_stage).into_iter().filter(|spent| spent.seconds > 0.0).collect()
        });
        Profile {
            about: About::now(),
            file,
            model: info.architecture,
            device: format!("{} ({})", device.id, device.name),
            precision: info.precision.name(),
            warnings: Vec::new(),
            tokens,
            chunk: chunk.min(tokens),
            seconds: seconds(&|_| true),
            stages: stages.into_iter().filter(|spent| spent.seconds > 0.0).collect(),
            layers: layers.collect(),
            loads: self.ids.iter().map(load).collect(),
            plans: self.plans(chunk),
        }
    }

    /// How the first chunk lies in the plans of the first, the middle and the last layer.
    fn plans(&self, chunk: usize) -> Vec<(String, Layout)> {
        let (info, device) = (self.engine.info(), self.engine.device());
        let mut layers = vec![0, info.layers / 2, info.layers.saturating_sub(1)];
        layers.dedup();
        let plan = |layer: usize| {
            let ids = self.ids.get(layer)?;
            let tokens = (ids.len() / info.experts_used.max(1)).min(chunk);
            let ids = &ids[..tokens * info.experts_used];
            let shape =
                Shape::new(tokens, info.experts_used, info.experts, device.tile_rows(ids.len(), info.experts)).ok()?;
            let plan = Plan::build(shape, ids, &vec![0; ids.len()], Variant::default()).ok()?;
            (tokens > 0).then(|| (format!("layer {layer}"), Layout::of(&plan)))
        };
        layers.into_iter().filter_map(plan).collect()
    }
}

impl Probe for Profiler {
    fn wants(&self, what: Intermediate, _layer: usize) -> bool {
        what == Intermediate::RouterIds
    }

    fn see(&mut self, shown: Shown) {
        if let (Values::I32(ids), Some(of_layer)) = (shown.values, self.ids.get_mut(shown.layer)) {
            of_layer.extend(ids);
        }
    }

    fn enter(&mut self, stage: Stage, layer: Option<usize>) {
        self.turn_to((stage, layer));
    }
}

/// Where a prompt's time went.
#[derive(Debug, Serialize)]
pub struct Profile {
    #[serde(flatten)]
    about: About,
    file: String,
    model: &'static str,
    device: String,
    precision: &'static str,
    /// What casts doubt on the times.
    pub warnings: Vec<String>,
    /// Tokens of the prompt.
    tokens: usize,
    /// Tokens that went through the layers at once.
    chunk: usize,
    /// From its first token to its logits.
    seconds: f64,
    /// All layers together; their sum is `seconds`.
    stages: Vec<Spent>,
    /// Of each layer.
    layers: Vec<Vec<Spent>>,
    /// Entries of each expert, `[layer][E]`.
    loads: Vec<Vec<u32>>,
    /// How a chunk lies in the plans of some layers.
    plans: Vec<(String, Layout)>,
}

/// Time spent.
#[derive(Debug, Serialize)]
struct Spent {
    stage: &'static str,
    seconds: f64,
}

impl Spent {
    /// The colour of its stage: the same in all pictures of all runs.
    fn series(&self) -> usize {
        Stage::ALL.iter().position(|stage| stage.name() == self.stage).unwrap_or(Stage::ALL.len())
    }
}

impl Profile {
    /// The stages as a table, the longest first, and a line on the experts.
    pub fn table(&self) -> String {
        let mut rows = vec![["stage".into(), "time".into(), "share".into(), "each token".into()]];
        rows.extend(self.by_time().map(|spent| {
            [spent.stage.to_owned(), time(spent.seconds), self.share(spent.seconds), self.each(spent.seconds)]
        }));
        rows.push(["prompt".into(), time(self.seconds), self.share(self.seconds), self.each(self.seconds)]);
        let lines =
            rows.iter().map(|[stage, time, share, each]| format!("{stage:<16}  {time:>8}  {share:>6}  {each:>10}"));
        let (least, most) = self.active();
        let experts = self.loads.first().map_or(0, Vec::len);
        let used = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let last = format!(
            "of {experts} experts a layer used {used}; the busiest had {} times the mean of its layer",
            digits(self.peak())
        );
        lines.chain([last]).collect::<Vec<_>>().join("\n")
    }

    fn by_time(&self) -> impl Iterator<Item = &Spent> {
        let mut stages: Vec<&Spent> = self.stages.iter().collect();
        stages.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        stages.into_iter()
    }

    fn share(&self, seconds: f64) -> String {
        format!("{:.1} %", 100.0 * seconds / self.seconds)
    }

    fn each(&self, seconds: f64) -> String {
        time(seconds / self.tokens.max(1) as f64)
    }

    /// The fewest and the most experts that a layer used.
    fn active(&self) -> (usize, usize) {
        let active = || self.loads.iter().map(|load| load.iter().filter(|entries| **entries > 0).count());
        (active().min().unwrap_or(0), active().max().unwrap_or(0))
    }

    /// The largest load by the mean of its layer.
    fn peak(&self) -> f64 {
        let of_layer = |load: &Vec<u32>| {
            let (sum, most) = (load.iter().sum::<u32>(), load.iter().max().copied().unwrap_or(0));
            f64::from(most) * load.len() as f64 / f64::from(sum.max(1))
        };
        self.loads.iter().map(of_layer).fold(0.0, f64::max)
    }

    /// Writes it as a page, or as JSON where the name of the file ends so.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path, interrupt: &Interrupt) -> Result<(), Failure> {
        let json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let text = if json { serde_json::to_string_pretty(self).or_work("JSON")? + "\n" } else { self.html() };
        output::write(path, text, interrupt).or_work(path.display())
    }

    fn html(&self) -> String {
        let speed = self.tokens as f64 / self.seconds;
        let small_print = [
            self.about.line(),
            format!("{}; {}, products in {}", self.model, self.device, self.precision),
            format!(
                "a prompt of {} tokens in chunks of up to {}: {}, {} tokens/s",
                self.tokens,
                self.chunk,
                time(self.seconds),
                digits(speed)
            ),
            "host clock; the device is waited for at the end of each stage".into(),
        ];
        let mut page = Page::new(&format!("argon run --profile: {}", self.file), &small_print);
        self.warnings.iter().for_each(|warning| page.warning(warning));
        self.draw(&mut page);
        page.html()
    }

    /// Draws it onto a page.
    pub fn draw(&self, page: &mut Page) {
        let (per_second, name) = unit(self.stages.iter().map(|spent| spent.seconds).fold(0.0, f64::max));
        let row = |spent: &Spent| Row {
            label: spent.stage.into(),
            total: format!("{}, {}", time(spent.seconds), self.share(spent.seconds)),
            parts: vec![(spent.series(), spent.seconds * per_second, String::new())],
        };
        let rows: Vec<Row> = self.by_time().map(row).collect();
        let text = "All layers together. \"Other\" is what no stage accounts for.";
        page.picture(
            "By stage",
            text,
            &bars::draw(&rows, &[], &format!("time in all layers, {name}"), "time by stage"),
        );
        let of_layer =
            |layer: &[Spent], stage: &str| layer.iter().find(|spent| spent.stage == stage).map_or(0.0, |s| s.seconds);
        let in_layers = self.by_time().filter(|all| self.layers.iter().any(|layer| of_layer(layer, all.stage) > 0.0));
        let names: Vec<(usize, &str)> = in_layers.map(|spent| (spent.series(), spent.stage)).collect();
        let parts = |layer: &Vec<Spent>| names.iter().map(|(_, stage)| 1e3 * of_layer(layer, stage)).collect();
        let layers: Vec<Vec<f64>> = self.layers.iter().map(parts).collect();
        let text = "Every layer's stages, one on the other.";
        page.picture("By layer", text, &columns::draw(&layers, &names, ["layer", "time"], "ms", "time by layer"));
        let text = format!(
            "Each cell is an expert of a layer, in a stronger colour the more tokens chose it. The busiest had {} times \
             the mean of its layer.",
            digits(self.peak())
        );
        page.picture("Load of the experts", &text, &heat::draw(&self.loads, "load of experts"));
        pictures::routing(page, "the first, the middle and the last layer", &self.plans);
        let rows = self.by_time().map(|spent| {
            vec![spent.stage.to_owned(), time(spent.seconds), self.share(spent.seconds), self.each(spent.seconds)]
        });
        page.table("The same in numbers", &["stage", "time", "share", "each token"], &rows.collect::<Vec<_>>());
    }
}
