//! The stages that are timed by themselves, in their order: what files and pictures call them.

/// A stage.
pub struct Stage {
    /// In files.
    pub key: &'static str,
    /// In pictures and tables.
    pub name: &'static str,
    /// The colour of its series, the same in all pictures.
    pub series: usize,
}

const fn stage(key: &'static str, name: &'static str, series: usize) -> Stage {
    Stage { key, name, series }
}

/// Of a plan; a variant has some of them.
pub const OF_PLAN: [Stage; 5] = [
    stage("hist", "hist", 0),
    stage("scan", "scan", 1),
    stage("hist_scan", "hist and scan as one", 6),
    stage("clear", "clear", 3),
    stage("place", "place", 2),
];

/// Of a mixture-of-experts layer after routing.
pub const OF_LAYER: [Stage; 4] = [
    stage("plan", "plan", 3),
    stage("gate_up", "gate, up", 0),
    stage("down", "down", 1),
    stage("combine", "combine", 2),
];

/// The colour of a stage by its key, which is among `stages`.
pub fn series(stages: &[Stage], key: &str) -> usize {
    stages.iter().find(|stage| stage.key == key).expect("a stage that was measured").series
}

/// What pictures and tables call what was measured: a stage by its name, anything else by its key.
pub fn name(key: &str) -> &str {
    OF_PLAN.iter().chain(&OF_LAYER).find(|stage| stage.key == key).map_or(key, |stage| stage.name)
}

/// A legend of `stages`.
pub fn legend(stages: &[Stage]) -> Vec<(usize, &'static str)> {
    stages.iter().map(|stage| (stage.series, stage.name)).collect()
}
