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
    /// Weight rows of a workgroup.
    pub slots: u32,
    /// Half of them belong to a second weight.
    pub swiglu: bool,
    /// What the product by matrices has beside that.
    pub matrices: Option<Matrices>,
}

/// A cooperative matrix of f16 factors and f32 sums, and what bounds a workgroup that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Rows, columns and depth: 8 or 16.
    pub size: u32,
    /// Threads that share one.
    pub subgroup: u32,
    /// Bytes of shared memory that a workgroup can have.
    pub shared: u32,
}

/// How a workgroup is made of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrices {
    /// What it is made of.
    pub matrix: Matrix,
    /// Columns of k at a time.
    pub depth: u32,
}

/// Weight rows of a workgroup of the portable product.
const SLOTS: u32 = 64;

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

/// Cooperative matrices that kernels are translated for, as tests see to: Apple's, a software driver's, NVIDIA's, AMD's.
pub const MATRICES: [Matrix; 4] = [
    Matrix { size: 8, subgroup: 32, shared: 32 << 10 },
    Matrix { size: 8, subgroup: 8, shared: 32 << 10 },
    Matrix { size: 16, subgroup: 32, shared: 48 << 10 },
    Matrix { size: 16, subgroup: 64, shared: 64 << 10 },
];

/// Shared memory that is enough for the product by matrices, whatever the format.
pub const LEAST_SHARED: u32 = 31 << 10;

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
        let file = if tile.matrices.is_some() { File::GemmCoop } else { File::Gemm };
        Self { format: Some(format), tile: Some(tile), ..Self::plain(file, "gemm") }
    }

    /// Every kernel that a device may ask for.
    pub fn all() -> Vec<Kernel> {
        let plain =
            PLAIN.iter().flat_map(|&(file, entries)| entries.iter().map(move |&entry| Kernel::plain(file, entry)));
        let formats = || Format::ALL.iter().copied().filter(|format| format.is_weight());
        let embeds = formats().map(Kernel::embed).chain(Kernel::CHECKS);
        let tiles = |format, matrix| {
            let tile = move |rows, swiglu| Kernel::gemm(format, Tile::new(format, rows, swiglu, matrix));
            TILE_ROWS.iter().flat_map(move |&rows| [tile(rows, false), tile(rows, true)])
        };
        let products = formats().flat_map(move |format| {
            let matrices = MATRICES.iter().copied().map(Some).filter(move |_| has_coop(format));
            std::iter::once(None).chain(matrices).flat_map(move |matrix| tiles(format, matrix))
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
            text += &decoder(format, self.file == File::GemmCoop);
        }
        match self.tile {
            None => text + self.file.text(),
            Some(tile) => {
                let format = self.format.expect("a product reads weights");
                text + &tile.constants(format) + TILE + &tile.unroll(format, self.file.text())
            }
        }
    }
}

impl Tile {
    /// The tile of a height for products with weights of a format; by matrices, the largest that shared memory holds.
    pub fn new(format: Format, rows: u32, swiglu: bool, matrix: Option<Matrix>) -> Self {
        let Some(matrix) = matrix else {
            return Self { rows, slots: SLOTS, swiglu, matrices: None };
        };
        let tile = |slots| Self { rows, slots, swiglu, matrices: Some(Matrices { matrix, depth: 32 }) };
        [128, 64].map(tile).into_iter().find(|tile| tile.shared_bytes(format) <= matrix.shared).unwrap_or(tile(64))
    }

    /// Columns of the output that a workgroup makes.
    pub fn columns(&self) -> u32 {
        if self.swiglu { self.slots / 2 } else { self.slots }
    }

    /// Subgroups that share a workgroup's rows and its columns.
    fn warps(&self, matrix: Matrix) -> [u32; 2] {
        let rows = (self.rows / matrix.size).min(2);
        [rows, (self.slots / matrix.size).min(8 / rows)]
    }

    /// Columns of k whose weights are fetched together: whole blocks.
    fn chunk(format: Format, depth: u32) -> u32 {
        depth.max(format.block_len() as u32)
    }

    /// Bytes of a row's chunk.
    fn chunk_bytes(format: Format, depth: u32) -> u32 {
        Self::chunk(format, depth) / format.block_len() as u32 * format.block_bytes() as u32
    }

    /// Bytes of shared memory that gemm_coop.wgsl declares; none for the portable product.
    pub fn shared_bytes(&self, format: Format) -> u32 {
        let Some(Matrices { matrix, depth }) = self.matrices else { return 0 };
        let [rows, columns] = self.warps(matrix);
        let tiles = (self.rows + self.slots) * (depth + 8) * 2;
        let raw_words = (Self::chunk_bytes(format, depth) + 6) / 4;
        let raw = self.slots * ((raw_words + 1) | 1) * 4;
        let products = rows * columns * matrix.size * matrix.size * 4;
        let tables = match format {
            Format::IQ2_XS => 512 * 16 + 16 * 8,
            Format::IQ4_NL => 256 * 4,
            _ => 0,
        };
        let rest = 4 * self.slots + 8 * self.rows + 12;
        tiles + raw + products + tables + rest
    }

    fn constants(&self, format: Format) -> String {
        let (rows, slots) = (self.rows, self.slots);
        let mut text =
            format!("const TILE_ROWS = {rows}u;\nconst SLOTS = {slots}u;\nconst SWIGLU = {};\n", self.swiglu);
        if let Some(Matrices { matrix, depth }) = self.matrices {
            let Matrix { size, subgroup, .. } = matrix;
            let [warp_rows, warp_columns] = self.warps(matrix);
            let unit = if scalar_tiles(matrix) { "f16" } else { "vec4<f16>" };
            for (name, value) in [
                ("FRAGMENT", size),
                ("SUBGROUP", subgroup),
                ("DEPTH", depth),
                ("WARP_ROWS", warp_rows),
                ("WARP_COLUMNS", warp_columns),
                ("CHUNK", Self::chunk(format, depth)),
                ("CHUNK_BYTES", Self::chunk_bytes(format, depth)),
                ("UNIT", if scalar_tiles(matrix) { 1 } else { 4 }),
            ] {
                writeln!(text, "const {name} = {value}u;").expect("text grows");
            }
            writeln!(text, "alias Unit = {unit};").expect("text grows");
            for (role, number) in [("A", "f16"), ("B", "f16"), ("C", "f32")] {
                writeln!(text, "alias Matrix{role} = coop_mat{size}x{size}<{number}, {role}>;").expect("text grows");
            }
        }
        text
    }

    /// Repeats each line that names a variable in braces for every value of it, with the value in its place.
    fn unroll(&self, format: Format, text: &str) -> String {
        let Some(Matrices { matrix, depth }) = self.matrices else {
            return unroll(text, &[("{r}", self.rows / 8), ("{x}", self.rows.div_ceil(32))]);
        };
        let [warp_rows, warp_columns] = self.warps(matrix);
        let threads = warp_rows * warp_columns * matrix.subgroup;
        let words = self.columns() * ((Self::chunk_bytes(format, depth) + 6) / 4);
        let strips = self.slots / matrix.size / warp_columns;
        let each_strip = |inner: &str| (0..strips).map(|s| inner.replace("{s}", &s.to_string())).collect::<String>();
        let mut pieces = text.split("[[");
        let mut within = String::from(pieces.next().unwrap_or_default());
        for (inner, after) in pieces.filter_map(|piece| piece.split_once("]]")) {
            within += &(each_strip(inner) + after);
        }
        let scalar = scalar_tiles(matrix);
        let ranges = [
            ("{r}", self.rows / matrix.size / warp_rows),
            ("{s}", strips),
            ("{x}", (self.rows * depth / 8).div_ceil(threads)),
            ("{h}", words.div_ceil(threads)),
            ("{u}", if self.swiglu { words.div_ceil(threads) } else { 0 }),
            ("{v}", if scalar { 0 } else { 1 }),
            ("{f}", if scalar { 4 } else { 0 }),
        ];
        unroll(&within, &ranges)
    }
}

/// Metal loads its matrices, which are 8 x 8, from arrays of numbers; others are faster from vectors.
fn scalar_tiles(matrix: Matrix) -> bool {
    matrix.size == 8
}

fn unroll(text: &str, ranges: &[(&str, u32)]) -> String {
    let code = |line: &&str| !line.trim_start().starts_with("//");
    let mut lines: Vec<String> = text.lines().filter(code).map(String::from).collect();
    for (name, count) in ranges {
        let repeat = |line: String| match line.contains(name) {
            true => (0..*count).map(|value| line.replace(name, &value.to_string())).collect(),
            false => vec![line],
        };
        lines = lines.into_iter().flat_map(repeat).collect();
    }
    lines.join("\n")
}

/// What reads weights of a format: what the sections of decode.wgsl share, and those that name it.
fn decoder(format: Format, halves: bool) -> String {
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
    let sections: Vec<Section> = sections.map(|text| Section { text, names: names(text) }).collect();
    let [exact, rounded]: [Vec<&Section>; 2] = [false, true]
        .map(|halves| sections.iter().filter(|section| (section.names[0] == "HALVES") == halves).collect());
    let named =
        |among: &[&Section]| among.iter().find(|section| section.names.contains(&format.name())).map(|s| s.text);
    let mut chosen = vec![named(&exact).expect("every format of weights has a section")];
    if halves {
        text += "struct EightHalves {\n    a: vec4<f16>,\n    b: vec4<f16>,\n}\n";
        let any = rounded.last().map(|section| section.text);
        chosen.extend(named(&rounded).or(any));
    }
    for section in chosen {
        text.push_str("// ");
        text += section;
    }
    text
}

/// A section of decode.wgsl, which begins with the formats that it serves.
struct Section {
    text: &'static str,
    names: Vec<&'static str>,
}

fn names(section: &'static str) -> Vec<&'static str> {
    section.lines().next().unwrap_or_default().split(' ').collect()
}
