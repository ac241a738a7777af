//! Kernels from source to machine code, at run time: NVRTC, found where toolkits and pip packages put it, given no
//! directory to look for headers in; and a cache on disk, keyed by everything that the code depends on.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;
use xxhash_rust::xxh3::xxh3_128;

use super::source::{self, Source};

/// What goes wrong between a kernel's source and its code.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum JitError {
    /// The library is nowhere.
    #[error(
        "NVRTC is missing: no {names} in {searched} (it comes with the CUDA toolkit, or as the Python package nvidia-cuda-nvrtc)"
    )]
    Missing {
        /// The file names looked for.
        names: String,
        /// Where.
        searched: String,
    },
    /// The library is not what it says.
    #[error("NVRTC at {path} is unusable: {what}")]
    Unusable {
        /// The file.
        path: String,
        /// What failed.
        what: String,
    },
    /// No compiler for this card.
    #[error("NVRTC {version} knows no architecture that runs on compute capability {capability}")]
    Architecture {
        /// The compiler's version.
        version: String,
        /// The card's.
        capability: u32,
    },
    /// The source does not compile.
    #[error("NVRTC: {kernel}: {log}")]
    Compile {
        /// The kernel and its options.
        kernel: String,
        /// What the compiler says.
        log: String,
    },
}

/// What code is generated for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Architecture {
    /// As the compiler's option names it: `sm_90a`, `compute_80`.
    pub name: String,
    /// Compute capability that the code is written for, 90 for 9.0.
    pub capability: u32,
}

type Program = *mut c_void;

/// The compiler.
pub struct Nvrtc {
    library: Library,
    /// What the library loads by name when it first compiles.
    _builtins: Vec<Library>,
    path: String,
    version: (c_int, c_int),
}

/// File names, newest first, as Linux and Windows have them.
const NAMES: [&str; 6] =
    ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64.dll"];

/// Where toolkits put it.
const TOOLKITS: [&str; 2] = ["/usr/local/cuda/lib64", "/opt/cuda/lib64"];

impl Nvrtc {
    /// Loads the library from the first of `directories` that has it, then from where toolkits install it, then from
    /// wherever the system's loader looks.
    ///
    /// # Errors
    /// [`JitError::Missing`], [`JitError::Unusable`].
    pub fn open(directories: &[PathBuf]) -> Result<Self, JitError> {
        let places = || directories.iter().cloned().chain(TOOLKITS.map(PathBuf::from));
        let files = places().flat_map(|directory| NAMES.map(|name| directory.join(name))).filter(|file| file.exists());
        for file in files.chain(NAMES.map(PathBuf::from)) {
            let builtins = builtins(&file);
            // SAFETY: the library's initialisers are the vendor's business.
            if let Ok(library) = unsafe { Library::new(&file) } {
                return Self::check(library, builtins, &file);
            }
        }
        Err(missing(places()))
    }

    fn check(library: Library, builtins: Vec<Library>, file: &Path) -> Result<Self, JitError> {
        let mut this = Self { library, _builtins: builtins, path: file.display().to_string(), version: (0, 0) };
        let (mut major, mut minor) = (0, 0);
        type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        // SAFETY: the type is the documented one; it writes two integers.
        let status = unsafe { this.symbol::<Version>("nvrtcVersion")?(&mut major, &mut minor) };
        this.ok(status, "nvrtcVersion")?;
        this.version = (major, minor);
        Ok(this)
    }

    /// # Safety
    /// `F` is the function's documented type.
    unsafe fn symbol<F: Copy>(&self, name: &str) -> Result<F, JitError> {
        // SAFETY: the caller's.
        let found = unsafe { self.library.get::<F>(name.as_bytes()) };
        found.map(|f| *f).map_err(|e| self.unusable(e.to_string()))
    }

    fn unusable(&self, what: String) -> JitError {
        JitError::Unusable { path: self.path.clone(), what }
    }

    fn ok(&self, status: c_int, call: &str) -> Result<(), JitError> {
        if status == 0 { Ok(()) } else { Err(self.unusable(format!("{call} gives status {status}"))) }
    }

    /// Major and minor version, for a person and for the cache.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// The best architecture for a card: its own, with its own instructions where kernels use them, or else the newest
    /// older one as an intermediate form that the driver finishes.
    ///
    /// # Errors
    /// [`JitError::Architecture`].
    pub fn architecture(&self, capability: u32) -> Result<Architecture, JitError> {
        let mut count = 0;
        type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
        type List = unsafe extern "C" fn(*mut c_int) -> c_int;
        // SAFETY: documented types; the list is as long as the count says.
        let known = unsafe {
            self.ok(self.symbol::<Count>("nvrtcGetNumSupportedArchs")?(&mut count), "nvrtcGetNumSupportedArchs")?;
            let mut known = vec![0; count.max(0) as usize];
            let list = self.symbol::<List>("nvrtcGetSupportedArchs")?;
            self.ok(list(known.as_mut_ptr()), "nvrtcGetSupportedArchs")?;
            known
        };
        let known: Vec<u32> = known.into_iter().map(|arch| arch as u32).collect();
        if known.contains(&capability) {
            return Ok(exact(capability));
        }
        let older = known.into_iter().filter(|&arch| (80..capability).contains(&arch)).max();
        let missing = || JitError::Architecture { version: self.version(), capability };
        older.map(|arch| Architecture { name: format!("compute_{arch}"), capability: arch }).ok_or_else(missing)
    }

    /// Compiles one kernel.
    ///
    /// # Errors
    /// [`JitError::Compile`].
    pub fn compile(&self, source: &Source, architecture: &Architecture) -> Result<Vec<u8>, JitError> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
        let text = |s: &str| CString::new(s).map_err(|e| self.unusable(e.to_string()));
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();

        let main = text(source.text())?;
        let headers = source::headers_of(source);
        let names = headers.iter().map(|(name, _)| text(name)).collect::<Result<Vec<_>, _>>()?;
        let bodies = headers.iter().map(|(_, body)| text(body)).collect::<Result<Vec<_>, _>>()?;
        let options = options(source, architecture).iter().map(|option| text(option)).collect::<Result<Vec<_>, _>>()?;
        let file = text(source.file)?;
        let mut program = ptr::null_mut();
        // SAFETY: documented types; every array is as long as its count, every string is terminated and outlives the call.
        unsafe {
            let (create, compile) =
                (self.symbol::<Create>("nvrtcCreateProgram")?, self.symbol::<Compile>("nvrtcCompileProgram")?);
            let (bodies, names) = (pointers(&bodies), pointers(&names));
            let count = names.len() as c_int;
            let status = create(&mut program, main.as_ptr(), file.as_ptr(), count, bodies.as_ptr(), names.as_ptr());
            self.ok(status, "nvrtcCreateProgram")?;
            let status = compile(program, options.len() as c_int, pointers(&options).as_ptr());
            let code = if status == 0 {
                let what = if architecture.name.starts_with("sm_") { "CUBIN" } else { "PTX" };
                self.fetch(program, what)
            } else {
                let log = self.fetch(program, "ProgramLog")?;
                let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_string();
                Err(JitError::Compile { kernel: source.to_string(), log })
            };
            self.ok(self.symbol::<Destroy>("nvrtcDestroyProgram")?(&mut program), "nvrtcDestroyProgram")?;
            code
        }
    }

    /// One of the byte strings of a program.
    fn fetch(&self, program: Program, what: &str) -> Result<Vec<u8>, JitError> {
        type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
        type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
        let mut size = 0;
        // SAFETY: documented types; the buffer is as long as the library says.
        unsafe {
            let (get_size, get) = (format!("nvrtcGet{what}Size"), format!("nvrtcGet{what}"));
            self.ok(self.symbol::<Size>(&get_size)?(program, &mut size), &get_size)?;
            let mut bytes = vec![0u8; size];
            self.ok(self.symbol::<Get>(&get)?(program, bytes.as_mut_ptr().cast()), &get)?;
            Ok(bytes)
        }
    }
}

/// That the library is in none of these places, nor where the loader looks.
fn missing(places: impl Iterator<Item = PathBuf>) -> JitError {
    let searched: Vec<String> = places.map(|place| place.display().to_string()).collect();
    JitError::Missing {
        names: NAMES[..3].join(", "),
        searched: format!("{}, or on the library path", searched.join(", ")),
    }
}

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Nvrtc({} at {})", self.version(), self.path)
    }
}

/// The libraries beside `file` that it needs and, in some versions, looks for on the library path alone: once
/// they are loaded, they are found by name wherever they are.
fn builtins(file: &Path) -> Vec<Library> {
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    let entries = directory.and_then(|directory| std::fs::read_dir(directory).ok()).into_iter().flatten().flatten();
    let wanted = |name: &str| name.contains("nvrtc-builtins") && !name.contains(".alt.");
    let files = entries.filter(|entry| entry.file_name().to_str().is_some_and(wanted)).map(|entry| entry.path());
    // SAFETY: the library's initialisers are the vendor's business.
    files.filter_map(|file| unsafe { Library::new(file) }.ok()).collect()
}

/// The architecture of a compute capability itself.
pub fn exact(capability: u32) -> Architecture {
    // wgmma is an instruction of 9.0 alone, not of what comes after it.
    let own = if capability == 90 { "a" } else { "" };
    Architecture { name: format!("sm_{capability}{own}"), capability }
}

/// The compiler's options, the same for the same kernel: they are part of the cache's key.
fn options(source: &Source, architecture: &Architecture) -> Vec<String> {
    let mut options = vec![
        format!("--gpu-architecture={}", architecture.name),
        "--std=c++17".into(),
        "--diag-suppress=177,128,186".into(), // variables, loops and comparisons that a configuration makes pointless
        format!("-DCAPABILITY={}", architecture.capability),
    ];
    options.extend(source.defines.iter().map(|(name, value)| format!("-D{name}={value}")));
    options
}

/// Compiled kernels on disk. Whatever is wrong with it (no right to write, a damaged file) costs a compilation, never a
/// wrong kernel.
pub struct Cache(pub Option<PathBuf>);

impl Cache {
    /// The code of a kernel, from the cache or from the compiler.
    ///
    /// # Errors
    /// Those of [`Nvrtc::compile`].
    pub fn code(&self, nvrtc: &Nvrtc, source: &Source, architecture: &Architecture) -> Result<Vec<u8>, JitError> {
        let Some(directory) = &self.0 else { return nvrtc.compile(source, architecture) };
        let file = directory.join(format!("{}.cubin", key(nvrtc, source, architecture)));
        if let Some(code) = load(&file) {
            return Ok(code);
        }
        let code = nvrtc.compile(source, architecture)?;
        let _ = std::fs::create_dir_all(directory).and_then(|()| store(&file, &code));
        Ok(code)
    }
}

/// The code in a file, if it is there and whole.
fn load(file: &Path) -> Option<Vec<u8>> {
    std::fs::read(file).ok().and_then(unseal)
}

/// Keeps code in a file. Other threads and processes may be at it too: each writes a file of its own, and whoever renames last
/// wins.
fn store(file: &Path, code: &[u8]) -> std::io::Result<()> {
    let unfinished = file.with_extension(format!("{}-{:?}.tmp", std::process::id(), std::thread::current().id()));
    std::fs::write(&unfinished, seal(code))?;
    std::fs::rename(&unfinished, file)
}

/// Name of a kernel's file: everything that its code depends on, hashed.
fn key(nvrtc: &Nvrtc, source: &Source, architecture: &Architecture) -> String {
    let mut all = format!("{source} {} {:?}", nvrtc.version(), options(source, architecture));
    all.push_str(source.text());
    for (name, body) in source::headers_of(source) {
        let _ = write!(all, "{name}{body}");
    }
    format!("{}-{:032x}", source.file.trim_end_matches(".cu"), xxh3_128(all.as_bytes()))
}

/// Code with its hash behind it.
fn seal(code: &[u8]) -> Vec<u8> {
    [code, &xxh3_128(code).to_le_bytes()].concat()
}

/// The code, if it is whole.
fn unseal(mut sealed: Vec<u8>) -> Option<Vec<u8>> {
    let end = sealed.len().checked_sub(size_of::<u128>())?;
    let whole = sealed[end..] == xxh3_128(&sealed[..end]).to_le_bytes();
    sealed.truncate(end);
    whole.then_some(sealed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_no_code() {
        let sealed = seal(b"code");
        assert_eq!(unseal(sealed.clone()).as_deref(), Some(&b"code"[..]));
        for i in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[i] ^= 1;
            assert_eq!(unseal(damaged), None, "byte {i}");
            assert_eq!(unseal(sealed[..i].to_vec()), None, "cut at {i}");
        }
    }

    #[test]
    fn many_may_write_the_same_file_at_once() {
        let directory = std::env::temp_dir().join(format!("argon-kernel-cache-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("kernel.cubin");
        let code = |writer: u8| vec![writer; 100_000 + usize::from(writer)];
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let (file, code) = (&file, &code);
                scope.spawn(move || {
                    for _ in 0..50 {
                        store(file, &code(writer)).unwrap();
                        let found = load(file).expect("a whole file");
                        assert_eq!(found, code(found[0]), "of one writer alone");
                    }
                });
            }
        });
        let left: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(left, ["kernel.cubin"]);
    }

    #[test]
    fn a_missing_compiler_is_one_line() {
        let line = "NVRTC is missing: no libnvrtc.so.13, libnvrtc.so.12, libnvrtc.so in /a, /b, or on the library path (it comes with \
                    the CUDA toolkit, or as the Python package nvidia-cuda-nvrtc)";
        assert_eq!(missing(["/a", "/b"].map(PathBuf::from).into_iter()).to_string(), line);
        // Where the machine has none on its library path either.
        if let Err(error) = Nvrtc::open(&[std::env::temp_dir().join("argon-no-such-directory")]) {
            assert!(error.to_string().starts_with("NVRTC is missing"), "{error}");
        }
    }

    #[test]
    fn only_hopper_has_instructions_of_its_own() {
        assert_eq!([80, 90, 120].map(|c| exact(c).name), ["sm_80", "sm_90a", "sm_120"]);
    }
}
