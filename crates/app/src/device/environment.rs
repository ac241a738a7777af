//! What the environment says about directories, and for tests about a GPU's limits and the processor's instructions.

use std::env;
use std::path::PathBuf;

/// Argon's own directory for what can be made again: `argon` in the user's cache directory, as the system has it.
pub fn cache() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = if cfg!(windows) {
        absolute("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        absolute("HOME").map(|home| home.join("Library/Caches"))
    } else {
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
    };
    directory.map(|directory| directory.join("argon"))
}

/// Where CUDA's compiler library may lie, likeliest first: a toolkit that `CUDA_PATH` or `CUDA_HOME` names, or the directory
/// of the library itself; then the system's own library path.
pub fn toolkits() -> Vec<PathBuf> {
    let roots = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let in_toolkit = roots.flat_map(|root| ["", "lib64", "lib", "bin", "bin/x64"].map(|part| root.join(part)));
    let path = env::var_os(if cfg!(windows) { "PATH" } else { "LD_LIBRARY_PATH" }).unwrap_or_default();
    in_toolkit.chain(env::split_paths(&path)).filter(|directory| directory.is_absolute()).collect()
}

/// The number, `least` at least, that a variable holds, if it is there.
///
/// # Errors
/// The variable and what it holds instead.
#[cfg(feature = "wgpu")]
pub fn number(name: &str, least: u64) -> Result<Option<u64>, String> {
    let Some(value) = env::var_os(name) else { return Ok(None) };
    let number = value.to_str().and_then(|value| value.parse().ok()).filter(|number| *number >= least);
    number.map(Some).ok_or_else(|| format!("{name} is {value:?}; it must be a number from {least}"))
}

/// Which of the words a variable lists, separated by commas; none where it is not there.
///
/// # Errors
/// The variable and a word that it may not have.
#[cfg(feature = "wgpu")]
pub fn listed<const N: usize>(name: &str, words: [&str; N]) -> Result<[bool; N], String> {
    let value = env::var_os(name).unwrap_or_default();
    let value = value.to_string_lossy();
    let found: Vec<&str> = value.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if let Some(word) = found.iter().find(|word| !words.contains(word)) {
        return Err(format!("{name} has {word:?}; it may have {}", words.join(", ")));
    }
    Ok(words.map(|word| found.contains(&word)))
}

/// The text that a variable holds, if it is there.
pub fn text(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}
