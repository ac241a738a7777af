//! Which model this is: a number that tells a saved session whether it is being restored to the model it came from.

use argon_gguf::Gguf;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of each tensor that are looked at.
const SAMPLE: usize = 256;

/// A number that two files share if they have the same headers (keys, and names, shapes, formats and places of tensors) and
/// the same bytes in the middle of every tensor. Reading all of a large model would take longer than the prompt whose
/// repetition a saved session spares.
pub(crate) fn fingerprint(gguf: &Gguf) -> u128 {
    let mut hash = Xxh3::new();
    for (i, part) in gguf.parts().iter().enumerate() {
        let of_part = gguf.tensors().iter().filter(|tensor| tensor.part == i);
        let header = of_part.map(|tensor| tensor.offset as usize).min().unwrap_or(part.bytes.len());
        hash.update(&part.bytes[..header]);
    }
    for tensor in gguf.tensors() {
        let data = gguf.data(tensor);
        let start = data.len().saturating_sub(SAMPLE) / 2;
        hash.update(&data[start..data.len().min(start + SAMPLE)]);
    }
    hash.digest128()
}
