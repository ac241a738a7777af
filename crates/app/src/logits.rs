//! `argon logits`: the logits of a prompt as a NumPy file.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;

use argon_engine::tokenizer::Special;
use argon_engine::{Engine, Logits, LogitsOut};
use argon_gguf::Gguf;

use crate::failure::{Failure, OrFail, stdout_failure};
use crate::interrupt::Interrupt;
use crate::output::{self, NewFile};
use crate::settings::{self, Tokens};
use crate::{model, npy, prompt};

/// Runs the command.
///
/// # Errors
/// Of the input, or of the work; then there is no new output file.
pub fn run(settings: settings::Logits) -> Result<(), Failure> {
    let path = settings.model.as_deref();
    let gguf = model::open(path)?;
    let to_stdout = settings.output == Path::new("-");
    let interrupt = Interrupt::of_process();
    if !to_stdout {
        output::check([("-o", settings.output.as_path())], model::files(&gguf).chain(settings.prompt.file()))?;
    } else if io::stdout().is_terminal() {
        return Err(Failure::input("-o -: standard output is a terminal, and logits are no text"));
    }
    let engine = model::load(&gguf, path, &settings.device)?;
    model::introduce(&engine, path);
    let tokens = tokens(settings.prompt, &engine, &gguf, path)?;
    let context = settings.context.tokens("the prompt has", tokens.len(), tokens.len(), engine.info().context)?;
    let options = settings.session.with_context(context);
    let mut session = model::session(&engine, options, "the prompt")?;
    let which = if settings.all { Logits::All } else { Logits::Last };
    let logits = session.prefill(&tokens, which, &mut |_| ControlFlow::Continue(()));
    let logits = logits.map_err(|error| model::failure(error, &model::name(path)))?;
    let logits = logits.ok_or_else(|| Failure::work("the model gave no logits"))?;
    expect_numbers(&logits, if settings.all { 0 } else { tokens.len() - 1 })?;
    let shape: &[usize] = if settings.all { &[tokens.len(), logits.width] } else { &[logits.width] };
    if to_stdout {
        let mut out = BufWriter::new(io::stdout().lock());
        return npy::write_f32(&mut out, shape, &logits.values).and_then(|()| out.flush()).map_err(stdout_failure);
    }
    write(&settings.output, shape, &logits, &interrupt).or_work(settings.output.display())?;
    eprintln!("{}: f32 {shape:?}", settings.output.display());
    Ok(())
}

/// That all logits are numbers; `first` is the position of the token that the first row is of.
fn expect_numbers(logits: &LogitsOut, first: usize) -> Result<(), Failure> {
    let Some(at) = logits.values.iter().position(|logit| !logit.is_finite()) else { return Ok(()) };
    let (token, id) = (first + at / logits.width, at % logits.width);
    Err(Failure::work(format_args!("after token {token} of the prompt, the logit of id {id} is {}", logits.values[at])))
}

/// The ids of the prompt; at least one. Text is taken as `argon run` takes it.
fn tokens(prompt: Tokens, engine: &Engine, gguf: &Gguf, path: Option<&Path>) -> Result<Vec<u32>, Failure> {
    let ids = match prompt {
        Tokens::Ids(ids) => ids,
        Tokens::IdFile(file) => read_ids(&file, engine.info().vocabulary)?,
        Tokens::Text(source) => {
            source.note_unread();
            let tokenizer = engine.tokenizer().map_err(|error| model::failure(error, &model::name(path)))?;
            tokenizer
                .encode_prompt(&source.read(model::example(path, gguf)?)?.text, Special::Parse)
                .or_input("the prompt")?
        }
    };
    if ids.is_empty() {
        return Err(Failure::input("the prompt is empty"));
    }
    Ok(ids)
}

/// The ids in a JSON file, each one of the vocabulary.
fn read_ids(path: &Path, vocabulary: usize) -> Result<Vec<u32>, Failure> {
    let read = || prompt::read_all(File::open(path)?);
    let json = read().or_input(path.display())?;
    let ids: Vec<u32> = serde_json::from_slice(&json)
        .or_input(format_args!("{}: not an array of token ids, as in [1, 2, 3]", path.display()))?;
    match ids.iter().position(|&id| id as usize >= vocabulary) {
        None => Ok(ids),
        Some(index) => Err(Failure::input(format_args!(
            "{}: id {} on line {} is outside the vocabulary of {vocabulary}",
            path.display(),
            ids[index],
            line(&json, index)
        ))),
    }
}

/// The line of a number in an array of numbers, from 1.
fn line(json: &[u8], index: usize) -> usize {
    let (mut commas, mut lines) = (0, 1);
    for byte in json {
        match byte {
            b'0'..=b'9' if commas == index => break,
            b',' => commas += 1,
            b'\n' => lines += 1,
            _ => {}
        }
    }
    lines
}

fn write(path: &Path, shape: &[usize], logits: &LogitsOut, interrupt: &Interrupt) -> std::io::Result<()> {
    let mut file = NewFile::create(path, interrupt)?;
    let mut out = BufWriter::new(&mut file);
    npy::write_f32(&mut out, shape, &logits.values)?;
    out.flush()?;
    drop(out);
    file.finish()
}
