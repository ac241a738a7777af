//! Tells the program its version, and which commit it is built from where it is built in a checkout of its own repository.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    // Asked for when this runs: what was compiled in another checkout may run for this one.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    match here.ancestors().nth(2).and_then(commit) {
        None => println!("cargo::rustc-env=ARGON_VERSION={version}"),
        Some(commit) => {
            println!("cargo::rustc-env=ARGON_COMMIT={commit}");
            println!("cargo::rustc-env=ARGON_VERSION={version} ({commit})");
        }
    }
}

/// The commit that is checked out at `root`, with a `+` where what is built differs from it.
fn commit(root: &Path) -> Option<String> {
    // Inside of another repository, its commits are not ours.
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // The log of HEAD grows with every commit and every checkout.
    let log = git(root, &["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={}", root.join(log).display());
    BUILT.iter().for_each(|path| println!("cargo::rerun-if-changed={}", root.join(path).display()));
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let changed = git(root, &[&status[..], &BUILT].concat())?;
    Some(if changed.is_empty() { commit } else { commit + "+" })
}

/// What the program is made of.
const BUILT: [&str; 7] = [
    "crates/gguf/src",
    "crates/plan/src",
    "crates/kernels/src",
    "crates/engine/src",
    "crates/app/src",
    "models",
    "Cargo.lock",
];

/// What git says; `None` where it is not there or refuses.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let said = Command::new("git").arg("-C").arg(root).args(args).output().ok().filter(|said| said.status.success())?;
    Some(String::from_utf8(said.stdout).ok()?.trim().to_owned())
}
