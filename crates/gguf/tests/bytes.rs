//! Bytes of a mapped file and of memory.

use argon_gguf::{Bytes, Format, Gguf, Writer};

#[test]
fn a_hint_changes_nothing() {
    let content: Vec<u8> = (0..40_000u32).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    Writer::new().tensor("t", &[40_000], Format::F32, &content).write_file(file.path()).unwrap();
    let gguf = Gguf::open(file.path()).unwrap();
    let mapped = gguf.data(gguf.tensor("t").unwrap());
    for bytes in [mapped, Bytes::from(content.clone()), Bytes::from(b"static")] {
        for range in [0..4, 39_999 * 4..40_000 * 4, 0..0, 0..usize::MAX, usize::MAX..usize::MAX] {
            bytes.will_need(range);
        }
        assert!(bytes[..] == content[..] || bytes[..] == b"static"[..]);
    }
}
