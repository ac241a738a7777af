//! Where the text of a prompt comes from.

mod lines;

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::anyhow;

use crate::args::PromptArgs;
use crate::failure::{Failure, OrFail};
pub use lines::Lines;

/// A longer prompt is refused instead of filling the memory: `argon -f /dev/zero` ends.
const MAX_BYTES: u64 = 64 << 20;

/// How long a prompt may take to begin on standard input where there is another to fall back on. Something that
/// started this process may have left a pipe open that nobody ever writes to.
const PATIENCE: Duration = Duration::from_secs(1);

/// The prompt asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// `-p`.
    Text(String),
    /// `-f`.
    File(PathBuf),
    /// `-f -`.
    Stdin,
    /// Nothing said: standard input, or the model's own example if that is a terminal, a null device, or silent.
    Unsaid,
}

impl From<PromptArgs> for Source {
    fn from(args: PromptArgs) -> Self {
        match (args.prompt, args.file) {
            (Some(text), _) => Source::Text(text),
            (None, Some(path)) => Source::from_file(path),
            (None, None) => Source::Unsaid,
        }
    }
}

/// A prompt's text.
#[derive(Debug, PartialEq)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Whether it is the model's own example, which the user has not seen.
    pub example: bool,
}

impl Source {
    /// The file `path`; `-` is standard input.
    pub fn from_file(path: PathBuf) -> Self {
        if path == Path::new("-") { Source::Stdin } else { Source::File(path) }
    }

    /// The file that it comes from.
    pub fn file(&self) -> Option<&Path> {
        if let Source::File(path) = self { Some(path) } else { None }
    }

    /// Reads the prompt; `example` is the model's own, if it has one.
    ///
    /// # Errors
    /// An input failure that names the source: unreadable, too long, not UTF-8, or none at all.
    pub fn read(&self, example: Option<&str>) -> Result<Prompt, Failure> {
        let given = |text| Prompt { text, example: false };
        match self {
            Source::Text(text) => Ok(given(text.clone())),
            Source::File(path) => {
                let name = path.display().to_string();
                let file = File::open(path).or_input(&name)?;
                Ok(given(text(read_all(file).or_input(&name)?, &name)?))
            }
            Source::Stdin => {
                Ok(given(text(read_all(io::stdin().lock()).or_input("standard input")?, "standard input")?))
            }
            Source::Unsaid => match (piped(example.map(|_| PATIENCE))?, example) {
                (Some(bytes), _) => Ok(given(text(bytes, "standard input")?)),
                (None, Some(example)) => Ok(Prompt { text: example.to_owned(), example: true }),
                (None, None) => Err(Failure::input(
                    "no prompt: give -p TEXT or -f FILE, or pipe one in; argon run --chat begins a conversation",
                )),
            },
        }
    }

    /// Says on standard error if something is piped in that this prompt leaves unread.
    pub fn note_unread(&self) {
        let flag = match self {
            Source::Text(_) => "-p",
            Source::File(_) => "-f",
            Source::Stdin | Source::Unsaid => return,
        };
        if stdin::waiting() {
            eprintln!("note: what is piped in is not read, {flag} gives the prompt (-f - reads the pipe)");
        }
    }
}

/// What is known about standard input without reading it.
#[cfg(unix)]
mod stdin {
    use std::fs::{File, FileType};
    use std::io;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileTypeExt;

    fn kind() -> Option<FileType> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
        file.metadata().ok().map(|metadata| metadata.file_type())
    }

    /// Whether it is a device, such as the null device: what is empty there was not meant to be a prompt.
    pub fn is_device() -> bool {
        kind().is_some_and(|kind| kind.is_char_device())
    }

    /// Whether it is a pipe with something in it. One that is silent still is not waited for.
    pub fn waiting() -> bool {
        let bytes = || rustix::io::ioctl_fionread(io::stdin()).unwrap_or(0);
        kind().is_some_and(|kind| kind.is_fifo()) && bytes() > 0
    }
}

#[cfg(not(unix))]
mod stdin {
    pub fn is_device() -> bool {
        true
    }

    pub fn waiting() -> bool {
        false
    }
}

/// What standard input holds, `None` if it is a terminal, an empty device, or begins with silence longer than `patience`.
fn piped(patience: Option<Duration>) -> Result<Option<Vec<u8>>, Failure> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let (first_byte, first) = mpsc::sync_channel(1);
    let (all_bytes, all) = mpsc::sync_channel(1);
    // Left behind, blocked in its read, where patience ends first; the process ends without waiting for it.
    let read = move || {
        let mut stdin = io::stdin().lock();
        let mut byte = [0];
        let begun = stdin.read(&mut byte);
        let nothing = !matches!(begun, Ok(1));
        if first_byte.send(()).is_ok() {
            let rest = if nothing { begun.map(|_| Vec::new()) } else { read_all((&byte[..]).chain(stdin)) };
            let _ = all_bytes.send(rest);
        }
    };
    thread::Builder::new().spawn(read).or_work("a thread for standard input")?;
    match patience {
        Some(patience) if first.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) => {
            eprintln!("nothing came from standard input: going on without it (-f - waits for it)");
            return Ok(None);
        }
        _ => {}
    }
    let bytes = all.recv().or_work("standard input")?.or_input("standard input")?;
    Ok(Some(bytes).filter(|bytes| !(bytes.is_empty() && stdin::is_device())))
}

/// All bytes of `source`.
///
/// # Errors
/// Its own, or that it is longer than any prompt.
pub fn read_all(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("longer than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// The text of `bytes`, without the newline that editors and shells put at the end of everything.
fn text(bytes: Vec<u8>, name: &str) -> Result<String, Failure> {
    let mut text = String::from_utf8(bytes)
        .map_err(|error| anyhow!("not UTF-8: byte {} is invalid", error.utf8_error().valid_up_to()))
        .or_input(name)?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_at_the_end_is_dropped() {
        for (bytes, expected) in
            [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a"), ("\n", ""), ("a\r", "a\r")]
        {
            assert_eq!(text(bytes.into(), "f").unwrap(), expected);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_place() {
        let Err(Failure::Input(error)) = text(b"ab\xff".to_vec(), "f") else { panic!("accepted") };
        assert_eq!(format!("{error:#}"), "f: not UTF-8: byte 2 is invalid");
    }

    #[test]
    fn an_endless_source_is_refused() {
        assert!(read_all(io::repeat(b'a')).unwrap_err().to_string().contains("longer than 67108864"));
    }
}
