//! From a file name to a loaded model.

use std::path::Path;

use argon_engine::{Engine, EngineError, EngineOptions, Session, SessionOptions};
use argon_gguf::Gguf;
use argon_kernels::DeviceError;

use crate::device;
use crate::failure::{Failure, OrFail};
use crate::settings::Device;
use crate::words::{bytes, counted, one_line};

/// The model that is always there. What it is: `models/README.md`.
static EMBEDDED: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../models/argon-tiny.gguf"));

/// Puts embedded bytes where a device can use them without a copy: at GGUF's usual alignment, as in a mapped file.
#[repr(C, align(32))]
struct Aligned<T: ?Sized>(T);

/// What messages call the model in `path`.
pub fn name(path: Option<&Path>) -> String {
    path.map_or_else(|| "the embedded model".into(), |path| path.display().to_string())
}

/// Opens a model file, or the embedded model where there is no path. Reads metadata, no weights.
///
/// # Errors
/// An input failure that names the file and what is wrong with it.
pub fn open(path: Option<&Path>) -> Result<Gguf, Failure> {
    match path {
        Some(path) => Gguf::open(path).map_err(|error| Failure::Input(error.into())),
        None => embedded().or_input(name(None)),
    }
}

/// The embedded model.
///
/// # Errors
/// None that a test has not seen: the bytes are the binary's own.
pub fn embedded() -> Result<Gguf, argon_gguf::Error> {
    Gguf::from_bytes(&EMBEDDED.0)
}

/// A prompt that shows what a model can do: the file's own, if it has one.
///
/// # Errors
/// An input failure if the file's key holds something else than text.
pub fn example<'a>(path: Option<&Path>, gguf: &'a Gguf) -> Result<Option<&'a str>, Failure> {
    gguf.metadata().str("argon.default_prompt").or_input(name(path))
}

/// Loads the model in `gguf`, which came from `path`, onto the device asked for.
///
/// # Errors
/// An input failure for what the file holds or the device has not got, else a failure of the work.
pub fn load(gguf: &Gguf, path: Option<&Path>, settings: &Device) -> Result<Engine, Failure> {
    let options = EngineOptions { precision: settings.precision };
    let weights = gguf.tensors().iter().map(|tensor| tensor.bytes as u64).sum();
    let device = device::open(settings, weights)?;
    let size = Size { weights, memory: device.info().memory };
    let in_place = device.reads_in_place();
    if in_place && !size.fits() {
        eprintln!("warning: {}: {}", one_line(&name(path)), size.read_again());
    }
    Engine::load(gguf.clone(), device, options).map_err(|error| match error {
        EngineError::Device(DeviceError::OutOfMemory { device, .. }) if !in_place => {
            let refusal = format!("{}: {}", name(path), size.refused(&device));
            if size.fits() { Failure::work(refusal) } else { Failure::input(refusal) }
        }
        error => failure(error, &name(path)),
    })
}

/// Bytes of a model's weights, and of the memory that its device has as far as the system tells.
struct Size {
    weights: u64,
    memory: u64,
}

impl Size {
    fn fits(&self) -> bool {
        self.weights <= self.memory
    }

    /// What comes of weights that are read in place and do not all stay in memory.
    fn read_again(&self) -> String {
        let [weights, memory] = [self.weights, self.memory].map(bytes);
        format!(
            "its weights are {weights}, this machine's memory {memory}: each chunk and token reads from the disk again"
        )
    }

    /// Why a GPU, in whose memory all weights have to lie, does not compute it, and what does.
    fn refused(&self, device: &str) -> String {
        let weights = bytes(self.weights);
        let memory = if self.memory == u64::MAX { String::new() } else { format!(" of {}", bytes(self.memory)) };
        format!(
            "its weights are {weights}, for which {device} has not the memory{memory}; without --device the processor computes it"
        )
    }
}

/// An empty session. Where it holds more tokens than the model was trained for, standard error is told.
///
/// # Errors
/// Of the device, naming the flag that says how long the session is; of the input, if no device of its size holds it.
pub fn session(engine: &Engine, options: SessionOptions, flag: &str) -> Result<Session, Failure> {
    let context = options.context;
    warn_beyond_training(engine, context);
    let what = format!("a session of {context} tokens ({flag})");
    engine.session(options).map_err(|error| match error {
        EngineError::Device(DeviceError::OutOfMemory { bytes, .. }) if bytes as u64 > engine.device().info().memory => {
            Failure::Input(anyhow::Error::from(error).context(what))
        }
        error => failure(error, &what),
    })
}

/// Tells standard error of a context that is longer than any that the model was trained with.
pub fn warn_beyond_training(engine: &Engine, context: usize) {
    let trained = engine.info().context;
    if context > trained {
        eprintln!("warning: the context of {context} tokens is beyond the {trained} that the model was trained for");
    }
}

/// One line on what runs, and the loader's warnings.
pub fn introduce(engine: &Engine, path: Option<&Path>) {
    let (info, device) = (engine.info(), engine.device().info());
    eprintln!(
        "{}: {}, {}, {} of {} experts per token; {} ({}), precision {}",
        one_line(&name(path)),
        info.architecture,
        counted(info.layers, "layer"),
        info.experts_used,
        info.experts,
        device.id,
        device.name,
        info.precision.name(),
    );
    for warning in &info.warnings {
        eprintln!("warning: {warning}");
    }
}

/// The files that `gguf` was read from, by name; none of the embedded model.
pub fn files(gguf: &Gguf) -> impl Iterator<Item = (&'static str, &Path)> {
    gguf.parts().iter().filter_map(|part| Some(("the model", part.path.as_deref()?)))
}

/// The kind of failure that an error of the engine is: the device's are its own, everything else is about the input.
pub fn failure(error: EngineError, what: &str) -> Failure {
    let of_the_work = match &error {
        // What a device cannot do at all is the fault of who asked.
        EngineError::Device(error) => !matches!(error, DeviceError::Unsupported { .. }),
        error => matches!(error, EngineError::Unfinished),
    };
    if let EngineError::Option { option: "precision", what } = error {
        return Failure::input(format_args!("--precision: {what}"));
    }
    let error = anyhow::Error::from(error).context(what.to_owned());
    if of_the_work { Failure::Work(error) } else { Failure::Input(error) }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn a_model_that_is_larger_than_memory_is_told_with_both_sizes() {
        let large = Size { weights: 120_000_000_000, memory: 32_000_000_000 };
        for said in [large.read_again(), large.refused("cuda:0")] {
            assert!(said.contains("120.00 GB") && said.contains("32.00 GB"), "{said}");
        }
        assert!(!large.fits() && Size { weights: 7, memory: 7 }.fits());
        let untold = Size { memory: u64::MAX, ..large };
        assert!(untold.refused("wgpu:0").contains("wgpu:0 has not the memory; without --device"));
    }
}
