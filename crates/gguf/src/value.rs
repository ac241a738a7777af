//! Metadata values, borrowed from the bytes of the file.

use crate::cursor::Cursor;
use crate::error::{Fault, quote};
use std::fmt;

/// Arrays in arrays: how deep. No known file goes beyond 1.
const MAX_DEPTH: u32 = 4;

/// The type of a metadata value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
#[allow(missing_docs)] // the names say it all
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    const ALL: [ValueType; 13] = {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64]
    };

    /// The type with this id in a file.
    pub fn from_id(id: u32) -> Option<ValueType> {
        ValueType::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// The id in a file.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// Bytes of a value; `None` where that depends on the value.
    pub const fn size(self) -> Option<usize> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::String | ValueType::Array => None,
        }
    }

    /// The fewest bytes that a value takes.
    fn min_size(self) -> u64 {
        match self {
            ValueType::String => 8,
            ValueType::Array => 12,
            sized => sized.size().unwrap_or(1) as u64,
        }
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<ValueType, Fault> {
        let id = cursor.u32().ok_or(Fault::Truncated)?;
        ValueType::from_id(id).ok_or(Fault::UnknownType { id })
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_ascii_lowercase())
    }
}

/// A metadata value.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs)] // the names say it all
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(&'a str),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// Its type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The value of any of the integer types.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// Reads a value of type `kind`. An array is checked in structure, its elements when they are looked at.
    pub(crate) fn read(cursor: &mut Cursor<'a>, kind: ValueType) -> Result<Value<'a>, Fault> {
        fn number<const N: usize>(cursor: &mut Cursor<'_>) -> Result<[u8; N], Fault> {
            cursor.array().ok_or(Fault::Truncated)
        }
        Ok(match kind {
            ValueType::U8 => Value::U8(u8::from_le_bytes(number(cursor)?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(number(cursor)?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(number(cursor)?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(number(cursor)?)),
            ValueType::U32 => Value::U32(u32::from_le_bytes(number(cursor)?)),
            ValueType::I32 => Value::I32(i32::from_le_bytes(number(cursor)?)),
            ValueType::F32 => Value::F32(f32::from_le_bytes(number(cursor)?)),
            ValueType::U64 => Value::U64(u64::from_le_bytes(number(cursor)?)),
            ValueType::I64 => Value::I64(i64::from_le_bytes(number(cursor)?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(number(cursor)?)),
            ValueType::Bool => match number(cursor)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [found] => return Err(Fault::Bool { found }),
            },
            ValueType::String => Value::String(str::from_utf8(string(cursor)?).map_err(|_| Fault::Utf8)?),
            ValueType::Array => Value::Array(Array::read(cursor, 1)?),
        })
    }
}

/// What a message says about a value: its type, and the value where it is short.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::F32(v) => write!(f, "f32 {v}"),
            Value::F64(v) => write!(f, "f64 {v}"),
            Value::Bool(v) => write!(f, "bool {v}"),
            Value::String(v) => write!(f, "string {}", quote(v)),
            Value::Array(v) => write!(f, "array of {} {}", v.len(), v.element_type()),
            integer => write!(f, "{} {}", integer.value_type(), integer.as_integer().unwrap_or_default()),
        }
    }
}

/// An array in the metadata: its elements are decoded as they are looked at.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'a> {
    kind: ValueType,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Number of elements. The bytes behind each of them are there.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Type of the elements.
    pub fn element_type(&self) -> ValueType {
        self.kind
    }

    /// The elements as they are stored, one after the other.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, Fault>> + use<'a> {
        let (kind, mut cursor) = (self.kind, Cursor::new(self.bytes));
        (0..self.len).map(move |_| Value::read(&mut cursor, kind))
    }

    fn read(cursor: &mut Cursor<'a>, depth: u32) -> Result<Array<'a>, Fault> {
        if depth > MAX_DEPTH {
            return Err(Fault::Nesting);
        }
        let kind = ValueType::read(cursor)?;
        let len = cursor.u64().ok_or(Fault::Truncated)?;
        let too_long = Fault::ArrayLength { len };
        let least = len.checked_mul(kind.min_size()).filter(|least| *least <= cursor.left()).ok_or(too_long)?;
        let start = cursor.position();
        match kind {
            ValueType::String => (0..len).try_for_each(|_| string(cursor).map(drop))?,
            ValueType::Array => (0..len).try_for_each(|_| Array::read(cursor, depth + 1).map(drop))?,
            _ => cursor.take(least).map(drop).ok_or(Fault::Truncated)?,
        }
        let len = usize::try_from(len).map_err(|_| Fault::ArrayLength { len })?;
        Ok(Array { kind, len, bytes: cursor.since(start) })
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} {})", self.len, self.kind)
    }
}

/// Moves past a value of type `kind`, checking that it is all there.
pub(crate) fn skip(cursor: &mut Cursor<'_>, kind: ValueType) -> Result<(), Fault> {
    match (kind, kind.size()) {
        (_, Some(size)) => cursor.take(size as u64).map(drop).ok_or(Fault::Truncated),
        (ValueType::String, _) => string(cursor).map(drop),
        _ => Array::read(cursor, 1).map(drop),
    }
}

/// The bytes of a string: a length, then so many bytes.
pub(crate) fn string<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Fault> {
    let len = cursor.u64().ok_or(Fault::Truncated)?;
    cursor.take(len).ok_or(Fault::StringLength { len })
}
