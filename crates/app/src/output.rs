//! Files that are there whole or not at all: written under another name beside their own, and renamed in the end.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, OrFail};
use crate::interrupt::Interrupt;
#[cfg(unix)]
use crate::words::bytes;

/// A file on its way to its place. Dropped before [`finish`](Self::finish), it leaves nothing behind, and what was at its
/// place is still there.
pub struct NewFile<'a> {
    file: File,
    place: PathBuf,
    /// Where it is until then; `None` where it must be written at its place: a pipe or a device.
    part: Option<PathBuf>,
    interrupt: &'a Interrupt,
}

/// That a file can be written to `path`: so that nothing is computed for a file that cannot be.
///
/// # Errors
/// Of the input, if it cannot.
pub fn can_be_written(path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Err(Failure::input("-: not standard output but a file is written; ./- is one of that name"));
    }
    match fs::metadata(path) {
        // Opened and closed, a pipe would end for whoever reads it.
        Ok(there) if !there.is_file() && !there.is_dir() => Ok(()),
        _ => NewFile::create(path, &Interrupt::of_process()).map(drop).or_input(path.display()),
    }
}

/// That each of `outputs` can be written, and is neither another one nor one of `inputs`: all by name, and by the file that
/// a path leads to.
///
/// # Errors
/// Of the input, naming both.
pub fn check<'a>(
    outputs: impl IntoIterator<Item = (&'static str, &'a Path)>,
    inputs: impl IntoIterator<Item = (&'static str, &'a Path)>,
) -> Result<(), Failure> {
    let mut taken: Vec<(&str, PathBuf)> =
        inputs.into_iter().filter_map(|(name, path)| Some((name, place(path)?))).collect();
    for (name, path) in outputs {
        can_be_written(path)?;
        let Some(place) = place(path) else { continue };
        if let Some((other, _)) = taken.iter().find(|(_, taken)| *taken == place) {
            let path = path.display();
            return Err(Failure::input(format_args!("{path}: {name} would write over {other}, the same file")));
        }
        taken.push((name, place));
    }
    Ok(())
}

/// Where a file is or will be, links followed; `None` for pipes and devices, which can be written to more than once.
fn place(path: &Path) -> Option<PathBuf> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => None,
        Ok(_) => fs::canonicalize(path).ok(),
        Err(_) => {
            let path = followed(path);
            Some(fs::canonicalize(directory(&path)).ok()?.join(path.file_name()?))
        }
    }
}

/// Where links from `path` lead, also if nothing is there yet.
fn followed(path: &Path) -> PathBuf {
    // As many as Linux follows.
    const LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(next) = fs::read_link(&path) else { break };
        path = directory(&path).join(next);
    }
    path
}

/// That there is room for `size` bytes more where `path` will be, as far as the system says.
///
/// # Errors
/// Of the input, with both numbers.
#[cfg(unix)]
pub fn has_room(path: &Path, size: u64) -> Result<(), Failure> {
    let Ok(disk) = rustix::fs::statvfs(directory(path)) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if size <= free {
        return Ok(());
    }
    let (size, free) = (bytes(size), bytes(free));
    Err(Failure::input(format_args!("{}: it takes {size}, and there is room for {free}", path.display())))
}

/// Not asked of other systems.
#[cfg(not(unix))]
pub fn has_room(_path: &Path, _size: u64) -> Result<(), Failure> {
    Ok(())
}

/// The directory that `path` is in.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A new file beside `place`, and its path. What is there already stays: a run that was killed may have had the same number
/// as this one, as each first process of a container has.
fn part_of(place: &Path) -> io::Result<(PathBuf, File)> {
    const OTHERS: usize = 1000;
    let process = std::process::id();
    let mut other = 0;
    loop {
        let mut part = place.as_os_str().to_owned();
        part.push(if other == 0 { format!(".{process}.part") } else { format!(".{process}-{other}.part") });
        match File::create_new(&part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && other < OTHERS => other += 1,
            made => return Ok((part.into(), made?)),
        }
    }
}

/// A whole file at once; a Ctrl-C that ends the process in between leaves what was there before.
///
/// # Errors
/// The system's; then there is what was there before.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>, interrupt: &Interrupt) -> io::Result<()> {
    let mut file = NewFile::create(path, interrupt)?;
    file.write_all(bytes.as_ref())?;
    file.finish()
}

impl<'a> NewFile<'a> {
    /// A file that will be at `path`; a Ctrl-C that ends the process in between removes it.
    ///
    /// # Errors
    /// The system's.
    pub fn create(path: &Path, interrupt: &'a Interrupt) -> io::Result<Self> {
        let (place, permissions) = match fs::metadata(path) {
            Ok(there) if !there.is_file() => {
                // A pipe that nobody reads yet is waited for, which no work could be asked to stop.
                let file = interrupt.ends_at_once(|| File::options().write(true).open(path))?;
                return Ok(Self { file, place: path.to_owned(), part: None, interrupt });
            }
            Ok(there) => {
                // What may not be written is not replaced.
                File::options().write(true).open(path)?;
                // Through a link, to what it leads to.
                (fs::canonicalize(path)?, Some(there.permissions()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (followed(path), None),
            Err(error) => return Err(error),
        };
        let (part, file) = part_of(&place)?;
        interrupt.removes(Some(&part));
        let new = Self { file, place, part: Some(part), interrupt };
        // A talk that others may not read stays so.
        permissions.map(|permissions| new.file.set_permissions(permissions)).transpose()?;
        Ok(new)
    }

    /// Puts it in its place, instead of what was there.
    ///
    /// # Errors
    /// The system's; then it leaves nothing behind.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        if let Some(part) = &self.part {
            fs::rename(part, &self.place)?;
            self.part = None;
        }
        Ok(())
    }
}

impl Write for NewFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // Whatever failed has been reported; this could only be reported beside it.
            let _ = fs::remove_file(part);
        }
        self.interrupt.removes(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_dash_is_no_file() {
        assert!(matches!(can_be_written(Path::new("-")), Err(Failure::Input(_))));
        assert!(!Path::new("-").exists());
    }

    #[test]
    fn a_file_is_there_when_it_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let (path, interrupt) = (dir.path().join("f"), Interrupt::default());
        let mut file = NewFile::create(&path, &interrupt).unwrap();
        file.write_all(b"one").unwrap();
        assert!(!path.exists());
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        let mut file = NewFile::create(&path, &interrupt).unwrap();
        file.write_all(b"two").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(names(dir.path()), ["f"]);
    }

    #[cfg(unix)]
    #[test]
    fn who_may_read_a_file_stays_the_same() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write(&path, b"new", &Interrupt::default()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let interrupt = Interrupt::default();
        let mut file = NewFile::create(&link, &interrupt).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(dir.path()), ["f", "link"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_nothing_is_the_place_that_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("link"));
        std::os::unix::fs::symlink("f", &link).unwrap();
        assert!(check([("--json", &*path), ("--html", &*link)], []).is_err());
        write(&link, b"new", &Interrupt::default()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(dir.path()), ["f", "link"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_in_a_circle_are_no_place() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("link", &link).unwrap();
        assert!(matches!(can_be_written(&link), Err(Failure::Input(_))));
        assert!(write(&link, b"new", &Interrupt::default()).is_err());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn what_a_killed_run_left_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let left = format!("f.{}.part", std::process::id());
        fs::write(dir.path().join(&left), "old").unwrap();
        write(&path, b"new", &Interrupt::default()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(dir.path()), ["f".to_owned(), left]);
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_written_to_and_stays() {
        let interrupt = Interrupt::default();
        let mut file = NewFile::create(Path::new("/dev/null"), &interrupt).unwrap();
        file.write_all(b"gone").unwrap();
        file.finish().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
