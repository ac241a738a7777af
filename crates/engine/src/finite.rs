//! Weights that are not numbers: found before they are used, and named.
//!
//! One scale that is NaN or infinite spoils whatever it meets, or, where a sigmoid follows, changes it without a word. A
//! device that copies weights has read every byte of them by the time a model is loaded, so all are looked at then. One that
//! reads them where they are may never touch most of a large file: there the dense weights are looked at before the first
//! chunk, and an expert or the row of a table when the first token needs it.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use argon_gguf::{Bytes, Format, TensorInfo, scales_are_finite};

use crate::EngineError;

type Result<T> = std::result::Result<T, EngineError>;

/// Bytes that a thread looks at in one go, about; no more threads than such pieces are started.
const PIECE: usize = 1 << 20;

/// What a system reads at least; if it is another size, some reads are asked for twice.
const PAGE: usize = 4096;

/// More threads than this find nothing sooner: memory is what takes the time.
const MOST_THREADS: usize = 8;

/// The rows of a tensor, as the file has them.
#[derive(Clone)]
pub(crate) struct Stored {
    name: String,
    format: Format,
    row_bytes: usize,
    data: Bytes,
}

impl Stored {
    pub fn new(info: &TensorInfo, data: Bytes) -> Self {
        Self { name: info.name.clone(), format: info.format, row_bytes: info.row_bytes(), data }
    }

    fn rows(&self) -> usize {
        self.data.len() / self.row_bytes
    }

    fn is_finite(&self, rows: Range<usize>) -> bool {
        scales_are_finite(self.format, &self.data[rows.start * self.row_bytes..rows.end * self.row_bytes])
    }

    /// Looks at every row.
    pub fn check(&self) -> Result<()> {
        check_all(std::slice::from_ref(self))
    }

    /// Looks at the rows with these numbers, few among many: the file is asked for all of them before the first is looked at.
    pub fn check_rows(&self, rows: impl Iterator<Item = usize> + Clone) -> Result<()> {
        self.ask_for(rows.clone());
        match rows.into_iter().find(|&row| !self.is_finite(row..row + 1)) {
            Some(row) => Err(self.bad(row)),
            None => Ok(()),
        }
    }

    /// Has the system read these rows, where the file is not in memory.
    fn ask_for(&self, rows: impl Iterator<Item = usize>) {
        let mut starts: Vec<usize> = rows.map(|row| row * self.row_bytes).collect();
        starts.sort_unstable();
        starts.dedup_by_key(|start| *start / PAGE);
        starts.into_iter().for_each(|start| self.data.will_need(start..start + self.row_bytes));
    }

    fn bad(&self, row: usize) -> EngineError {
        EngineError::BadWeight { tensor: self.name.clone(), row }
    }
}

/// Looks at every row of several tensors.
fn check_all(tensors: &[Stored]) -> Result<()> {
    let parts: Vec<_> = tensors.iter().map(|tensor| (tensor, 0..tensor.rows())).collect();
    match first_bad(&parts) {
        Some((part, row)) => Err(tensors[part].bad(row)),
        None => Ok(()),
    }
}

/// The first row that is not finite, and the part that it is in.
fn first_bad(parts: &[(&Stored, Range<usize>)]) -> Option<(usize, usize)> {
    let pieces: Vec<(usize, Range<usize>)> = parts
        .iter()
        .enumerate()
        .flat_map(|(part, (tensor, rows))| {
            let step = (PIECE / tensor.row_bytes).max(1);
            rows.clone().step_by(step).map(move |row| (part, row..rows.end.min(row + step)))
        })
        .collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || {
        while let Some((part, rows)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            let tensor = parts[*part].0;
            if !tensor.is_finite(rows.clone())
                && let Some(row) = rows.clone().find(|&row| !tensor.is_finite(row..row + 1))
            {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                *found = Some(found.map_or((*part, row), |first: (usize, usize)| first.min((*part, row))));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_THREADS).min(pieces.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            // Where the system has no more threads, fewer do the same.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Dense weights that nobody has looked at yet.
pub(crate) struct FirstUse {
    tensors: Vec<Stored>,
    found: OnceLock<Result<()>>,
}

impl FirstUse {
    pub fn of(tensors: Vec<Stored>) -> Self {
        Self { tensors, found: OnceLock::new() }
    }

    /// Looks at them, once.
    pub fn check(&self) -> Result<()> {
        self.found.get_or_init(|| check_all(&self.tensors)).clone()
    }
}

/// The routed experts of a layer, each of which is looked at once.
pub(crate) struct ExpertRows {
    layer: usize,
    experts: usize,
    /// Every tensor that holds a part of each expert.
    parts: Vec<Stored>,
    /// Whether each has been found finite.
    seen: Mutex<Vec<bool>>,
    /// How many have not.
    left: AtomicUsize,
}

impl ExpertRows {
    pub fn new(layer: usize, experts: usize, parts: Vec<Stored>) -> Self {
        Self { layer, experts, parts, seen: Mutex::new(vec![false; experts]), left: AtomicUsize::new(experts) }
    }

    /// Whether all have been looked at.
    pub fn done(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Looks at all of them.
    pub fn check_all(&self) -> Result<()> {
        self.check(0..self.experts)
    }

    /// Looks at those of `experts` that have not been looked at.
    pub fn check(&self, experts: impl IntoIterator<Item = usize>) -> Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new: Vec<usize> = experts.into_iter().filter(|&expert| !seen[expert]).collect();
        new.sort_unstable();
        new.dedup();
        let rows = |part: &Stored, expert: usize| {
            let rows = part.rows() / self.experts;
            expert * rows..(expert + 1) * rows
        };
        let all: Vec<_> =
            new.iter().flat_map(|&expert| self.parts.iter().map(move |part| (part, rows(part, expert)))).collect();
        if let Some((index, row)) = first_bad(&all) {
            let (part, rows) = &all[index];
            let expert = new[index / self.parts.len()];
            let (layer, tensor, row) = (self.layer, part.name.clone(), row - rows.start);
            return Err(EngineError::BadExpert { layer, expert, tensor, row });
        }
        new.iter().for_each(|&expert| seen[expert] = true);
        self.left.fetch_sub(new.len(), Ordering::Relaxed);
        Ok(())
    }
}
