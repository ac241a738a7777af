//! The table of formats.

use argon_gguf::Format;
use std::collections::HashSet;

#[test]
fn ids_and_names_are_unique_and_lead_back() {
    let mut names = HashSet::new();
    for &format in Format::ALL {
        assert_eq!(Format::from_ggml(format.ggml_id()), Some(format));
        assert_eq!(Format::from_name(&format.name().to_lowercase()), Some(format));
        assert_eq!(format.to_string(), format.name());
        assert!(names.insert(format.name()));
        assert!(format.block_len() > 0 && format.block_bytes() > 0);
    }
    assert!(Format::ALL.is_sorted_by_key(|format| format.ggml_id()));
    assert_eq!(Format::ALL.len(), 33);
}

#[test]
fn ids_without_a_format_have_none() {
    let without = [4, 5, 9, 15, 31, 32, 33, 36, 37, 38, 43, u32::MAX];
    assert!(without.iter().all(|&id| Format::from_ggml(id).is_none()));
    assert_eq!(Format::from_name("Q9_9"), None);
}

#[test]
fn rows_are_whole_blocks() {
    assert_eq!(Format::F32.row_bytes(3), Some(12));
    assert_eq!(Format::IQ4_NL.row_bytes(640), Some(360));
    assert_eq!(Format::IQ2_XS.row_bytes(2560), Some(740));
    assert_eq!(Format::IQ2_XS.row_bytes(640), None);
    assert_eq!(Format::Q8_0.row_bytes(0), Some(0));
    assert_eq!(Format::F64.row_bytes(usize::MAX), None);
    assert_eq!(Format::Q8_0.row_bytes(usize::MAX & !31), None);
}

#[test]
fn integers_are_no_weights() {
    let others: Vec<Format> = Format::ALL.iter().copied().filter(|format| !format.is_weight()).collect();
    assert_eq!(others, [Format::I8, Format::I16, Format::I32, Format::I64, Format::F64]);
}
