//! Metadata values on their way into a file.

use crate::{Array, Value, ValueType};

/// What [`Writer::metadata`](crate::Writer::metadata) can store: numbers, bools, strings, arrays of these, and any
/// [`Value`] of another file.
pub trait ToMetadata {
    /// The type it is stored as.
    fn value_type(&self) -> ValueType;

    /// Appends the stored form, without the type.
    fn encode(&self, out: &mut Vec<u8>);
}

impl<T: ToMetadata + ?Sized> ToMetadata for &T {
    fn value_type(&self) -> ValueType {
        (**self).value_type()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
}

macro_rules! to_metadata {
    ($($ty:ty => $kind:ident, |$value:ident, $out:ident| $encode:expr;)*) => {$(
        impl ToMetadata for $ty {
            fn value_type(&self) -> ValueType {
                ValueType::$kind
            }

            fn encode(&self, $out: &mut Vec<u8>) {
                let $value = self;
                $encode
            }
        }
    )*};
}

macro_rules! arrays_of {
    ($($ty:ty => $kind:ident;)*) => {$(
        impl ToMetadata for [$ty] {
            fn value_type(&self) -> ValueType {
                ValueType::Array
            }

            fn encode(&self, out: &mut Vec<u8>) {
                encode_array_header(ValueType::$kind, self.len(), out);
                for element in self {
                    element.encode(out);
                }
            }
        }

        impl<const N: usize> ToMetadata for [$ty; N] {
            fn value_type(&self) -> ValueType {
                ValueType::Array
            }

            fn encode(&self, out: &mut Vec<u8>) {
                self.as_slice().encode(out);
            }
        }

        impl ToMetadata for Vec<$ty> {
            fn value_type(&self) -> ValueType {
                ValueType::Array
            }

            fn encode(&self, out: &mut Vec<u8>) {
                self.as_slice().encode(out);
            }
        }
    )*};
}

to_metadata! {
    u8 => U8, |value, out| out.push(*value);
    i8 => I8, |value, out| out.extend(value.to_le_bytes());
    u16 => U16, |value, out| out.extend(value.to_le_bytes());
    i16 => I16, |value, out| out.extend(value.to_le_bytes());
    u32 => U32, |value, out| out.extend(value.to_le_bytes());
    i32 => I32, |value, out| out.extend(value.to_le_bytes());
    f32 => F32, |value, out| out.extend(value.to_le_bytes());
    u64 => U64, |value, out| out.extend(value.to_le_bytes());
    i64 => I64, |value, out| out.extend(value.to_le_bytes());
    f64 => F64, |value, out| out.extend(value.to_le_bytes());
    bool => Bool, |value, out| out.push(u8::from(*value));
    str => String, |value, out| encode_string(value, out);
    String => String, |value, out| encode_string(value, out);
    Array<'_> => Array, |value, out| {
        encode_array_header(value.element_type(), value.len(), out);
        out.extend(value.bytes());
    };
}

arrays_of! {
    u8 => U8;
    i8 => I8;
    u16 => U16;
    i16 => I16;
    u32 => U32;
    i32 => I32;
    f32 => F32;
    u64 => U64;
    i64 => I64;
    f64 => F64;
    bool => Bool;
    &str => String;
    String => String;
}

impl ToMetadata for Value<'_> {
    fn value_type(&self) -> ValueType {
        Value::value_type(self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::U8(v) => v.encode(out),
            Value::I8(v) => v.encode(out),
            Value::U16(v) => v.encode(out),
            Value::I16(v) => v.encode(out),
            Value::U32(v) => v.encode(out),
            Value::I32(v) => v.encode(out),
            Value::F32(v) => v.encode(out),
            Value::Bool(v) => v.encode(out),
            Value::String(v) => v.encode(out),
            Value::Array(v) => v.encode(out),
            Value::U64(v) => v.encode(out),
            Value::I64(v) => v.encode(out),
            Value::F64(v) => v.encode(out),
        }
    }
}

/// A string: its length, then its bytes. Names of keys and tensors are stored so too.
pub(super) fn encode_string(string: &str, out: &mut Vec<u8>) {
    out.extend((string.len() as u64).to_le_bytes());
    out.extend(string.as_bytes());
}

fn encode_array_header(kind: ValueType, len: usize, out: &mut Vec<u8>) {
    out.extend(kind.id().to_le_bytes());
    out.extend((len as u64).to_le_bytes());
}
