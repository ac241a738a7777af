//! What must hold for any bytes whatever: the body of the fuzz target `fuzz/fuzz_targets/gguf.rs` and of `fuzz.rs`.

use argon_gguf::{Gguf, Value, Writer, decode_row};

/// Reads `bytes` as a model. Refused, they give a short message of one line. Accepted, everything in them can be looked
/// at, lies within them, and survives being written and read again. Returns whether they were accepted.
pub fn exercise(bytes: &[u8]) -> bool {
    match Gguf::from_bytes(bytes.to_vec()) {
        Ok(model) => {
            look_at_keys(&model);
            look_at_tensors(&model, bytes);
            write_and_read(&model);
            true
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && message.len() < 2000 && !message.contains('\n'), "{message}");
            false
        }
    }
}

fn look_at_keys(model: &Gguf) {
    let keys = model.metadata();
    assert_eq!(keys.keys().count(), keys.len());
    for key in keys.keys() {
        if let Ok(value) = keys.get(key) {
            look_at(value.expect("the key is there"));
        }
        // Of all the getters, no more than one kind finds what it wants.
        let found = [
            matches!(keys.u64(key), Ok(Some(_))) || matches!(keys.i32(key), Ok(Some(_))),
            matches!(keys.f32(key), Ok(Some(_))),
            matches!(keys.bool(key), Ok(Some(_))),
            matches!(keys.str(key), Ok(Some(_))),
            matches!(keys.array(key), Ok(Some(_))),
        ];
        assert!(found.iter().filter(|found| **found).count() <= 1, "{key:?}");
        let _ = (keys.u32_array(key), keys.f32_array(key), keys.bool_array(key), keys.str_array(key));
    }
}

fn look_at(value: Value<'_>) {
    assert!(!value.to_string().is_empty());
    if let Value::Array(array) = value {
        assert_eq!(array.iter().count(), array.len());
        array.iter().flatten().for_each(look_at);
    }
}

fn look_at_tensors(model: &Gguf, bytes: &[u8]) {
    let mut ranges = Vec::new();
    for tensor in model.tensors() {
        let data = model.data(tensor);
        let location = model.location(tensor);
        let start = usize::try_from(location.offset).expect("within the file");
        assert_eq!(data[..], bytes[start..start + location.len]);
        assert_eq!(tensor.rows() * tensor.row_bytes(), tensor.bytes);
        assert_eq!(tensor.format.row_bytes(tensor.cols()), Some(tensor.row_bytes()));
        let mut row = vec![0.0; tensor.cols()];
        decode_row(tensor.format, &data[..tensor.row_bytes()], &mut row);
        ranges.push(start..start + tensor.bytes);
    }
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
}

fn write_and_read(model: &Gguf) {
    // A value that cannot be decoded cannot be written either; and the writer sets its own keys.
    let own = |key: &str| key == "general.alignment" || key.starts_with("split.");
    let keys: Vec<(&str, Value<'_>)> = model
        .metadata()
        .keys()
        .filter(|key| !own(key))
        .filter_map(|key| Some((key, model.metadata().get(key).ok()??)))
        .collect();
    let writer = keys.iter().fold(Writer::new(), |writer, (key, value)| writer.metadata(*key, value));
    let writer = model.tensors().iter().fold(writer, |writer, tensor| {
        writer.tensor(&tensor.name, &tensor.shape, tensor.format, model.data(tensor).to_vec())
    });
    let mut file = Vec::new();
    writer.write(&mut file).expect("what was read can be written");
    let again = Gguf::from_bytes(file).expect("what was written can be read");
    assert!(again.metadata().keys().eq(keys.iter().map(|(key, _)| *key)));
    for (before, after) in model.tensors().iter().zip(again.tensors()) {
        assert_eq!((&before.name, &before.shape, before.format), (&after.name, &after.shape, after.format));
        assert!(model.data(before)[..] == again.data(after)[..]);
    }
}
