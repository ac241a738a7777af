//! The keys of one architecture: typed, in range, or an error that names the key.

use std::ops::RangeInclusive;

use argon_gguf::{Metadata, Value};

use crate::EngineError;

/// The metadata of a file, asked by the keys of its architecture without their prefix.
pub(super) struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

type Result<T> = std::result::Result<T, EngineError>;

/// An error about `key`; `what` reads on from the key.
pub(super) fn refuse<T>(key: String, what: impl Into<String>) -> Result<T> {
    Err(EngineError::Key { key, what: what.into() })
}

impl<'a> Keys<'a> {
    pub(super) fn new(metadata: &'a Metadata, architecture: &'a str) -> Self {
        Self { metadata, architecture }
    }

    /// The whole key, as the file spells it.
    pub(super) fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.metadata.contains(&self.full(key))
    }

    /// An integer within `range`, if the key is there. An array of one value throughout counts as that value: some
    /// writers repeat it for each layer.
    pub(super) fn get(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        let full = self.full(key);
        let value = match self.metadata.get(&full)? {
            None => return Ok(None),
            Some(Value::Array(_)) => match self.integers(key)?.as_deref() {
                Some([first, rest @ ..]) if rest.iter().all(|value| value == first) => *first,
                Some([_, ..]) => return refuse(full, "differs from layer to layer, which is not supported"),
                _ => return refuse(full, "is an empty array"),
            },
            Some(_) => self.metadata.require_u64(&full)?,
        };
        let value = usize::try_from(value).unwrap_or(usize::MAX);
        if !range.contains(&value) {
            return refuse(full, format!("is {value}, not within {} to {}", range.start(), range.end()));
        }
        Ok(Some(value))
    }

    /// An integer within `range`.
    pub(super) fn require(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize> {
        self.get(key, range)?.ok_or_else(|| argon_gguf::Error::MissingKey { key: self.full(key) }.into())
    }

    /// A finite number above 0, if the key is there.
    pub(super) fn positive(&self, key: &str) -> Result<Option<f32>> {
        let full = self.full(key);
        match self.metadata.f32(&full)? {
            Some(value) if value.is_finite() && value > 0.0 => Ok(Some(value)),
            Some(value) => refuse(full, format!("is {value}, not a number above 0")),
            None => Ok(None),
        }
    }

    /// A finite number above 0.
    pub(super) fn require_positive(&self, key: &str) -> Result<f32> {
        self.positive(key)?.ok_or_else(|| argon_gguf::Error::MissingKey { key: self.full(key) }.into())
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>> {
        Ok(self.metadata.bool(&self.full(key))?)
    }

    pub(super) fn str(&self, key: &str) -> Result<Option<&'a str>> {
        Ok(self.metadata.str(&self.full(key))?)
    }

    pub(super) fn bools(&self, key: &str) -> Result<Option<Vec<bool>>> {
        Ok(self.metadata.bool_array(&self.full(key))?)
    }

    /// Integers of any width that are not negative, if the key is there. The array is no longer than the file.
    pub(super) fn integers(&self, key: &str) -> Result<Option<Vec<u64>>> {
        let full = self.full(key);
        let Some(array) = self.metadata.array(&full)? else { return Ok(None) };
        let mut values = Vec::with_capacity(array.len());
        for (i, value) in array.iter().enumerate() {
            let value = value.map_err(|fault| argon_gguf::Error::Value { key: full.clone(), fault })?;
            match value.as_integer().map(u64::try_from) {
                Some(Ok(value)) => values.push(value),
                _ => return refuse(full, format!("has the element {i} {value}, not an integer from 0")),
            }
        }
        Ok(Some(values))
    }

    /// The first `count` integers of an array that has as many.
    pub(super) fn require_integers(&self, key: &str, count: usize) -> Result<Vec<u64>> {
        let full = self.full(key);
        let Some(mut values) = self.integers(key)? else {
            return Err(argon_gguf::Error::MissingKey { key: full }.into());
        };
        if values.len() < count {
            return refuse(full, format!("has {} entries, fewer than the {count} needed", values.len()));
        }
        values.truncate(count);
        Ok(values)
    }

    /// Refuses keys that would change the result in a way that is not supported.
    pub(super) fn refuse_unless_neutral(&self, key: &str, neutral: f32) -> Result<()> {
        let full = self.full(key);
        let value = match self.metadata.get(&full)? {
            None => return Ok(()),
            Some(Value::F32(value)) => value,
            Some(Value::F64(value)) => value as f32,
            Some(value) => value.as_integer().map_or(f32::NAN, |value| value as f32),
        };
        if value == neutral { Ok(()) } else { refuse(full, format!("is {value}, which is not supported")) }
    }
}
