//! `argon run --chat`: what the model reads is what its template writes, and no more often than needed.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use argon_engine::chat::{ChatOptions, ChatTemplate, Message};
use argon_engine::tokenizer::{Special, Tokenizer};
use argon_gguf::{Gguf, Value};

use crate::{SETS_BOS, argon, assert_fails, embedded, fixture, output, output_of, stderr, stdout, text, with_keys};

/// Takes answers into the conversation as they are, between control tokens that keep the ids of a text what they are.
const PLAIN: &str = "{% for m in messages %}{{ m.role }}<|endoftext|>{{ m.content }}<|endoftext|>{% endfor %}\
    {% if add_generation_prompt %}assistant<|endoftext|>{% endif %}";

/// Keeps only the length of an answer, as templates take thinking out.
const SHORTENS: &str = "{% for m in messages %}{{ m.role }}<|endoftext|>\
    {{ m.content | length if m.role == 'assistant' else m.content }}<|endoftext|>{% endfor %}\
    {% if add_generation_prompt %}assistant<|endoftext|>{% endif %}";

/// A short answer that is the same every time, however the prompt is cut.
const EXACT: [&str; 10] = ["-n", "6", "--temp", "0", "--precision", "f32", "-ctk", "f32", "-ctv", "f32"];

const TURNS: [&str; 3] = ["What is a vector?", "And a slice?", "How long is it?"];

/// The model `of` with a chat template.
fn templated(of: &Path, template: &str, dir: &Path) -> PathBuf {
    let path = dir.join("templated.gguf");
    with_keys(of, &[("tokenizer.chat_template", Value::String(template))], &path);
    path
}

fn chat(model: &Path, args: &[&str], lines: &str) -> Output {
    output_of(&[&["run", "--chat", "-m", text(model)], &EXACT[..], args].concat(), lines.as_bytes())
}

/// Tokens that a run says it has read, and those with all that it has written.
fn tokens(run: &Output) -> (usize, usize) {
    let count = |name: &str| -> usize {
        let line = stderr(run).lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().split(' ').next().unwrap().parse().unwrap()
    };
    (count("prefill"), count("prefill") + count("generate"))
}

/// A conversation, turn by turn, each prompt given to `argon run` as a text that it has not seen before.
struct Expected {
    answers: Vec<String>,
    /// Ids of each prompt.
    prompts: Vec<Vec<u32>>,
    /// Ids of each prompt without the beginning of the answer.
    before: Vec<Vec<u32>>,
}

fn expected(model: &Path, template: &str, options: &ChatOptions) -> Expected {
    let template = ChatTemplate::new(template, None, None).unwrap();
    let gguf = Gguf::open(model).unwrap();
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
    let ids = |text: &str| tokenizer.encode_prompt(text, Special::Parse).unwrap();
    let mut expected = Expected { answers: Vec::new(), prompts: Vec::new(), before: Vec::new() };
    let mut messages = Vec::new();
    for turn in TURNS {
        messages.push(Message::new("user", turn));
        let prompt = template.render(&messages, options).unwrap();
        let found = output(&[&["run", "-m", text(model), "-p", &prompt], &EXACT[..]].concat());
        let answer = stdout(&found).strip_suffix('\n').unwrap().to_owned();
        let before = template.render(&messages, &ChatOptions { add_generation_prompt: false, ..options.clone() });
        expected.prompts.push(ids(&prompt));
        expected.before.push(ids(&before.unwrap()));
        messages.push(Message::new("assistant", &answer));
        assert!(!answer.trim().is_empty());
        expected.answers.push(answer);
    }
    expected
}

#[test]
fn answers_are_those_to_the_whole_conversation_and_the_past_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let model = templated(&embedded(), PLAIN, dir.path());
    let expected = expected(&model, PLAIN, &ChatOptions::default());
    let found = chat(&model, &[], &TURNS.join("\n"));
    assert_eq!(stdout(&found), expected.answers.join("\n") + "\n");
    // The last token of an answer goes through the model with the next prompt, that of the last one never.
    let (read, all) = tokens(&found);
    assert_eq!(all - read, 3 * 6);
    assert_eq!(read + 3 * (6 - 1), expected.prompts[2].len() + (6 - 1));
}

#[test]
fn an_answer_that_the_template_rewrites_costs_that_answer_only() {
    let dir = tempfile::tempdir().unwrap();
    let model = templated(&embedded(), SHORTENS, dir.path());
    let expected = expected(&model, SHORTENS, &ChatOptions::default());
    let found = chat(&model, &[], &TURNS.join("\n"));
    assert_eq!(stdout(&found), expected.answers.join("\n") + "\n");
    let lengths = |i: usize, kept: usize| expected.prompts[i].len() - kept;
    let read = lengths(0, 0) + lengths(1, expected.before[0].len()) + lengths(2, expected.before[1].len());
    assert_eq!(tokens(&found).0, read);
}

/// Also where the template rewrites the last answer: the place in front of it is saved, too.
#[test]
fn a_chat_goes_on_from_its_file() {
    for template in [PLAIN, SHORTENS] {
        let dir = tempfile::tempdir().unwrap();
        let model = templated(&embedded(), template, dir.path());
        let file = dir.path().join("chat.session");
        let whole = chat(&model, &["--system", "Be brief."], &TURNS.join("\n"));
        let part = |turns: Range<usize>, args: &[&str]| {
            let found = chat(&model, &[&["--session", text(&file)], args].concat(), &TURNS[turns].join("\n"));
            (stdout(&found).to_owned(), tokens(&found).1)
        };
        let first = part(0..1, &["--system", "Be brief."]);
        let rest = part(1..3, &[]);
        assert_eq!(first.0 + &rest.0, stdout(&whole));
        assert_eq!(first.1 + rest.1, tokens(&whole).1);
        let plain = output(&["run", "-m", text(&model), "-p", "a", "--session", text(&file)]);
        assert_fails(&plain, 2, &[text(&file), "--chat"]);
        assert_fails(&chat(&model, &["--session", text(&file), "--system", "Ramble."], ""), 2, &["--system"]);
    }
}

/// While it waits for a line.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_chat_that_is_saved_nevertheless() {
    let dir = tempfile::tempdir().unwrap();
    let model = templated(&embedded(), PLAIN, dir.path());
    let file = dir.path().join("chat.session");
    let args = [&["run", "--chat", "-m", text(&model), "--session", text(&file), "-p", TURNS[0]], &EXACT[..]].concat();
    let mut child = argon(&args).stdin(Stdio::piped()).spawn().unwrap();
    let open = child.stdin.take();
    let mut answer = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let found = child.wait_with_output().unwrap();
    drop(open);
    assert_eq!(found.status.code(), Some(130), "{}", stderr(&found));
    let rest = chat(&model, &["--session", text(&file)], TURNS[1]);
    assert_eq!(answer + stdout(&rest), stdout(&chat(&model, &[], &TURNS[..2].join("\n"))));
}

/// While it answers.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_an_answer_and_the_chat_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let model = templated(&embedded(), PLAIN, dir.path());
    let file = dir.path().join("chat.session");
    let endless = ["-n", "-1", "--ignore-eos", "-c", "100000", "-p", TURNS[0]];
    let args = [&["run", "--chat", "-m", text(&model), "--session", text(&file)], &endless[..]].concat();
    let mut child = argon(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_exact(&mut [0; 4]).unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    child.stdin.take().unwrap().write_all(b"/exit\n").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let found = child.wait_with_output().unwrap();
    assert_eq!(found.status.code(), Some(0), "{}", stderr(&found));
    assert!(rest.ends_with('\n') && stderr(&found).contains("session: new, in "), "{}", stderr(&found));
    let resumed =
        output_of(&["run", "--chat", "-m", text(&model), "--session", text(&file), "-c", "100000"], b"/exit\n");
    assert!(stderr(&resumed).contains("\nsession: 2 messages in "), "{}", stderr(&resumed));
}

#[test]
fn a_message_without_room_is_refused_and_the_chat_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let model = templated(&embedded(), PLAIN, dir.path());
    let long = "a b ".repeat(100);
    let found = chat(&model, &["-c", "64"], &format!("{long}\n{}\n", TURNS[0]));
    assert_fails(&found, 2, &["1 message had no room in the chat"]);
    let expected = chat(&model, &["-c", "64"], TURNS[0]);
    assert_eq!(String::from_utf8(found.stdout.clone()).unwrap(), stdout(&expected));
    let told = stderr(&found).lines().find(|line| line.starts_with("no room for this message")).unwrap();
    assert!(told.contains("the context has room for 64") && told.contains("-c"), "{told}");
}

#[test]
fn a_command_that_there_is_not_is_named_and_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let model = templated(&embedded(), PLAIN, dir.path());
    let found = chat(&model, &[], &format!("/help me\n{}\n", TURNS[0]));
    assert_eq!(stdout(&found), stdout(&chat(&model, &[], TURNS[0])));
    assert!(stderr(&found).contains("there is no /help: /exit ends the chat"), "{}", stderr(&found));
    assert!(stderr(&found).contains("chat: /exit or the end of input ends it"), "{}", stderr(&found));
}

#[test]
fn the_first_message_may_be_a_prompt_and_exit_ends() {
    let dir = tempfile::tempdir().unwrap();
    let model = templated(&embedded(), PLAIN, dir.path());
    let lines = chat(&model, &[], &format!("{}\n\n/exit\n{}\n", TURNS[0], TURNS[1]));
    assert_eq!(stdout(&lines), stdout(&chat(&model, &[], TURNS[0])));
    assert_eq!(stdout(&lines), stdout(&chat(&model, &["-p", TURNS[0]], "")));
    assert_eq!(stdout(&lines), stdout(&chat(&model, &["-f", "-"], TURNS[0])));
    assert_eq!(stdout(&chat(&model, &[], "")), "");
}

#[test]
fn the_switch_for_thinking_reaches_the_template() {
    const SWITCHED: &str = "{{ messages[0].content }}\
        {% if enable_thinking is defined %}{{ ' with' if enable_thinking else ' without' }}{% endif %}";
    let dir = tempfile::tempdir().unwrap();
    let model = templated(&embedded(), SWITCHED, dir.path());
    for (flag, tail) in [(&[][..], ""), (&["--think"], " with"), (&["--no-think"], " without")] {
        let prompt = format!("a program{tail}");
        let expected = output(&[&["run", "-m", text(&model), "-p", &prompt], &EXACT[..]].concat());
        assert_eq!(stdout(&chat(&model, flag, "a program")), stdout(&expected));
    }
}

#[test]
fn bos_is_not_doubled() {
    let dir = tempfile::tempdir().unwrap();
    let bos = dir.path().join("bos.gguf");
    with_keys(&fixture("mixtral.gguf"), &SETS_BOS, &bos);
    let gguf = Gguf::open(&bos).unwrap();
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
    let ids = tokenizer.encode_prompt("hello there", Special::Parse).unwrap();
    assert!(ids[0] == 510 && ids[1] != 510, "{ids:?}");
    for template in ["{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"] {
        let model = templated(&bos, template, dir.path());
        let found = output_of(&["run", "--chat", "-m", text(&model), "-n", "0"], b"hello there");
        assert_eq!(tokens(&found).0, ids.len(), "{template}");
    }
}

/// Not one of these ends by itself; each breaks a budget that is kept inside the process.
#[test]
fn a_template_without_end_or_measure_is_ended() {
    let twice = "{% set a = namespace(s=['x']) %}{% set b = namespace(s=['x']) %}{% for i in range(60) %}\
        {% set a.s = [a.s, a.s] %}{% set b.s = [b.s, b.s] %}{% endfor %}";
    let sum = "{% set a = namespace(s=['x']) %}{% for i in range(99) %}{% set a.s = a.s + a.s %}{% endfor %}";
    let dir = tempfile::tempdir().unwrap();
    for template in [
        sum.to_owned(),
        format!("{twice}{{{{ a.s == b.s }}}}"),
        format!("{twice}{{{{ a.s ~ 'x' }}}}"),
        format!("{{{{ {} 1 }}}}", "1 + ".repeat(200_000)),
    ] {
        let model = templated(&embedded(), &template, dir.path());
        let start = std::time::Instant::now();
        assert_fails(&chat(&model, &[], "a"), 2, &["tokenizer.chat_template takes too much work"]);
        assert!(start.elapsed().as_secs() < 60, "{template:.100}");
    }
}

#[test]
fn a_chat_that_cannot_be_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    assert_fails(&output_of(&["run", "--chat"], b"a"), 2, &["the embedded model", "no chat template"]);
    let refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('No system here!') }}{% endif %}a";
    let model = templated(&embedded(), refuses, dir.path());
    assert_fails(&chat(&model, &["--system", "x"], "a"), 2, &["No system here!"]);
    let model = templated(&embedded(), PLAIN, dir.path());
    assert_fails(&chat(&model, &["-c", "4"], "a b c d e f"), 2, &["1 message had no room"]);
    let model = templated(&embedded(), "{% if %}", dir.path());
    assert_fails(&chat(&model, &[], "a"), 2, &["tokenizer.chat_template, line 1"]);
    let model = templated(&embedded(), "", dir.path());
    assert_fails(&chat(&model, &[], "a"), 2, &["empty"]);
}

/// A window that is closed, or a connection that breaks: as Ctrl-C, and what was said is saved.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_that_goes_away_ends_a_chat_as_ctrl_c_does() {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let dir = tempfile::tempdir().unwrap();
    let (model, session) = (templated(&embedded(), PLAIN, dir.path()), dir.path().join("session"));
    let end_after = |line: &str| {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs =
            || Stdio::from(open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap());
        let args = ["run", "--chat", "-m", text(&model), "-n", "-1", "--ignore-eos", "--session", text(&session)];
        let mut child = argon(&args).stdin(theirs()).stdout(theirs()).stderr(theirs()).spawn().unwrap();
        let mut terminal = std::fs::File::from(ours);
        see(&mut terminal, "> ");
        terminal.write_all(line.as_bytes()).unwrap();
        // The terminal's own echo of the line, and the beginning of an answer.
        see(&mut terminal, &line.replace('\n', "\r\n"));
        if !line.is_empty() {
            assert_eq!(terminal.read(&mut [0]).unwrap(), 1);
        }
        drop(terminal);
        child.wait().unwrap().code()
    };
    assert_eq!(end_after(""), Some(130), "while it waits for a message");
    assert_eq!(end_after("Hello\n"), Some(130), "while it answers");
    assert!(session.exists());
}

/// Reads what a terminal shows until `what` is there.
#[cfg(target_os = "linux")]
fn see(terminal: &mut impl Read, what: &str) {
    let (mut seen, mut piece) = (String::new(), [0; 256]);
    while !seen.contains(what) {
        let read = terminal.read(&mut piece).unwrap();
        seen += &String::from_utf8_lossy(&piece[..read]);
    }
}
