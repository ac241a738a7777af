//! Models in several files: `NAME-00001-of-00003.gguf` and so on, each with its number in the metadata.

use crate::Metadata;
use crate::error::Error;
use crate::part::Part;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) const NUMBER_KEY: &str = "split.no";
pub(crate) const COUNT_KEY: &str = "split.count";
pub(crate) const TENSORS_KEY: &str = "split.tensors.count";

/// What a part says about itself.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    /// Which part, counted from 1 (the file counts from 0).
    pub(crate) number: u64,
    pub(crate) count: u64,
}

impl Record {
    /// `None` if the file is not split. A file that was joined by llama.cpp's tool has a count of 0.
    pub(crate) fn read(metadata: &Metadata) -> Result<Option<Record>, Error> {
        let count = metadata.u64(COUNT_KEY)?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        let number = u64::from(metadata.require_u32(NUMBER_KEY)?) + 1;
        Ok(Some(Record { number, count }))
    }
}

/// What the name of a part says.
struct PartName<'a> {
    stem: &'a str,
    number: u64,
    count: u64,
}

impl<'a> PartName<'a> {
    fn parse(path: &'a Path) -> Option<PartName<'a>> {
        let (rest, count) = path.file_name()?.to_str()?.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let five_digits = |text: &str| {
            let all = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| all)
        };
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        (1..=count).contains(&number).then_some(PartName { stem, number, count })
    }
}

/// The path of part `number` of `count`, of a model that would be called `stem.gguf` in one file.
pub(crate) fn part_path(stem: &Path, number: u64, count: u64) -> PathBuf {
    let mut path = stem.as_os_str().to_owned();
    path.push(format!("-{number:05}-of-{count:05}.gguf"));
    path.into()
}

/// A split model that one of its files led to.
pub(crate) struct Split {
    stem: PathBuf,
    count: u64,
}

impl Split {
    /// `None` if the file at `path` is a model by itself.
    ///
    /// # Errors
    /// [`Error::PartName`] and [`Error::NotAPart`] if name and metadata disagree on that.
    pub(crate) fn detect(path: &Path, metadata: &Metadata) -> Result<Option<Split>, Error> {
        match (Record::read(metadata)?, PartName::parse(path).filter(|name| name.count > 1)) {
            (None, None) => Ok(None),
            (None, Some(PartName { number, count, .. })) => Err(Error::NotAPart { number, count }),
            (Some(Record { number, count, .. }), None) => Err(Error::PartName { number, count }),
            (Some(_), Some(PartName { stem, count, .. })) => Ok(Some(Split { stem: path.with_file_name(stem), count })),
        }
    }

    /// Number of parts.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Opens part `number`, counted from 1, and checks that it is that part, of the model of `first`.
    ///
    /// # Errors
    /// [`Error::File`] with what is wrong with the part: [`Error::MissingPart`], [`Error::NotAPart`] or
    /// [`Error::ForeignPart`] if not the file itself.
    pub(crate) fn open_part(&self, number: u64, first: Option<&Metadata>) -> Result<(PathBuf, Part), Error> {
        let path = part_path(&self.stem, number, self.count);
        let part = Part::open(&path).map_err(|error| match error {
            Error::File { error, .. } if matches!(*error, Error::Io { kind: io::ErrorKind::NotFound, .. }) => {
                Error::MissingPart { number, count: self.count }.in_file(&path)
            }
            other => other,
        })?;
        self.check(number, &part.metadata, first.unwrap_or(&part.metadata)).map_err(|error| error.in_file(&path))?;
        Ok((path, part))
    }

    /// Checks that all parts together hold as many tensors as the first one says.
    ///
    /// # Errors
    /// [`Error::File`] of the first part, with [`Error::TensorTotal`] or that it does not say.
    pub(crate) fn check_total(&self, found: usize, first: &Metadata) -> Result<(), Error> {
        let compare = |expected| match found as u64 {
            found if found == expected => Ok(()),
            found => Err(Error::TensorTotal { found, expected }),
        };
        let compared = first.require_u64(TENSORS_KEY).and_then(compare);
        compared.map_err(|error| error.in_file(part_path(&self.stem, 1, self.count)))
    }

    /// Checks that `part` is what its name says, and of the same model as `first`: every key that both have, and that is
    /// not the part's own number, has the same value in both.
    fn check(&self, number: u64, part: &Metadata, first: &Metadata) -> Result<(), Error> {
        let count = self.count;
        let record = Record::read(part)?.ok_or(Error::NotAPart { number, count })?;
        let foreign = |key: &str, found: String, expected: String| {
            Err(Error::ForeignPart { number, key: key.to_owned(), found, expected })
        };
        if record.count != count {
            return foreign(COUNT_KEY, record.count.to_string(), count.to_string());
        }
        if record.number != number {
            return foreign(NUMBER_KEY, (record.number - 1).to_string(), (number - 1).to_string());
        }
        if let Some(key) = part.keys().find(|key| *key != NUMBER_KEY && part.contradicts(first, key)) {
            let shown = |keys: &Metadata| keys.get(key).map(|v| v.map(|v| v.to_string()).unwrap_or_default());
            return foreign(key, shown(part)?, shown(first)?);
        }
        Ok(())
    }
}
