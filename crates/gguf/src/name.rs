//! The names of keys and tensors.

use crate::cursor::Cursor;
use crate::error::Fault;
use crate::value;

/// The longest name that the format allows for a key, in bytes.
const MAX_LEN: u64 = 65_535;

/// Reads a name.
pub(crate) fn read<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, Fault> {
    let name = str::from_utf8(value::string(cursor)?).map_err(|_| Fault::Utf8)?;
    check(name)?;
    Ok(name)
}

/// Checks the length of a name.
pub(crate) fn check(name: &str) -> Result<(), Fault> {
    match name.len() as u64 {
        0 => Err(Fault::EmptyName),
        1..=MAX_LEN => Ok(()),
        len => Err(Fault::LongName { len }),
    }
}
