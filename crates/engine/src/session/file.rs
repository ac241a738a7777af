//! A session in a file, from one run to the next.
//!
//! ```text
//! magic "ARGONSES", version u32
//! architecture, precision, types of keys and of values: strings
//! fingerprint of the model, 16 bytes
//! tokens held: their number u64, their ids u32
//! tensors of the state: their number u32; of each its layer u32, its name, the bytes in use u64, these bytes
//! mark: 1 u8, the tokens before it u64; of each tensor that it holds the bytes u64, these bytes; without a mark: 0 u8
//! XXH3 of everything before, 16 bytes
//! ```
//!
//! Numbers are little-endian, a string is a length u8 and UTF-8. Every length is compared with what the model and the
//! session at hand make of it before anything is allocated or read by it: the file decides nothing but the values.

use std::io::{self, Read, Write};

use argon_kernels::{DType, Tensor};
use xxhash_rust::xxh3::Xxh3;

use super::mark::{Mark, overwritten};
use super::{Session, SessionOptions};
use crate::EngineError;
use crate::engine::Loaded;

const MAGIC: [u8; 8] = *b"ARGONSES";
const VERSION: u32 = 2;

/// Bytes on the way between device and file at a time.
const PIECE: usize = 1 << 20;

/// Why a session cannot be saved or restored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionFileError {
    /// The operating system refused to read or write.
    #[error("{message}")]
    Io {
        /// The kind of refusal.
        kind: io::ErrorKind,
        /// The system's words.
        message: String,
    },
    /// It does not begin like a saved session.
    #[error("this is not a saved session")]
    NotASession,
    /// It has another version.
    #[error("a saved session of version {version}; version {VERSION} is supported")]
    Version {
        /// The version found.
        version: u32,
    },
    /// It was saved from another architecture, in another precision, or with another type of cache.
    #[error("the {what} of the saved session is {saved}, not {expected}")]
    Differs {
        /// What differs.
        what: &'static str,
        /// As it was saved.
        saved: String,
        /// As it is here.
        expected: String,
    },
    /// It was saved from another model of the same architecture.
    #[error("the session was saved from another model: its metadata or weights differ")]
    OtherModel,
    /// It holds more than the session has room for.
    #[error("the saved session holds {tokens} tokens: the context has room for {context}")]
    ContextTooSmall {
        /// Tokens that it holds.
        tokens: u64,
        /// Tokens that the session has room for.
        context: usize,
    },
    /// It ends too early.
    #[error("the saved session is cut off inside {item}")]
    Truncated {
        /// What is cut off.
        item: &'static str,
    },
    /// Its content is not what was saved.
    #[error("the saved session is damaged: {what}")]
    Damaged {
        /// What is wrong with it.
        what: String,
    },
}

type Result<T> = std::result::Result<T, EngineError>;

fn damaged<T>(what: impl Into<String>) -> Result<T> {
    Err(SessionFileError::Damaged { what: what.into() }.into())
}

fn from_io(error: &io::Error) -> SessionFileError {
    SessionFileError::Io { kind: error.kind(), message: error.to_string() }
}

/// What must be the same here as where the session was saved, by name.
fn conditions(engine: &Loaded, options: &SessionOptions) -> [(&'static str, &'static str); 4] {
    let name = |dtype| if dtype == DType::F16 { "f16" } else { "f32" };
    [
        ("architecture", engine.model.config.family.name),
        ("precision", engine.precision.name()),
        ("type of cached keys", name(options.cache.k)),
        ("type of cached values", name(options.cache.v)),
    ]
}

/// Writes `session` to `out`.
pub(super) fn save(session: &Session, out: impl Write) -> Result<()> {
    let (engine, device) = (&session.engine, session.engine.device.as_ref());
    let mut out = Sink { out, hash: Xxh3::new() };
    out.put(&MAGIC)?;
    out.put(&VERSION.to_le_bytes())?;
    for (_, value) in conditions(engine, &session.options) {
        out.put_str(value)?;
    }
    out.put(&engine.fingerprint().to_le_bytes())?;
    out.put(&(session.tokens.len() as u64).to_le_bytes())?;
    for id in &session.tokens {
        out.put(&id.to_le_bytes())?;
    }
    let tensors: Vec<_> = session.state.tensors().collect();
    out.put(&(tensors.len() as u32).to_le_bytes())?;
    for (layer, state) in tensors {
        let in_use = state.in_use(session.len());
        out.put(&(layer as u32).to_le_bytes())?;
        out.put_str(state.name)?;
        out.put(&(bytes(&in_use) as u64).to_le_bytes())?;
        for piece in pieces(&in_use) {
            let mut values = vec![0; bytes(&piece)];
            device.read(&piece, &mut values)?;
            out.put(&values)?;
        }
    }
    put_mark(&mut out, session.mark.as_ref())?;
    let checksum = out.hash.digest128();
    out.put(&checksum.to_le_bytes())?;
    out.out.flush().map_err(|error| from_io(&error).into())
}

fn put_mark(out: &mut Sink<impl Write>, mark: Option<&Mark>) -> Result<()> {
    let Some(mark) = mark else { return out.put(&[0]) };
    out.put(&[1])?;
    out.put(&(mark.len as u64).to_le_bytes())?;
    for values in &mark.values {
        out.put(&(values.len() as u64).to_le_bytes())?;
        out.put(values)?;
    }
    Ok(())
}

/// The session that `source` holds, for `engine`.
pub(super) fn restore(engine: std::sync::Arc<Loaded>, source: impl Read, options: SessionOptions) -> Result<Session> {
    let mut source = Source { source, hash: Xxh3::new() };
    check_header(&mut source, &engine, &options)?;
    let tokens = u64::from_le_bytes(source.array("the number of tokens")?);
    if tokens > options.context as u64 {
        return Err(SessionFileError::ContextTooSmall { tokens, context: options.context }.into());
    }
    let mut session = Session::new(engine, options)?;
    session.unfinished = true;
    let vocabulary = session.engine.model.vocabulary();
    for i in 0..tokens {
        let id = u32::from_le_bytes(source.array("the tokens")?);
        if id as usize >= vocabulary {
            return damaged(format!("token {i} is {id}, outside the vocabulary of {vocabulary}"));
        }
        session.tokens.push(id);
    }
    read_state(&mut source, &session)?;
    session.mark = read_mark(&mut source, &session)?;
    check_end(source)?;
    session.unfinished = false;
    Ok(session)
}

fn check_header(source: &mut Source<impl Read>, engine: &Loaded, options: &SessionOptions) -> Result<()> {
    match source.array("the magic") {
        Ok(MAGIC) => {}
        Ok(_) | Err(EngineError::SessionFile(SessionFileError::Truncated { .. })) => {
            return Err(SessionFileError::NotASession.into());
        }
        Err(error) => return Err(error),
    }
    let version = u32::from_le_bytes(source.array("the version")?);
    if version != VERSION {
        return Err(SessionFileError::Version { version }.into());
    }
    for (what, expected) in conditions(engine, options) {
        let saved = source.string(what)?;
        if saved != expected {
            return Err(SessionFileError::Differs { what, saved, expected: expected.into() }.into());
        }
    }
    let fingerprint = u128::from_le_bytes(source.array("the fingerprint of the model")?);
    if fingerprint != engine.fingerprint() { Err(SessionFileError::OtherModel.into()) } else { Ok(()) }
}

fn read_state(source: &mut Source<impl Read>, session: &Session) -> Result<()> {
    const ITEM: &str = "the state";
    let device = session.engine.device.as_ref();
    let tensors: Vec<_> = session.state.tensors().collect();
    let count = u32::from_le_bytes(source.array(ITEM)?);
    if count as usize != tensors.len() {
        return damaged(format!("it has {count} tensors, not {}", tensors.len()));
    }
    for (layer, state) in tensors {
        let in_use = state.in_use(session.len());
        let found_layer = u32::from_le_bytes(source.array(ITEM)?);
        let found = source.string(ITEM)?;
        if (found_layer as usize, found.as_str()) != (layer, state.name) {
            return damaged(format!("it has {found:?} of layer {found_layer}, not {:?} of layer {layer}", state.name));
        }
        let len = u64::from_le_bytes(source.array(ITEM)?);
        if len != bytes(&in_use) as u64 {
            return damaged(format!("{found:?} of layer {layer} has {len} bytes, not {}", bytes(&in_use)));
        }
        for piece in pieces(&in_use) {
            let mut values = vec![0; bytes(&piece)];
            source.fill(&mut values, ITEM)?;
            device.write(&piece, &values)?;
        }
    }
    Ok(device.sync()?)
}

fn read_mark(source: &mut Source<impl Read>, session: &Session) -> Result<Option<Mark>> {
    const ITEM: &str = "the mark";
    match source.array(ITEM)? {
        [0] => return Ok(None),
        [1] => {}
        [other] => return damaged(format!("it has {other} marks, not 0 or 1")),
    }
    let tokens = u64::from_le_bytes(source.array(ITEM)?);
    let len = usize::try_from(tokens).ok().filter(|len| *len <= session.len());
    let Some(len) = len else { return damaged(format!("its mark is behind {tokens} tokens of {}", session.len())) };
    let mut values = Vec::new();
    for tensor in overwritten(&session.state, len) {
        let found = u64::from_le_bytes(source.array(ITEM)?);
        if found != bytes(&tensor) as u64 {
            return damaged(format!("its mark has {found} bytes of a tensor, not {}", bytes(&tensor)));
        }
        let mut of_tensor = vec![0; bytes(&tensor)];
        source.fill(&mut of_tensor, ITEM)?;
        values.push(of_tensor);
    }
    Ok(Some(Mark { len, values }))
}

/// The checksum must be right, and nothing may follow.
fn check_end(mut source: Source<impl Read>) -> Result<()> {
    let expected = source.hash.digest128();
    if u128::from_le_bytes(source.array("the checksum")?) != expected {
        return damaged("its checksum is wrong");
    }
    match source.array::<1>("") {
        Err(EngineError::SessionFile(SessionFileError::Truncated { .. })) => Ok(()),
        Ok(_) => damaged("something follows its end"),
        Err(error) => Err(error),
    }
}

fn bytes(tensor: &Tensor) -> usize {
    tensor.len() * tensor.dtype.bytes()
}

/// Runs of rows, of about [`PIECE`] bytes each.
fn pieces(tensor: &Tensor) -> impl Iterator<Item = Tensor> {
    let rows = (PIECE / (tensor.width() * tensor.dtype.bytes()).max(1)).max(1);
    (0..tensor.rows).step_by(rows).map(move |row| tensor.rows(row..tensor.rows.min(row + rows)))
}

/// Where a session goes, and the checksum of what has gone.
struct Sink<W> {
    out: W,
    hash: Xxh3,
}

impl<W: Write> Sink<W> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.out.write_all(bytes).map_err(|error| from_io(&error).into())
    }

    fn put_str(&mut self, value: &'static str) -> Result<()> {
        self.put(&[value.len() as u8])?; // names in the code: all short
        self.put(value.as_bytes())
    }
}

/// Where a session comes from, and the checksum of what has come.
struct Source<R> {
    source: R,
    hash: Xxh3,
}

impl<R: Read> Source<R> {
    fn fill(&mut self, bytes: &mut [u8], item: &'static str) -> Result<()> {
        self.source.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => SessionFileError::Truncated { item },
            _ => from_io(&error),
        })?;
        self.hash.update(bytes);
        Ok(())
    }

    fn array<const N: usize>(&mut self, item: &'static str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, item)?;
        Ok(bytes)
    }

    fn string(&mut self, item: &'static str) -> Result<String> {
        let [len] = self.array(item)?;
        let mut bytes = vec![0; usize::from(len)];
        self.fill(&mut bytes, item)?;
        String::from_utf8(bytes).or_else(|_| damaged(format!("{item} is no text")))
    }
}
