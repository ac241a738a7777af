//! The file of `--session`: one line of JSON, the XXH3 of that line (8 bytes), then the session as the engine saves it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use argon_engine::chat::Message;
use argon_engine::{Engine, Session, SessionOptions};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::failure::{Failure, OrFail};
use crate::interrupt::Interrupt;
use crate::model;
use crate::output::NewFile;
use crate::words::counted;

/// The version of the line; the engine's part has its own.
const VERSION: u32 = 2;

/// A longer line is none that this program wrote: a session's tokens would not fit any context.
const LONGEST: u64 = 256 << 20;

/// What every version of the line has.
#[derive(Deserialize)]
struct Versioned {
    argon_session: u32,
}

/// The line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    argon_session: u32,
    /// Tokens that the session holds.
    tokens: usize,
    /// Tokens that follow them, but have not been through the model.
    pending: Vec<u32>,
    /// Role and content of each message; only of a chat.
    messages: Option<Vec<(String, String)>>,
}

/// A session in a file.
pub struct Saved {
    path: PathBuf,
    header: Header,
    state: BufReader<File>,
}

/// What goes into a file.
pub struct Contents<'a> {
    /// The session.
    pub session: &'a Session,
    /// Tokens that follow those of the session, but have not been through the model.
    pub pending: &'a [u32],
    /// The messages of a chat.
    pub messages: Option<&'a [Message]>,
}

impl Saved {
    /// The session in the file `path`, `None` if there is no such file; then it can be made in the end.
    ///
    /// # Errors
    /// Of the input, if the file is something else or cannot be read.
    pub fn open(path: &Path) -> Result<Option<Saved>, Failure> {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // A pipe would be waited for.
            Ok(there) if !there.is_file() => {
                return Err(Failure::input(format_args!("{}: not a regular file", path.display())));
            }
            _ => {}
        }
        let file = File::open(path).or_input(path.display())?;
        let mut state = BufReader::new(file);
        let header = read_header(&mut state).or_input(path.display())?;
        Ok(Some(Saved { path: path.to_owned(), header, state }))
    }

    /// Number of tokens, by the file's word.
    pub fn tokens(&self) -> usize {
        self.header.tokens.saturating_add(self.header.pending.len())
    }

    /// What it holds, in a few words.
    pub fn describe(&self) -> String {
        let said = |messages: &Vec<_>| format!("{} in ", counted(messages.len(), "message"));
        let said = self.header.messages.as_ref().map_or_else(String::new, said);
        format!("{said}{} from {}", counted(self.tokens(), "token"), self.path.display())
    }

    /// The messages of a chat.
    ///
    /// # Errors
    /// If it is none.
    pub fn messages(&self) -> Result<Vec<Message>, Failure> {
        let Some(messages) = &self.header.messages else {
            return Err(Failure::input(format_args!("{}: no chat; go on with it without --chat", self.path.display())));
        };
        Ok(messages.iter().map(|(role, content)| Message::new(role, content)).collect())
    }

    /// That it is no chat.
    ///
    /// # Errors
    /// If it is one.
    pub fn expect_no_chat(&self) -> Result<(), Failure> {
        match self.header.messages {
            None => Ok(()),
            Some(_) => Err(Failure::input(format_args!("{}: a chat; go on with it with --chat", self.path.display()))),
        }
    }

    /// The session, and the tokens that follow it.
    ///
    /// # Errors
    /// Why the engine refuses it: another model, precision or type of cache, too little context, damage.
    pub fn restore(self, engine: &Engine, options: SessionOptions) -> Result<(Session, Vec<u32>), Failure> {
        let name = self.path.display().to_string();
        let session = engine.restore(self.state, options).map_err(|error| model::failure(error, &name))?;
        if session.len() != self.header.tokens {
            let (said, held) = (self.header.tokens, session.len());
            return Err(Failure::input(format_args!(
                "{name}: damaged: {said} tokens in its line, {held} in the session"
            )));
        }
        Ok((session, self.header.pending))
    }
}

fn read_header(source: &mut impl BufRead) -> Result<Header> {
    const NONE: &str = "not a session that argon run saved";
    let mut line = Vec::new();
    source.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
    let Versioned { argon_session } = serde_json::from_slice(&line).map_err(|_| anyhow!(NONE))?;
    if argon_session != VERSION {
        bail!("a session of version {argon_session}; this program reads version {VERSION}");
    }
    let mut checksum = [0; 8];
    source.read_exact(&mut checksum).context("the session is cut off")?;
    if u64::from_le_bytes(checksum) != xxh3_64(&line) {
        bail!("the session is damaged: the checksum of its first line is wrong");
    }
    serde_json::from_slice(&line).context(NONE)
}

/// Saves a session to `path`; what was there before stays until the new one is complete.
///
/// # Errors
/// Of the work.
pub fn save(path: &Path, contents: &Contents, interrupt: &Interrupt) -> Result<(), Failure> {
    let mut file = NewFile::create(path, interrupt).or_work(path.display())?;
    write(BufWriter::new(&mut file), contents).or_work(path.display())?;
    file.finish().or_work(path.display())
}

fn write(mut out: impl Write, contents: &Contents) -> Result<()> {
    let messages = contents.messages.map(|messages| {
        messages.iter().map(|message| (message.role.clone(), message.content.clone())).collect::<Vec<_>>()
    });
    let tokens = contents.session.len();
    let header = Header { argon_session: VERSION, tokens, pending: contents.pending.to_vec(), messages };
    let mut line = serde_json::to_vec(&header)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.write_all(&xxh3_64(&line).to_le_bytes())?;
    contents.session.save(&mut out)?;
    out.flush().map_err(|error: io::Error| error.into())
}
