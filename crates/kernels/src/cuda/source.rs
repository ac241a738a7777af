//! The kernels' sources, embedded, and the one header that is generated: tables come from `argon_gguf`, not from a copy.

use std::fmt::{self, Display, Write};

use argon_gguf::Format;
use argon_gguf::quant::tables;

/// A file to compile, and the macros that make a kernel of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// A name of [`FILES`].
    pub file: &'static str,
    /// Macro names and values.
    pub defines: Vec<(&'static str, u32)>,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!("kernels/", $name)))),*] };
}

/// Every file that is compiled.
pub const FILES: [(&str, &str); 20] = files![
    "act.cu",
    "attention.cu",
    "attention_f16.cu",
    "combine.cu",
    "conv.cu",
    "copy.cu",
    "delta_net.cu",
    "embed.cu",
    "gather.cu",
    "gemm.cu",
    "hyper.cu",
    "narrow.cu",
    "norm.cu",
    "plan.cu",
    "ple.cu",
    "product.cu",
    "range.cu",
    "rope.cu",
    "route.cu",
    "select_blocks.cu",
];

const HEADERS: [(&str, &str); 8] =
    files!["decode.cuh", "exact.cuh", "mma.cuh", "order.cuh", "prelude.cuh", "range.cuh", "rank.cuh", "view.cuh"];

impl Source {
    /// A file without macros.
    pub fn plain(file: &'static str) -> Self {
        Self { file, defines: Vec::new() }
    }

    /// A file whose kernel decodes one format.
    pub fn of_format(file: &'static str, format: Format) -> Self {
        Self { file, defines: format_defines(format).to_vec() }
    }

    /// Whether the file's kernels wait by themselves for those before them.
    pub fn waits(&self) -> bool {
        self.text().contains("after_previous();")
    }

    /// The file's text.
    ///
    /// # Panics
    /// If there is no such file: a mistake in this crate.
    pub fn text(&self) -> &'static str {
        FILES.iter().find(|(name, _)| *name == self.file).map(|(_, text)| *text).expect("a file of FILES")
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file)?;
        self.defines.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// Order in which a format's decoder wants columns (order.cuh).
pub(super) fn order(format: Format) -> u32 {
    match format {
        Format::IQ2_XXS | Format::IQ2_XS | Format::IQ2_S => 3,
        Format::IQ4_NL | Format::IQ4_XS | Format::MXFP4 | Format::NVFP4 => 1,
        Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 => 2,
        _ => 0,
    }
}

/// What a kernel of one format needs to know; the format table's own numbers.
pub fn format_defines(format: Format) -> [(&'static str, u32); 4] {
    [
        ("WEIGHT_FORMAT", format.ggml_id()),
        ("WEIGHT_ORDER", order(format)),
        ("WEIGHT_BLOCK", format.block_len() as u32),
        ("WEIGHT_BYTES", format.block_bytes() as u32),
    ]
}

/// Names and texts of what a file includes, directly or not.
pub fn headers_of(source: &Source) -> Vec<(&'static str, String)> {
    let all = headers();
    let mut wanted = includes(source.text());
    let mut i = 0;
    while i < wanted.len() {
        let text = all.iter().find(|(name, _)| *name == wanted[i]).map_or("", |(_, text)| text);
        for name in includes(text) {
            if !wanted.contains(&name) {
                wanted.push(name);
            }
        }
        i += 1;
    }
    all.into_iter().filter(|(name, _)| wanted.iter().any(|w| w == name)).collect()
}

/// The names in a text's include lines.
fn includes(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("#include \""));
    lines.filter_map(|line| line.split('"').next()).map(String::from).collect()
}

/// Names and texts of everything that a file may include.
fn headers() -> Vec<(&'static str, String)> {
    let mut headers: Vec<_> = HEADERS.iter().map(|&(name, text)| (name, text.to_string())).collect();
    headers.push(("tables.cuh", tables_header()));
    headers
}

fn tables_header() -> String {
    let mut text = String::from("#pragma once\n");
    for format in Format::ALL {
        let _ = writeln!(text, "#define FORMAT_{} {}", format.name(), format.ggml_id());
    }
    use Format::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, IQ4_NL, IQ4_XS, MXFP4, NVFP4};
    table(&mut text, &[IQ2_XXS], "u64 IQ2XXS_GRID", &tables::IQ2XXS_GRID);
    table(&mut text, &[IQ2_XS], "u64 IQ2XS_GRID", &tables::IQ2XS_GRID);
    table(&mut text, &[IQ2_S], "u64 IQ2S_GRID", &tables::IQ2S_GRID);
    table(&mut text, &[IQ2_XXS], "u32 IQ2XXS_SELECTORS", &tables::IQ2XXS_GRID.map(selectors));
    table(&mut text, &[IQ2_XS], "u32 IQ2XS_SELECTORS", &tables::IQ2XS_GRID.map(selectors));
    table(&mut text, &[IQ2_S], "u32 IQ2S_SELECTORS", &tables::IQ2S_GRID.map(selectors));
    table(&mut text, &[IQ3_XXS], "u32 IQ3XXS_GRID", &tables::IQ3XXS_GRID);
    table(&mut text, &[IQ3_S], "u32 IQ3S_GRID", &tables::IQ3S_GRID);
    table(&mut text, &[IQ1_S, IQ1_M], "u64 IQ1S_GRID", &tables::IQ1S_GRID);
    table(&mut text, &[IQ4_NL, IQ4_XS], "signed char IQ4_NL_VALUES", &tables::IQ4_NL_VALUES);
    table(&mut text, &[MXFP4, NVFP4], "signed char FP4_VALUES", &tables::FP4_VALUES);
    text
}

/// Of 8 magnitudes 8, 25 or 43, one a byte: which, as a nibble each, in the order of decode.cuh.
fn selectors(magnitudes: u64) -> u32 {
    let bytes = magnitudes.to_le_bytes();
    [0, 4, 1, 5, 2, 6, 3, 7].into_iter().rev().fold(0, |all, weight| all << 4 | u32::from(bytes[weight] >> 4))
}

/// A constant array, only where a kernel of one of these formats is compiled.
fn table<T: Display>(text: &mut String, formats: &[Format], name: &str, values: &[T]) {
    let wanted: Vec<String> = formats.iter().map(|f| format!("WEIGHT_FORMAT == FORMAT_{}", f.name())).collect();
    let suffix = if name.starts_with("u64") { "ull" } else { "" };
    let _ = write!(text, "#if {}\n__device__ const {name}[{}] = {{", wanted.join(" || "), values.len());
    for value in values {
        let _ = write!(text, "{value}{suffix},");
    }
    text.push_str("};\n#endif\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_include_is_there() {
        let headers = headers();
        let texts = FILES.iter().map(|(n, t)| (*n, t.to_string())).chain(headers.iter().cloned());
        for (file, text) in texts {
            assert_eq!(text.matches("#include").count(), includes(&text).len(), "{file}");
            for name in includes(&text) {
                assert!(headers.iter().any(|(header, _)| *header == name), "{file} includes {name}");
            }
        }
    }

    #[test]
    fn all_kernels_of_a_file_wait_or_none() {
        for (file, text) in FILES {
            let (kernels, waits) = (text.matches("__global__").count(), text.matches("after_previous();").count());
            assert!(waits == 0 || kernels == waits || file == "plan.cu", "{file}: {waits} of {kernels} kernels wait");
        }
        // Two kernels of plan.cu share a function that waits, twice.
        let (_, plan) = FILES.into_iter().find(|(file, _)| *file == "plan.cu").unwrap();
        assert_eq!(plan.matches("after_previous();").count() + 2, plan.matches("__global__").count());
    }

    #[test]
    fn headers_of_headers_count() {
        let names = |file| headers_of(&Source::plain(file)).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("copy.cu"), ["prelude.cuh", "view.cuh"]);
        assert_eq!(names("embed.cu"), ["exact.cuh", "prelude.cuh", "view.cuh", "tables.cuh"]);
    }

    #[test]
    fn tables_are_the_definition_s() {
        let text = tables_header();
        assert!(text.contains("#define FORMAT_IQ2_XS 17\n"));
        assert!(text.contains(&format!("IQ2XS_GRID[512] = {{{}ull,", tables::IQ2XS_GRID[0])));
        assert!(text.contains("IQ4_NL_VALUES[16] = {-127,-104,"));
        assert_eq!(selectors(0x082b_1919_0808_192b), 0x0020_1112);
    }
}
