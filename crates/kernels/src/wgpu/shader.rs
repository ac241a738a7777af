//! The text of each kernel: what is compiled together, and the list of all kernels.

use std::fmt::Write;

use argon_gguf::Format;

use super::codebooks;

const PRELUDE: &str = include_str!("shaders/prelude.wgsl");
const REDUCE: &str = include_str!("shaders/reduce.wgsl");
const DECODE: &str = include_str!("shaders/decode.wgsl");
const TILE: &str = include_str!("shaders/tile.wgsl");

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // each is its file
pub enum File {
    Act,
    Attention,
    Combine,
    Conv,
    Copy,
    DeltaNet,
    Embed,
    Gemm,
    GemmCoop,
    Hyper,
    Norm,
    Plan,
    Ple,
    Rope,
    Route,
    SelectBlocks,
}

impl File {
    fn text(self) -> &'static str {
        match self {
            File::Act => include_str!("shaders/act.wgsl"),
            File::Attention => include_str!("shaders/attention.wgsl"),
            File::Combine => include_str!("shaders/combine.wgsl"),
            File::Conv => include_str!("shaders/conv.wgsl"),
            File::Copy => include_str!("shaders/copy.wgsl"),
            File::DeltaNet => include_str!("shaders/delta_net.wgsl"),
            File::Embed => include_str!("shaders/embed.wgsl"),
            File::Gemm => include_str!("shaders/gemm.wgsl"),
            File::GemmCoop => include_str!("shaders/gemm_coop.wgsl"),
            File::Hyper => include_str!("shaders/hyper.wgsl"),
            File::Norm => include_str!("shaders/norm.wgsl"),
            File::Plan => include_str!("shaders/plan.wgsl"),
            File::Ple => include_str!("shaders/ple.wgsl"),
            File::Rope => include_str!("shaders/rope.wgsl"),
            File::Route => include_str!("shaders/route.wgsl"),
            File::SelectBlocks => include_str!("shaders/select_blocks.wgsl"),
        }
    }

    /// Whether its kernels sum over a group of 256 threads.
    fn reduces(self) -> bool {
        matches!(self, File::Act | File::Norm | File::Ple | File::Route)
    }
}

/// What a product is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Output rows of a workgroup: 16, 32 or 64.
    pub rows: u32,
    /// Half of its columns belong to a second weight.
    pub swiglu: bool,
    /// The adapter's matrices, for the product that is made of them.
    pub matrix: Option<Matrix>,
}

/// A cooperative matrix: f16 factors, f32 sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Rows, columns and depth: 8 or 16.
    pub size: u32,
    /// Threads that share one.
    pub subgroup: u32,
}

/// Weight rows of a workgroup: SLOTS in gemm.wgsl and gemm_coop.wgsl.
pub const SLOTS: u32 = 64;

/// One kernel: an entry point of a file, compiled for a weight format and a tile where it depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Where it is.
    pub file: File,
    /// The function.
    pub entry: &'static str,
    /// Of the weights that it reads.
    pub format: Option<Format>,
    /// Of a product.
    pub tile: Option<Tile>,
}

/// The entry points that depend on nothing.
const PLAIN: &[(File, &[&str])] = &[
    (File::Act, &["act_f16", "swiglu"]),
    (File::Attention, &["attention"]),
    (File::Combine, &["combine"]),
    (File::Conv, &["conv", "conv_state"]),
    (File::Copy, &["fill", "copy", "add", "fill_half", "copy_half", "scatter_half"]),
    (File::DeltaNet, &["delta_prepare", "delta_net"]),
    (File::Hyper, &["hyper_write", "gate_mean"]),
    (File::Norm, &["rms_norm"]),
    (File::Plan, &["hist", "scan_blocks", "scan_experts", "scan_rows", "place"]),
    (File::Ple, &["ple_gate"]),
    (File::Rope, &["rope"]),
    (File::Route, &["route"]),
    (File::SelectBlocks, &["mean_pool", "block_scores", "select_blocks"]),
];

/// Heights of a product's tiles.
pub const TILE_ROWS: [u32; 3] = [16, 32, 64];

/// Cooperative matrices that kernels are translated for, as tests see to: Apple's, a software driver's, NVIDIA's.
pub const MATRICES: [Matrix; 3] =
    [Matrix { size: 8, subgroup: 32 }, Matrix { size: 8, subgroup: 8 }, Matrix { size: 16, subgroup: 32 }];

/// Whether weights of a format are multiplied as f16: formats of the range of f32 are not.
pub fn has_coop(format: Format) -> bool {
    !matches!(format, Format::F32 | Format::BF16 | Format::MXFP4)
}

impl Kernel {
    /// A kernel that depends on no format.
    pub const fn plain(file: File, entry: &'static str) -> Self {
        Self { file, entry, format: None, tile: None }
    }

    /// Reads rows of a table.
    pub const fn embed(format: Format) -> Self {
        Self { format: Some(format), ..Self::plain(File::Embed, "embed") }
    }

    /// Look at ids, whatever their table's format.
    pub const CHECKS: [Kernel; 2] = [
        Kernel { format: Some(Format::F32), ..Kernel::plain(File::Embed, "embed_check") },
        Kernel { format: Some(Format::F32), ..Kernel::plain(File::Embed, "embed_note") },
    ];

    /// A product.
    pub const fn gemm(format: Format, tile: Tile) -> Self {
        let file = if tile.matrix.is_some() { File::GemmCoop } else { File::Gemm };
        Self { format: Some(format), tile: Some(tile), ..Self::plain(file, "gemm") }
    }

    /// Every kernel that a device may ask for.
    pub fn all() -> Vec<Kernel> {
        let plain =
            PLAIN.iter().flat_map(|&(file, entries)| entries.iter().map(move |&entry| Kernel::plain(file, entry)));
        let formats = || Format::ALL.iter().copied().filter(|format| format.is_weight());
        let embeds = formats().map(Kernel::embed).chain(Kernel::CHECKS);
        let tiles =
            |matrix| TILE_ROWS.iter().flat_map(move |&rows| [false, true].map(|swiglu| Tile { rows, swiglu, matrix }));
        let products = formats().flat_map(move |format| {
            let matrices = MATRICES.iter().copied().map(Some).filter(move |_| has_coop(format));
            std::iter::once(None).chain(matrices).flat_map(tiles).map(move |tile| Kernel::gemm(format, tile))
        });
        plain.chain(embeds).chain(products).collect()
    }

    /// The text to compile.
    pub fn source(&self) -> String {
        let mut text = String::new();
        if self.file == File::GemmCoop {
            text += "enable f16;\nenable wgpu_cooperative_matrix;\n";
        }
        text += PRELUDE;
        if self.file.reduces() {
            text += REDUCE;
        }
        if let Some(format) = self.format {
            text += &decoder(format);
        }
        match self.tile {
            None => text + self.file.text(),
            Some(tile) => text + &tile.constants() + TILE + &tile.unroll(self.file.text()),
        }
    }
}

impl Tile {
    fn constants(&self) -> String {
        let mut text = format!("const TILE_ROWS = {}u;\nconst SWIGLU = {};\n", self.rows, self.swiglu);
        if let Some(Matrix { size, subgroup }) = self.matrix {
            write!(text, "const FRAGMENT = {size}u;\nconst SUBGROUP = {subgroup}u;\n").expect("text grows");
            for (role, number) in [("A", "f16"), ("B", "f16"), ("C", "f32")] {
                writeln!(text, "alias Matrix{role} = coop_mat{size}x{size}<{number}, {role}>;").expect("text grows");
            }
        }
        text
    }

    /// Repeats each line that names a variable in braces for every value of it, with the value in its place.
    fn unroll(&self, text: &str) -> String {
        let ranges = match self.matrix {
            None => [("{r}", self.rows / 8), ("{x}", self.rows.div_ceil(32)), ("{s}", 1), ("{e}", 1)],
            Some(Matrix { size, subgroup }) => [
                ("{r}", self.rows / size),
                ("{x}", (self.rows * 4).div_ceil(4 * subgroup)),
                ("{s}", SLOTS / size / 4),
                ("{e}", SLOTS * 4 / (4 * subgroup)),
            ],
        };
        let code = |line: &&str| !line.trim_start().starts_with("//");
        let mut lines: Vec<String> = text.lines().filter(code).map(String::from).collect();
        for (name, count) in ranges {
            let repeat = |line: String| match line.contains(name) {
                true => (0..count).map(|value| line.replace(name, &value.to_string())).collect(),
                false => vec![line],
            };
            lines = lines.into_iter().flat_map(repeat).collect();
        }
        lines.join("\n")
    }
}

/// What reads weights of a format: what the sections of decode.wgsl share, and the one that names it.
fn decoder(format: Format) -> String {
    let mut text = codebooks::constants();
    for format in Format::ALL.iter().filter(|format| format.is_weight()) {
        writeln!(text, "const FORMAT_{} = {}u;", format.name(), format.ggml_id()).expect("text grows");
    }
    write!(
        text,
        "const WEIGHT_FORMAT = FORMAT_{};\nconst WEIGHT_BLOCK = {}u;\nconst WEIGHT_BYTES = {}u;\n",
        format.name(),
        format.block_len(),
        format.block_bytes()
    )
    .expect("text grows");
    let mut sections = DECODE.split("//= ");
    text += sections.next().unwrap_or_default();
    let named =
        |section: &&str| section.lines().next().is_some_and(|names| names.split(' ').any(|name| name == format.name()));
    if let Some(section) = sections.find(named) {
        text.push_str("// ");
        text += section;
    }
    text
}
