//! The kernels' sources, embedded; which macros make which kernel of them; and what they include: files, and two headers that
//! are generated, so that the host's numbers (host.rs) and formats' tables are not written down twice.

use std::fmt::{self, Display, Write};

use argon_gguf::Format;
use argon_gguf::quant::tables;

use super::host::{self, End, Map};
use super::tune::Tile;
use super::{attention, delta_net};

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
pub const FILES: [(&str, &str); 21] = files![
    "act.cu",
    "attention.cu",
    "attention_f16.cu",
    "combine.cu",
    "conv.cu",
    "copy.cu",
    "delta_chunks.cu",
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

/// Every file that is included.
pub(super) const HEADERS: [(&str, &str); 10] = files![
    "decode.cuh",
    "delta.cuh",
    "exact.cuh",
    "few.cuh",
    "mma.cuh",
    "order.cuh",
    "prelude.cuh",
    "range.cuh",
    "rank.cuh",
    "view.cuh"
];

impl Source {
    /// A file without macros.
    pub fn plain(file: &'static str) -> Self {
        Self { file, defines: Vec::new() }
    }

    fn new(file: &'static str, defines: impl IntoIterator<Item = (&'static str, u32)>) -> Self {
        Self { file, defines: defines.into_iter().collect() }
    }

    /// A file whose kernel decodes one format.
    pub fn of_format(file: &'static str, format: Format) -> Self {
        Self::new(file, format_defines(format))
    }

    /// A product on tensor cores, with weights whose rows begin at multiples of `align` bytes.
    pub fn gemm(format: Format, align: u64, tile: &Tile, map: Map, end: End) -> Self {
        let mut source = Self::of_format("gemm.cu", format);
        source.defines.extend([
            ("WEIGHT_ALIGN", align as u32),
            ("GEMM_TOKENS", tile.tokens),
            ("GEMM_CHUNK", tile.chunk),
            ("GEMM_STAGES", tile.stages),
            ("GEMM_BLOCKS", tile.blocks),
            ("GEMM_GROUPS", tile.groups),
            ("GEMM_RESIDENT", u32::from(tile.resident)),
            ("GEMM_STAGE_BYTES", tile.stage_bytes(format, end) as u32),
            ("GEMM_TABLES", tile.table_bytes(format) as u32),
            ("TABLE_COPIES", tile.copies),
            ("GEMM_MAP", map as u32),
            ("GEMM_EPILOGUE", end as u32),
        ]);
        source
    }

    /// A product in f32.
    pub fn product(format: Format, align: u64, map: Map, end: End) -> Self {
        let mut source = Self::of_format("product.cu", format);
        let defines = [("WEIGHT_ALIGN", align as u32), ("GEMM_MAP", map as u32), ("GEMM_EPILOGUE", end as u32)];
        source.defines.extend(defines);
        source
    }

    /// A product in f32 of few outputs; a block of threads makes `outputs` of them for `tokens` rows.
    pub fn narrow(format: Format, align: u64, [outputs, tokens]: [u32; 2], end: End) -> Self {
        let mut source = Self::of_format("narrow.cu", format);
        source.defines.extend([
            ("WEIGHT_ALIGN", align as u32),
            ("NARROW_OUTPUTS", outputs),
            ("NARROW_TOKENS", tokens),
            ("GEMM_EPILOGUE", end as u32),
        ]);
        source
    }

    /// A convolution of so many taps.
    pub fn conv(taps: usize) -> Self {
        // What stays in registers.
        let kept = if taps <= 8 { taps } else { 0 };
        Self::new("conv.cu", [("CONV_TAPS", kept as u32)])
    }

    /// Attention in f32, for heads of these widths and so many rows of queries at once.
    pub fn attention([width, v_width]: [usize; 2], rows: usize) -> Self {
        let shared = attention::shared(width, v_width, rows);
        let defines = [
            ("ATTENTION_WIDTH", width),
            ("ATTENTION_V_WIDTH", v_width),
            ("ATTENTION_ROWS", rows),
            ("SHARED_BYTES", shared),
        ];
        Self::new("attention.cu", defines.map(|(name, value)| (name, value as u32)))
    }

    /// Attention on tensor cores, for heads of these widths; `by_query`: a block of threads for each query.
    pub fn attention_f16([width, v_width]: [usize; 2], by_query: bool) -> Self {
        let shared = attention::shared_f16(width, v_width, by_query);
        let defines = [
            ("ATTENTION_WIDTH", width),
            ("ATTENTION_V_WIDTH", v_width),
            ("ATTENTION_QUERY", by_query.into()),
            ("SHARED_BYTES", shared),
        ];
        Self::new("attention_f16.cu", defines.map(|(name, value)| (name, value as u32)))
    }

    /// The gated delta rule, token after token, for heads of these widths.
    pub fn delta_net([depth, width]: [usize; 2]) -> Self {
        Self::new("delta_net.cu", [("DELTA_WIDTH", depth as u32), ("DELTA_V_WIDTH", width as u32)])
    }

    /// The gated delta rule by chunks, with so many chunks in shared memory.
    pub fn delta_chunks([depth, width]: [usize; 2], stages: usize) -> Self {
        let shared = delta_net::shared_bytes(depth, stages);
        let defines =
            [("DELTA_WIDTH", depth), ("DELTA_V_WIDTH", width), ("DELTA_STAGES", stages), ("SHARED_BYTES", shared)];
        Self::new("delta_chunks.cu", defines.map(|(name, value)| (name, value as u32)))
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

/// What a kernel of one format needs to know; the format table's own numbers.
fn format_defines(format: Format) -> [(&'static str, u32); 4] {
    [
        ("WEIGHT_FORMAT", format.ggml_id()),
        ("WEIGHT_ORDER", host::order(format)),
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
    headers.push(("host.cuh", host::header()));
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
    let _ = writeln!(text, "#define IQ4_BYTES {}", words(tables::IQ4_NL_VALUES, 128));
    let _ = writeln!(text, "#define FP4_BYTES {}", words(tables::FP4_VALUES, 12));
    text
}

/// 16 values, made positive by an offset, as the bytes of four words.
fn words(values: [i8; 16], offset: i16) -> String {
    let byte = |&value: &i8| u8::try_from(i16::from(value) + offset).expect("an offset for each table");
    let words = values.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes([0, 1, 2, 3].map(|i| byte(&four[i]))));
    words.map(|word| format!("{word:#x}u")).collect::<Vec<_>>().join(", ")
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
        // Two kernels of plan.cu share a function that waits.
        let (_, plan) = FILES.into_iter().find(|(file, _)| *file == "plan.cu").unwrap();
        assert_eq!(plan.matches("after_previous();").count() + 1, plan.matches("__global__").count());
    }

    #[test]
    fn headers_of_headers_count() {
        let names = |file| headers_of(&Source::plain(file)).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("copy.cu"), ["prelude.cuh", "view.cuh", "host.cuh"]);
        assert_eq!(names("embed.cu"), ["exact.cuh", "prelude.cuh", "view.cuh", "host.cuh", "tables.cuh"]);
    }

    #[test]
    fn tables_are_the_definition_s() {
        let text = tables_header();
        assert!(text.contains("#define FORMAT_IQ2_XS 17\n"));
        assert!(text.contains(&format!("IQ2XS_GRID[512] = {{{}ull,", tables::IQ2XS_GRID[0])));
        assert!(text.contains("IQ4_NL_VALUES[16] = {-127,-104,"));
        assert!(text.contains("#define IQ4_BYTES 0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u\n"));
        assert_eq!(selectors(0x082b_1919_0808_192b), 0x0020_1112);
    }
}
