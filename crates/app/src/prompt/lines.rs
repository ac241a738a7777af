//! Lines of standard input, as somebody types them.

use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::{MAX_BYTES, text};
use crate::failure::{Failure, OrFail, stdin_ended, stdin_failure};

/// How long Ctrl-C may go unnoticed while nothing is typed.
const GLANCE: Duration = Duration::from_millis(50);

/// Lines read on a thread of their own, so that waiting for one can be stopped; never one ahead of those asked for.
pub struct Lines(Receiver<io::Result<Vec<u8>>>);

impl Lines {
    /// Begins to read.
    ///
    /// # Errors
    /// Of the work, where the system has no thread for it.
    pub fn start() -> Result<Self, Failure> {
        let (send, lines) = mpsc::sync_channel(0);
        // Left behind, blocked in its read, where the command ends first; the process ends without waiting for it.
        let read = move || {
            let mut stdin = io::stdin().lock();
            loop {
                let line = read_line(&mut stdin);
                let last = !matches!(&line, Ok(bytes) if !bytes.is_empty());
                if send.send(line).is_err() || last {
                    break;
                }
            }
        };
        thread::Builder::new().spawn(read).or_work("a thread for standard input")?;
        Ok(Lines(lines))
    }

    /// The next line without its end; `None` where there is no other.
    ///
    /// # Errors
    /// Of the input if it is no text, cannot be read or does not end; [`Failure::Interrupted`] once `stop` is set.
    pub fn next(&self, stop: &AtomicBool) -> Result<Option<String>, Failure> {
        loop {
            match self.0.recv_timeout(GLANCE) {
                _ if stop.load(Ordering::Relaxed) => return Err(Failure::Interrupted),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Ok(line) => {
                    let bytes = line.map_err(stdin_failure)?;
                    return match bytes.is_empty() {
                        true => stdin_ended().map(|()| None),
                        false => text(bytes, "standard input").map(Some),
                    };
                }
            }
        }
    }
}

/// A line with its end; empty at the end of `source`.
fn read_line(source: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    source.take(MAX_BYTES + 1).read_until(b'\n', &mut line)?;
    if line.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("a line longer than {MAX_BYTES} bytes")));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_and_an_endless_one_is_refused() {
        let mut source = &b"a\n\nb"[..];
        let lines: Vec<_> = (0..4).map(|_| read_line(&mut source).unwrap()).collect();
        assert_eq!(lines, [&b"a\n"[..], b"\n", b"b", b""]);
        let mut endless = io::BufReader::new(io::repeat(b'a'));
        assert!(read_line(&mut endless).unwrap_err().to_string().contains("longer than 67108864"));
    }
}
