//! The typed getters.

mod common;

use argon_gguf::{Error, Fault, Gguf, Metadata, Value, ValueType, Writer};
use common::raw::{good_raw, raw_array, raw_string, text};

fn model(writer: Writer<'_>) -> Gguf {
    let mut file = Vec::new();
    writer.write(&mut file).unwrap();
    Gguf::from_bytes(file).unwrap()
}

fn wrong_type(key: &str, wanted: &'static str, found: &str) -> Error {
    Error::ValueType { key: key.into(), wanted, found: found.into() }
}

#[test]
fn an_integer_of_any_width_that_fits() {
    let model = model(
        Writer::new()
            .metadata("u8", 200u8)
            .metadata("i8", -100i8)
            .metadata("u16", 60_000u16)
            .metadata("i16", -30_000i16)
            .metadata("u32", 4_000_000_000u32)
            .metadata("i32", -2_000_000_000i32)
            .metadata("u64", u64::MAX)
            .metadata("i64", -5i64),
    );
    let keys = model.metadata();
    assert_eq!(keys.u32("u8"), Ok(Some(200)));
    assert_eq!(keys.u32("u16"), Ok(Some(60_000)));
    assert_eq!(keys.u32("u32"), Ok(Some(4_000_000_000)));
    assert_eq!(keys.u32("i8"), Err(wrong_type("i8", "a u32", "i8 -100")));
    assert_eq!(keys.u32("u64"), Err(wrong_type("u64", "a u32", "u64 18446744073709551615")));
    assert_eq!(keys.i32("i8"), Ok(Some(-100)));
    assert_eq!(keys.i32("i16"), Ok(Some(-30_000)));
    assert_eq!(keys.i32("i64"), Ok(Some(-5)));
    assert_eq!(keys.i32("u32"), Err(wrong_type("u32", "an i32", "u32 4000000000")));
    assert_eq!(keys.u64("u64"), Ok(Some(u64::MAX)));
    assert_eq!(keys.usize("i32"), Err(wrong_type("i32", "a usize", "i32 -2000000000")));
    assert_eq!(keys.usize("u16"), Ok(Some(60_000)));
}

#[test]
fn floats_bools_and_strings_are_only_themselves() {
    let model = model(
        Writer::new()
            .metadata("f32", 1.5f32)
            .metadata("f64", 0.1f64)
            .metadata("bool", true)
            .metadata("str", "qwen4exp")
            .metadata("int", 1u8),
    );
    let keys = model.metadata();
    assert_eq!(keys.f32("f32"), Ok(Some(1.5)));
    assert_eq!(keys.f32("f64"), Ok(Some(0.1)));
    assert_eq!(keys.f32("int"), Err(wrong_type("int", "an f32", "u8 1")));
    assert_eq!(keys.bool("bool"), Ok(Some(true)));
    assert_eq!(keys.bool("int"), Err(wrong_type("int", "a bool", "u8 1")));
    assert_eq!(keys.str("str"), Ok(Some("qwen4exp")));
    assert_eq!(keys.str("f32"), Err(wrong_type("f32", "a string", "f32 1.5")));
    assert_eq!(keys.u32("str"), Err(wrong_type("str", "a u32", "string \"qwen4exp\"")));
    assert_eq!(keys.u32("bool"), Err(wrong_type("bool", "a u32", "bool true")));
    assert_eq!(keys.u32("f32"), Err(wrong_type("f32", "a u32", "f32 1.5")));
}

#[test]
fn arrays() {
    let model = model(
        Writer::new()
            .metadata("u8", [1u8, 2])
            .metadata("u64", [u64::MAX, 1])
            .metadata("i64", vec![-1i64, 7])
            .metadata("f32", [0.5f32, -2.0])
            .metadata("bool", [true, false])
            .metadata("str", ["a", "", "Grüße"])
            .metadata("owned", vec![String::from("x")])
            .metadata("none", [0u32; 0])
            .metadata("scalar", 3u32),
    );
    let keys = model.metadata();
    assert_eq!(keys.u32_array("u8"), Ok(Some(vec![1, 2])));
    assert_eq!(keys.u64_array("u64"), Ok(Some(vec![u64::MAX, 1])));
    assert_eq!(keys.usize_array("u8"), Ok(Some(vec![1, 2])));
    assert_eq!(keys.i32_array("i64"), Ok(Some(vec![-1, 7])));
    assert_eq!(
        keys.u32_array("i64"),
        Err(wrong_type("i64", "an array of u32", "array of 2 i64 whose element 0 is i64 -1"))
    );
    assert_eq!(keys.f32_array("f32"), Ok(Some(vec![0.5, -2.0])));
    assert_eq!(keys.bool_array("bool"), Ok(Some(vec![true, false])));
    assert_eq!(keys.str_array("str"), Ok(Some(vec!["a", "", "Grüße"])));
    assert_eq!(keys.str_array("owned"), Ok(Some(vec!["x"])));
    assert_eq!(keys.u32_array("none"), Ok(Some(vec![])));
    assert_eq!(keys.u32_array("scalar"), Err(wrong_type("scalar", "an array of u32", "u32 3")));
    assert_eq!(keys.u32("u8"), Err(wrong_type("u8", "a u32", "array of 2 u8")));
    let array = keys.require_array("str").unwrap();
    assert_eq!((array.len(), array.is_empty(), array.element_type()), (3, false, ValueType::String));
    assert_eq!(
        array.iter().map(|v| v.map(text)).collect::<Result<String, _>>().unwrap(),
        "string \"a\";string \"\";string \"Grüße\";"
    );
}

#[test]
fn strings_are_borrowed_from_the_file() {
    let mut file = Vec::new();
    Writer::new().metadata("tokens", ["one", "two"]).metadata("name", "n").write(&mut file).unwrap();
    let file: &'static [u8] = file.leak();
    let within = |text: &str| file.as_ptr_range().contains(&text.as_ptr());
    let model = Gguf::from_bytes(file).unwrap();
    assert!(within(model.metadata().require_str("name").unwrap()));
    assert!(model.metadata().require_str_array("tokens").unwrap().into_iter().all(within));
}

#[test]
fn an_absent_key_is_none_or_an_error() {
    let model = model(Writer::new().metadata("here", 1u32));
    let keys = model.metadata();
    let missing = || Error::MissingKey { key: "gone".into() };
    assert_eq!(keys.u32("gone"), Ok(None));
    assert_eq!(keys.str_array("gone"), Ok(None));
    assert_eq!(keys.require_u32("gone"), Err(missing()));
    assert_eq!(keys.require_str("gone"), Err(missing()));
    assert_eq!(keys.require_bool_array("gone"), Err(missing()));
    assert_eq!(keys.require_u32("here"), Ok(1));
    assert!(keys.contains("here") && !keys.contains("gone"));
    assert_eq!(missing().to_string(), "key \"gone\" is missing");
}

#[test]
fn keys_come_in_the_order_of_the_file() {
    let model = model(Writer::new().metadata("z", 1u32).metadata("a", 2u32).metadata("m", 3u32));
    assert_eq!(model.metadata().keys().collect::<Vec<_>>(), ["z", "a", "m"]);
    assert_eq!((model.metadata().len(), model.metadata().is_empty()), (3, false));
}

/// Reads a file with one more key, and asks for it.
fn with_key<T>(kind: ValueType, value: Vec<u8>, ask: impl Fn(&Metadata) -> T) -> T {
    let mut raw = good_raw();
    raw.push_key("key", kind, value);
    ask(Gguf::from_bytes(raw.bytes()).unwrap().metadata())
}

/// A string that nobody asks for may hold anything; asked for, it is refused.
#[test]
fn malformed_contents_are_refused_when_asked_for() {
    let fault = |fault| Err(Error::Value { key: "key".into(), fault });
    let get = |keys: &Metadata| keys.str("key").map(drop);
    assert_eq!(with_key(ValueType::String, raw_string(b"\xC3("), get), fault(Fault::Utf8));
    let get = |keys: &Metadata| keys.bool("key").map(drop);
    assert_eq!(with_key(ValueType::Bool, vec![2], get), fault(Fault::Bool { found: 2 }));
    let strings = [raw_string(b"good"), raw_string(b"\xFF")].concat();
    let get = |keys: &Metadata| keys.str_array("key").map(drop);
    assert_eq!(with_key(ValueType::Array, raw_array(8, 2, &strings), get), fault(Fault::Utf8));
    let get = |keys: &Metadata| keys.bool_array("key").map(drop);
    assert_eq!(with_key(ValueType::Array, raw_array(7, 3, &[0, 1, 0x80]), get), fault(Fault::Bool { found: 0x80 }));
}

#[test]
fn arrays_of_arrays_can_be_walked() {
    let inner = [raw_array(ValueType::U8.id(), 2, &[1, 2]), raw_array(ValueType::U8.id(), 0, &[])].concat();
    let walked = with_key(ValueType::Array, raw_array(ValueType::Array.id(), 2, &inner), |keys| {
        let array = keys.require_array("key").unwrap();
        array
            .iter()
            .map(|inner| matches!(inner, Ok(Value::Array(inner)) if inner.element_type() == ValueType::U8))
            .collect::<Vec<_>>()
    });
    assert_eq!(walked, [true, true]);
}

#[test]
fn long_and_odd_names_stay_readable_in_messages() {
    let key = format!("odd\n\u{1b}[31m{}", "x".repeat(5000));
    let message = Error::MissingKey { key }.to_string();
    assert!(message.len() < 200 && !message.contains(['\n', '\u{1b}']), "{message}");
}
