//! The embedded model as a whole: its logits on a device and on the reference.

use std::ops::ControlFlow;
use std::sync::Arc;

use argon_engine::compare::Comparison;
use argon_engine::{CacheTypes, Engine, EngineError, EngineOptions, Logits, LogitsOut, SessionOptions};
use argon_kernels::parity::{Distance, Finding};
use argon_kernels::reference::ReferenceDevice;
use argon_kernels::{DType, Device, Precision};

use super::report::Row;
use crate::failure::Failure;
use crate::model;
use crate::settings::Parity;

/// Tokens of the prompt, enough for a median, and of a chunk.
const TOKENS: usize = 48;
const CHUNK: usize = 20;

/// The largest difference of a logit in f32: the design's, on the same weights.
const CLOSE: f64 = 1e-4;

/// The median of the divergence with coarser operands: as between other engines (`argon parity oracle`).
const DIVERGENCE: f64 = 5e-3;

/// Bytes that may come to the host beside the logits of a chunk: whether an op found its input wrong, two words for each router and
/// table. The ids of one layer alone would be 640.
const STATUS: usize = 256;

/// A row for each precision.
pub fn compare(device: &Arc<dyn Device>, settings: &Parity, precisions: &[Precision]) -> Result<Vec<Row>, Failure> {
    let tokens = settings.request.tokens.unwrap_or(TOKENS);
    let failed = |error| model::failure(error, "the embedded model");
    let want = logits(&(Arc::new(ReferenceDevice::default()) as Arc<dyn Device>), Precision::F32, tokens);
    let want = want.map_err(failed)?.0;
    let row = |&precision: &Precision| {
        let finding = match logits(device, precision, tokens) {
            Ok((got, bytes)) => judge(precision, &want, &got, bytes, tokens),
            Err(error) => Finding { failure: Some(error.to_string()), ..Finding::default() },
        };
        let what = if precision == Precision::F32 { "largest difference of a logit" } else { "median divergence" };
        Row::new("model", &format!("the embedded model, T {tokens}, {what}"), Some(precision), finding)
    };
    Ok(precisions.iter().map(row).collect())
}

/// The logits after every token, and the bytes that came to the host meanwhile.
fn logits(device: &Arc<dyn Device>, precision: Precision, tokens: usize) -> Result<(LogitsOut, u64), EngineError> {
    let gguf = model::embedded()?;
    let engine = Engine::load(gguf, device.clone(), EngineOptions { precision: Some(precision) })?;
    let cache = CacheTypes { k: DType::F32, v: DType::F32 };
    let mut session = engine.session(SessionOptions { context: tokens, chunk: CHUNK, cache })?;
    let vocabulary = engine.info().vocabulary;
    let prompt: Vec<u32> = (0..tokens).map(|i| ((i * 7919 + 13) % vocabulary) as u32).collect();
    let before = device.bytes_to_host();
    let found = session.prefill(&prompt, Logits::All, &mut |_| ControlFlow::Continue(()))?;
    let found = found.ok_or(EngineError::Unfinished)?;
    Ok((found, device.bytes_to_host() - before))
}

fn judge(precision: Precision, want: &LogitsOut, got: &LogitsOut, bytes: u64, tokens: usize) -> Finding {
    let found = Comparison::new(&want.values, &got.values, want.width);
    let (distance, bound) =
        if precision == Precision::F32 { (found.max_abs, CLOSE) } else { (found.median_kl, DIVERGENCE) };
    let allowed = (size_of_val(&got.values[..]) + STATUS * tokens.div_ceil(CHUNK)) as u64;
    let failure = if bytes > allowed {
        Some(format!("{bytes} bytes came to the host, more than the {allowed} of the logits and a status"))
    } else if precision == Precision::F32 && found.same_argmax != found.rows {
        Some(format!("the likeliest token differs after {} of {} tokens", found.rows - found.same_argmax, found.rows))
    } else if distance <= bound && found.max_abs.is_finite() {
        None
    } else {
        Some(format!("{distance:.2e}, more than {bound:.0e}"))
    };
    Finding { a: Some(Distance { found: distance, bound }), failure, ..Finding::default() }
}
