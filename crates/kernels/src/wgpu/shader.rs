//! The text of each kernel: what is compiled together, and the list of all kernels.

use std::fmt::Write;

use argon_gguf::Format;
use argon_plan::meta;

use super::codebooks;
use super::tier::Products;
use super::tune::{FEW, MATRICES, Matrices, Matrix, PARTS, TILE_ROWS, Tile, Way};

const PRELUDE: &str = include_str!("shaders/prelude.wgsl");
const REDUCE: &str = include_str!("shaders/reduce.wgsl");
/// On any adapter, and by subgroups.
const ORDER: [&str; 2] = [include_str!("shaders/order.wgsl"), include_str!("shaders/order_subgroups.wgsl")];
const RANK: [&str; 2] = [include_str!("shaders/rank.wgsl"), include_str!("shaders/rank_subgroups.wgsl")];
/// f32 and f16.
const STAGED: [&str; 2] = [include_str!("shaders/staged_f32.wgsl"), include_str!("shaders/staged_f16.wgsl")];
const DECODE: &str = include_str!("shaders/decode.wgsl");
const SUBGROUP: &str = include_str!("shaders/subgroup.wgsl");
const TILE: &str = include_str!("shaders/tile.wgsl");
/// Of products that decode weights where they lie.
const WEIGHTS: &str = include_str!("shaders/weights.wgsl");

/// The words of a plan's `meta`.
const META: [(&str, usize); meta::WORDS] = [
    ("TILES", meta::TILES),
    ("ROWS", meta::ROWS),
    ("KEPT", meta::KEPT),
    ("ACTIVE", meta::ACTIVE),
    ("LARGEST", meta::LARGEST),
    ("TILE", meta::TILE),
    ("BLOCKS", meta::BLOCKS),
    ("ENTRIES", meta::ENTRIES),
    ("SKIPPED", meta::SKIPPED),
    ("REJECTED", meta::REJECTED),
    ("RESERVED", meta::RESERVED),
];

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
    Gather,
    Gemm,
    GemmCoop,
    GemmFew,
    Hyper,
    Norm,
    Plan,
    Ple,
    Rope,
    Route,
    SelectBlocks,
    SubgroupCheck,
    Swiglu,
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
            File::Gather => include_str!("shaders/gather.wgsl"),
            File::Gemm => include_str!("shaders/gemm.wgsl"),
            File::GemmCoop => include_str!("shaders/gemm_coop.wgsl"),
            File::GemmFew => include_str!("shaders/gemm_few.wgsl"),
            File::Hyper => include_str!("shaders/hyper.wgsl"),
            File::Norm => include_str!("shaders/norm.wgsl"),
            File::Plan => include_str!("shaders/plan.wgsl"),
            File::Ple => include_str!("shaders/ple.wgsl"),
            File::Rope => include_str!("shaders/rope.wgsl"),
            File::Route => include_str!("shaders/route.wgsl"),
            File::SelectBlocks => include_str!("shaders/select_blocks.wgsl"),
            File::SubgroupCheck => include_str!("shaders/subgroup_check.wgsl"),
            File::Swiglu => include_str!("shaders/swiglu.wgsl"),
        }
    }

    /// The names of what the kernels take besides views and the number of their workgroups.
    pub(super) fn parameters(self) -> Vec<&'static str> {
        let text = if matches!(self, File::Gemm | File::GemmCoop | File::GemmFew) { TILE } else { self.text() };
        let members = text.split("struct Params {").nth(1).and_then(|rest| rest.split('}').next()).unwrap_or_default();
        let names = members.lines().filter_map(|line| line.trim().split_once(':')).map(|(name, _)| name);
        names.skip_while(|&name| name != "count").skip(1).collect()
    }

    /// Whether its kernels sum over a group of 256 threads.
    fn reduces(self) -> bool {
        matches!(self, File::Act | File::Gather | File::Norm | File::Ple | File::Route)
    }

    /// Texts with one choice for any adapter, and one for subgroups, that its kernels begin with.
    fn choices(self) -> &'static [[&'static str; 2]] {
        match self {
            File::Plan => &[ORDER, RANK],
            File::SelectBlocks => &[ORDER],
            _ => &[],
        }
    }
}

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
    /// Whether threads come together by subgroup operations.
    pub subgroups: bool,
}

/// The entry points that depend on nothing.
const PLAIN: &[(File, &[&str])] = &[
    (File::Act, &["act_f16"]),
    (File::Attention, &["attention"]),
    (File::Combine, &["combine"]),
    (File::Conv, &["conv", "conv_state"]),
    (File::Copy, &["fill", "copy", "add", "fill_half", "copy_half", "scatter_half"]),
    (File::DeltaNet, &["delta_norms", "delta_net"]),
    (File::Gather, &["gather", "gather_h"]),
    (File::Hyper, &["hyper_write", "gate_mean"]),
    (File::Norm, &["rms_norm"]),
    (File::Plan, &["plan_hist", "plan_sums", "plan_scan", "plan_rows", "plan_place", "plan_alone"]),
    (File::Ple, &["ple_gate"]),
    (File::Rope, &["rope"]),
    (File::Route, &["route"]),
    (File::SelectBlocks, &["mean_pool", "block_scores", "select_blocks"]),
    (File::SubgroupCheck, &["subgroup_check"]),
    (File::Swiglu, &["swiglu"]),
];

/// Whether weights of a format are multiplied as f16: formats of the range of f32 are not.
pub fn has_half(format: Format) -> bool {
    !matches!(format, Format::F32 | Format::BF16 | Format::MXFP4)
}

impl Kernel {
    /// A kernel that depends on no format.
    pub const fn plain(file: File, entry: &'static str) -> Self {
        Self { file, entry, format: None, tile: None, subgroups: false }
    }

    /// The same by subgroups, where `wanted` and there are two ways.
    pub fn by_subgroups(self, wanted: bool) -> Self {
        Self { subgroups: self.subgroups || (wanted && !self.file.choices().is_empty()), ..self }
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
        let (file, subgroups) = match tile.way {
            Way::Matrices(_) => (File::GemmCoop, false),
            Way::Few(_) => (File::GemmFew, true),
            Way::F32Tiles | Way::F16Tiles => (File::Gemm, false),
        };
        Self { format: Some(format), tile: Some(tile), subgroups, ..Self::plain(file, "gemm") }
    }

    /// Every kernel that a device may ask for.
    pub fn all() -> Vec<Kernel> {
        let plain =
            PLAIN.iter().flat_map(|&(file, entries)| entries.iter().map(move |&entry| Kernel::plain(file, entry)));
        let formats = || Format::ALL.iter().copied().filter(|format| format.is_weight());
        let by_subgroups = |kernel: Kernel| Some(kernel.by_subgroups(true)).filter(|kernel| kernel.subgroups);
        let plain = plain.flat_map(|kernel| [kernel].into_iter().chain(by_subgroups(kernel)));
        let embeds = formats().map(Kernel::embed).chain(Kernel::CHECKS);
        let tiles = |format, products| {
            let tile = move |rows, swiglu| Kernel::gemm(format, Tile::new(products, format, rows, swiglu));
            TILE_ROWS.iter().flat_map(move |&rows| [tile(rows, false), tile(rows, true)])
        };
        let products = formats().flat_map(move |format| {
            let halves = MATRICES.iter().map(|&matrix| Products::Cooperative(matrix)).chain([Products::F16Tiles]);
            let halves = halves.filter(move |_| has_half(format));
            halves.chain([Products::F32Tiles]).flat_map(move |products| tiles(format, products))
        });
        let few = formats().flat_map(|format| {
            FEW.into_iter()
                .flat_map(move |rows| [false, true].map(|swiglu| Kernel::gemm(format, Tile::few(rows, swiglu))))
        });
        plain.chain(embeds).chain(products).chain(few).collect()
    }

    /// The text to compile.
    pub fn source(&self) -> String {
        let mut text = String::new();
        let halves = self.tile.is_some_and(|tile| tile.half_depth().is_some());
        if halves {
            text += "enable f16;\n";
        }
        if self.file == File::GemmCoop {
            text += "enable wgpu_cooperative_matrix;\n";
        }
        text += PRELUDE;
        for (name, word) in META {
            writeln!(text, "const META_{name} = {word}u;").expect("text grows");
        }
        if self.file.reduces() {
            text += REDUCE;
        }
        if self.subgroups {
            text += SUBGROUP;
        }
        text.extend(self.file.choices().iter().map(|texts| texts[usize::from(self.subgroups)]));
        if let Some(format) = self.format {
            text += &decoder(format, self.file == File::GemmCoop);
        }
        match self.tile {
            None => text + self.file.text(),
            Some(tile) => {
                let format = self.format.expect("a product reads weights");
                if self.file == File::Gemm {
                    text += STAGED[usize::from(halves)];
                }
                if self.file != File::GemmCoop {
                    text += WEIGHTS;
                }
                text + &tile.constants(format) + TILE + &tile.unroll(format, self.file.text())
            }
        }
    }
}

impl Tile {
    fn constants(&self, format: Format) -> String {
        let Self { rows, slots, swiglu, .. } = *self;
        let mut text = format!("const TILE_ROWS = {rows}u;\nconst SLOTS = {slots}u;\nconst SWIGLU = {swiglu};\n");
        if let Way::Few(rows) = self.way {
            writeln!(text, "const ROWS = {rows}u;").expect("text grows");
        }
        let Some(matrices) = self.matrices() else { return text };
        let Matrix { size, subgroup, .. } = matrices.matrix;
        let chunk_bytes = matrices.chunk_bytes(format);
        for (name, value) in [
            ("FRAGMENT", size),
            ("SUBGROUP", subgroup),
            ("DEPTH", matrices.depth()),
            ("PART", matrices.part),
            ("STRIP", matrices.strip),
            ("CHUNK", matrices.chunk),
            ("CHUNK_BYTES", chunk_bytes),
            ("UNIT", if scalar_tiles(&matrices) { 1 } else { 4 }),
        ] {
            writeln!(text, "const {name} = {value}u;").expect("text grows");
        }
        let unit = if scalar_tiles(&matrices) { "f16" } else { "vec4<f16>" };
        writeln!(text, "alias Unit = {unit};").expect("text grows");
        for (role, number) in [("A", "f16"), ("B", "f16"), ("C", "f32")] {
            writeln!(text, "alias Matrix{role} = coop_mat{size}x{size}<{number}, {role}>;").expect("text grows");
        }
        text
    }

    /// Writes out what WGSL cannot be asked to repeat. A line that names a variable in braces is there once for each of its
    /// values, with the value in its place:
    ///
    /// * `{r}`, `{s}`: fragments of rows, and of columns, of a subgroup; `{x}`: eights of the input of a thread
    /// * `{d}`: parts of a step of k; `{i}`: fragments of a part
    /// * `{e}`: sixteen weights of a thread; `{h}`, `{u}`: its words of the first and the second weight
    /// * `{v}` (never or once) and `{f}` (never or four times): where tiles are made of vectors, and of single numbers
    ///
    /// The block behind a line `// for each {d}` is there once for each part. So a subgroup with two fragments of columns has,
    /// of `let b_{s} = tile[{s}u];`, the lines `let b_0 = tile[0u];` and `let b_1 = tile[1u];`.
    fn unroll(&self, format: Format, text: &str) -> String {
        let matrices = match self.way {
            Way::Matrices(matrices) => matrices,
            Way::Few(rows) => return unroll(text, &[("{r}", rows)]),
            // A step is twice as long in f16.
            Way::F16Tiles => {
                return unroll(text, &[("{r}", self.rows / 8), ("{x}", self.rows.div_ceil(16)), ("{e}", 2)]);
            }
            Way::F32Tiles => {
                return unroll(text, &[("{r}", self.rows / 8), ("{x}", self.rows.div_ceil(32)), ("{e}", 1)]);
            }
        };
        let Matrix { size, subgroup, .. } = matrices.matrix;
        let rows = if self.swiglu { matrices.strip / 2 } else { matrices.strip };
        let words = (rows * matrices.raw_words(format)).div_ceil(subgroup);
        let scalar = scalar_tiles(&matrices);
        let ranges = [
            ("{r}", self.rows / size),
            ("{s}", matrices.strip / size),
            ("{d}", PARTS),
            ("{i}", matrices.part / size),
            ("{e}", (matrices.strip * matrices.part / 16).div_ceil(subgroup)),
            ("{h}", words),
            ("{u}", if self.swiglu { words } else { 0 }),
            ("{v}", if scalar { 0 } else { 1 }),
            ("{f}", if scalar { 4 } else { 0 }),
        ];
        unroll(&repeat_block(text, PARTS), &ranges)
    }
}

/// Metal loads its matrices, which are 8 x 8, from arrays of numbers; others are faster from vectors.
fn scalar_tiles(matrices: &Matrices) -> bool {
    matrices.matrix.size == 8
}

/// The block behind the line `// for each {d}`, `count` times.
fn repeat_block(text: &str, count: u32) -> String {
    let Some((before, (block, after))) = text
        .split_once("// for each {d}\n")
        .and_then(|(before, rest)| Some((before, rest.split_once(&format!("\n{}}}\n", indent(rest)))?)))
    else {
        return text.into();
    };
    let blocks: String = (0..count).map(|d| block.replace("{d}", &d.to_string()) + "\n}\n").collect();
    [before, &blocks, after].concat()
}

/// The blanks that a text begins with.
fn indent(text: &str) -> &str {
    &text[..text.len() - text.trim_start().len()]
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
        text += "struct Sixteen {\n    first: EightHalves,\n    second: EightHalves,\n}\n";
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
