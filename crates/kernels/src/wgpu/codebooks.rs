//! The constant tables of `argon_gguf`, laid out as one buffer of words that every decoder reads.

use argon_gguf::quant::tables;

/// Name of a table's first word in WGSL, and its words.
type Table = (&'static str, Vec<u32>);

fn integers(values: &[i8]) -> Vec<u32> {
    values.iter().map(|&value| i32::from(value) as u32).collect()
}

fn pairs(entries: &[u64]) -> Vec<u32> {
    entries.iter().flat_map(|&entry| [entry as u32, (entry >> 32) as u32]).collect()
}

fn all() -> [Table; 8] {
    [
        ("TABLE_IQ4_NL", integers(&tables::IQ4_NL_VALUES)),
        ("TABLE_FP4", integers(&tables::FP4_VALUES)),
        ("TABLE_IQ2_XXS", pairs(&tables::IQ2XXS_GRID)),
        ("TABLE_IQ2_XS", pairs(&tables::IQ2XS_GRID)),
        ("TABLE_IQ2_S", pairs(&tables::IQ2S_GRID)),
        ("TABLE_IQ3_XXS", tables::IQ3XXS_GRID.to_vec()),
        ("TABLE_IQ3_S", tables::IQ3S_GRID.to_vec()),
        ("TABLE_IQ1_S", pairs(&tables::IQ1S_GRID)),
    ]
}

/// All words, table after table.
pub(super) fn words() -> Vec<u32> {
    all().into_iter().flat_map(|(_, words)| words).collect()
}

/// Where each table begins, as WGSL constants.
pub(super) fn constants() -> String {
    let mut first = 0;
    let mut text = String::new();
    for (name, words) in all() {
        text += &format!("const {name} = {first}u;\n");
        first += words.len();
    }
    text
}
