//! The keys of a file and their values.

use crate::cursor::Cursor;
use crate::error::{Error, Fault};
use crate::value::{self, Array, Value, ValueType};
use crate::{Bytes, name};
use std::collections::HashMap;
use std::ops::Range;

/// The keys of a file with their values, in the order of the file.
///
/// Values stay in the bytes of the file; a getter decodes the one it is asked for. For each type there is a getter that
/// returns `None` where the key is absent, and one named `require_*` that makes this an error. Both are errors where the
/// key holds something else: [`Error::ValueType`] says what. Files differ in the width of their integers, so an integer
/// getter accepts every integer type whose number fits.
#[derive(Clone, Debug)]
pub struct Metadata {
    bytes: Bytes,
    entries: Vec<Entry>,
    index: HashMap<String, usize>,
}

#[derive(Clone, Debug)]
struct Entry {
    key: Range<usize>,
    kind: ValueType,
    value: Range<usize>,
}

/// Far more keys than any model has: what a file can make the reader allocate stays small beside the file.
pub(crate) const MAX_ENTRIES: u64 = 1 << 16;

/// A key takes its length, a byte, a type and a byte at least.
const MIN_ENTRY: u64 = 8 + 1 + 4 + 1;

impl Metadata {
    /// Reads `count` entries from `cursor`, a position in `bytes`.
    pub(crate) fn read(bytes: &Bytes, cursor: &mut Cursor<'_>, count: u64) -> Result<Metadata, Error> {
        let max = MAX_ENTRIES.min(cursor.left() / MIN_ENTRY);
        if count > max {
            return Err(Error::Count { item: "keys", count, max });
        }
        let mut metadata = Metadata { bytes: bytes.clone(), entries: Vec::new(), index: HashMap::new() };
        for i in 0..count {
            metadata.read_entry(cursor, i)?;
        }
        Ok(metadata)
    }

    fn read_entry(&mut self, cursor: &mut Cursor<'_>, number: u64) -> Result<(), Error> {
        let key = name::read(cursor).map_err(|fault| Error::Name { item: format!("key {number}"), fault })?;
        let at_key = |fault| Error::Value { key: key.to_owned(), fault };
        let key_end = cursor.position();
        let kind = ValueType::read(cursor).map_err(at_key)?;
        let start = cursor.position();
        value::skip(cursor, kind).map_err(at_key)?;
        let entry = Entry { key: key_end - key.len()..key_end, kind, value: start..cursor.position() };
        if self.index.insert(key.to_owned(), self.entries.len()).is_some() {
            return Err(Error::DuplicateKey { key: key.to_owned() });
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The keys in the order of the file.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        // Checked when the file was read; only a file that has changed since then has other bytes here.
        self.entries.iter().filter_map(|entry| str::from_utf8(&self.bytes[entry.key.clone()]).ok())
    }

    /// Whether there is such a key.
    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// The value of `key`, of whatever type; `None` if there is no such key.
    ///
    /// # Errors
    /// [`Error::Value`] for a string that is not UTF-8 and a bool that is neither 0 nor 1.
    pub fn get(&self, key: &str) -> Result<Option<Value<'_>>, Error> {
        let Some((kind, stored)) = self.stored(key) else { return Ok(None) };
        Value::read(&mut Cursor::new(stored), kind)
            .map(Some)
            .map_err(|fault| Error::Value { key: key.to_owned(), fault })
    }

    /// Whether both have `key`, with different values.
    pub(crate) fn contradicts(&self, other: &Metadata, key: &str) -> bool {
        self.stored(key).zip(other.stored(key)).is_some_and(|(a, b)| a != b)
    }

    fn stored(&self, key: &str) -> Option<(ValueType, &[u8])> {
        let Entry { kind, value, .. } = &self.entries[*self.index.get(key)?];
        Some((*kind, &self.bytes[value.clone()]))
    }

    fn get_as<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        T::from_value(value).map(Some).map_err(|refusal| match refusal {
            Refusal::Fault(fault) => Error::Value { key: key.to_owned(), fault },
            Refusal::Type(found) => Error::ValueType { key: key.to_owned(), wanted: T::NAME, found },
        })
    }

    fn require_as<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, Error> {
        self.get_as(key)?.ok_or_else(|| Error::MissingKey { key: key.to_owned() })
    }
}

macro_rules! getters {
    ($($name:ident, $require:ident: $ty:ty, $what:literal;)*) => {
        impl Metadata {$(
            #[doc = concat!("The value of `key` as ", $what, "; `None` if there is no such key.")]
            ///
            /// # Errors
            /// [`Error::ValueType`] if it holds something else, [`Error::Value`] if that is malformed.
            pub fn $name(&self, key: &str) -> Result<Option<$ty>, Error> {
                self.get_as(key)
            }

            #[doc = concat!("The value of `key` as ", $what, ".")]
            ///
            /// # Errors
            /// [`Error::MissingKey`] without such a key, [`Error::ValueType`] if it holds something else,
            /// [`Error::Value`] if that is malformed.
            pub fn $require(&self, key: &str) -> Result<$ty, Error> {
                self.require_as(key)
            }
        )*}
    };
}

getters! {
    u32, require_u32: u32, "an integer";
    i32, require_i32: i32, "an integer";
    u64, require_u64: u64, "an integer";
    usize, require_usize: usize, "an integer";
    f32, require_f32: f32, "a number (an `f64` is rounded)";
    bool, require_bool: bool, "a bool";
    str, require_str: &str, "a string, borrowed from the file";
    u32_array, require_u32_array: Vec<u32>, "an array of integers";
    i32_array, require_i32_array: Vec<i32>, "an array of integers";
    u64_array, require_u64_array: Vec<u64>, "an array of integers";
    usize_array, require_usize_array: Vec<usize>, "an array of integers";
    f32_array, require_f32_array: Vec<f32>, "an array of numbers";
    bool_array, require_bool_array: Vec<bool>, "an array of bools";
    str_array, require_str_array: Vec<&str>, "an array of strings, borrowed from the file";
    array, require_array: Array<'_>, "an array of whatever elements";
}

/// Why a value is not what was asked for.
enum Refusal {
    /// It is of another type: what it is.
    Type(String),
    /// It is malformed.
    Fault(Fault),
}

trait FromValue<'a>: Sized {
    /// What an error says was asked for.
    const NAME: &'static str;

    fn from_value(value: Value<'a>) -> Result<Self, Refusal>;
}

macro_rules! from_value {
    ($($ty:ty, $name:literal, $array:literal, $value:ident => $convert:expr;)*) => {$(
        impl<'a> FromValue<'a> for $ty {
            const NAME: &'static str = $name;

            fn from_value($value: Value<'a>) -> Result<Self, Refusal> {
                $convert.ok_or_else(|| Refusal::Type($value.to_string()))
            }
        }

        impl<'a> FromValue<'a> for Vec<$ty> {
            const NAME: &'static str = $array;

            fn from_value(value: Value<'a>) -> Result<Self, Refusal> {
                elements(value)
            }
        }
    )*};
}

from_value! {
    u32, "a u32", "an array of u32", value => value.as_integer().and_then(|v| v.try_into().ok());
    i32, "an i32", "an array of i32", value => value.as_integer().and_then(|v| v.try_into().ok());
    u64, "a u64", "an array of u64", value => value.as_integer().and_then(|v| v.try_into().ok());
    usize, "a usize", "an array of usize", value => value.as_integer().and_then(|v| v.try_into().ok());
    f32, "an f32", "an array of f32", value => match value {
        Value::F32(v) => Some(v),
        Value::F64(v) => Some(v as f32),
        _ => None,
    };
    bool, "a bool", "an array of bool", value => match value { Value::Bool(v) => Some(v), _ => None };
    &'a str, "a string", "an array of strings", value => match value { Value::String(v) => Some(v), _ => None };
}

impl<'a> FromValue<'a> for Array<'a> {
    const NAME: &'static str = "an array";

    fn from_value(value: Value<'a>) -> Result<Self, Refusal> {
        match value {
            Value::Array(array) => Ok(array),
            other => Err(Refusal::Type(other.to_string())),
        }
    }
}

fn elements<'a, T: FromValue<'a>>(value: Value<'a>) -> Result<Vec<T>, Refusal> {
    let Value::Array(array) = value else { return Err(Refusal::Type(value.to_string())) };
    let mut elements = Vec::with_capacity(array.len());
    for (i, element) in array.iter().enumerate() {
        let element = element.map_err(Refusal::Fault)?;
        elements.push(T::from_value(element).map_err(|refusal| match refusal {
            Refusal::Type(found) => Refusal::Type(format!("{value} whose element {i} is {found}")),
            fault => fault,
        })?);
    }
    Ok(elements)
}
