//! Compiles every kernel for every architecture that is supported, on a machine without a GPU:
//! `cargo run --release -p argon-kernels --example nvrtc_check DIRECTORY_OF_LIBNVRTC`.

use std::sync::Mutex;
use std::time::Instant;

use argon_gguf::Format;
use argon_kernels::cuda::jit::{Nvrtc, exact};
use argon_kernels::cuda::source::{FILES, Source, format_defines};
use argon_kernels::cuda::tune;

const CAPABILITIES: [u32; 5] = [80, 86, 89, 90, 120];

/// Files whose kernels are compiled for a configuration.
const CONFIGURED: [&str; 7] =
    ["attention.cu", "attention_f16.cu", "delta_net.cu", "embed.cu", "gemm.cu", "narrow.cu", "product.cu"];

fn main() {
    let directories: Vec<_> = std::env::args_os().skip(1).map(Into::into).collect();
    let nvrtc = Nvrtc::open(&directories).unwrap_or_else(|error| panic!("{error}"));
    let start = Instant::now();
    let work: Vec<_> = CAPABILITIES
        .into_iter()
        .flat_map(|c| sources(![86, 89].contains(&c)).into_iter().map(move |s| (c, s)))
        .collect();
    let total = work.len();
    let (work, failures) = (Mutex::new(work), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = work.lock().expect("no thread panics with the lock").pop();
                    let Some((capability, source)) = next else { return };
                    if let Err(error) = nvrtc.compile(&source, &exact(capability)) {
                        failures.lock().expect("no thread panics with the lock").push(format!("{capability}: {error}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no thread panics with the lock");
    failures.iter().take(10).for_each(|failure| eprintln!("{failure}"));
    println!("{total} kernels compiled with NVRTC {} in {} s", nvrtc.version(), start.elapsed().as_secs());
    assert!(failures.is_empty(), "{} kernels do not compile", failures.len());
}

/// Every file; those that are configured for every format (8.6 and 8.9, which take the code of 8.0, for a few), row map and
/// epilogue, and a few widths and tiles.
fn sources(every_format: bool) -> Vec<Source> {
    let plain = FILES.iter().map(|(file, _)| *file).filter(|file| !CONFIGURED.contains(file)).map(Source::plain);
    let mut all: Vec<Source> = plain.collect();
    for (width, v_width, rows) in [(128, 128, 32), (17, 5, 16)] {
        let defines = vec![("ATTENTION_WIDTH", width), ("ATTENTION_V_WIDTH", v_width), ("ATTENTION_ROWS", rows)];
        all.push(Source { file: "attention.cu", defines });
        all.push(Source { file: "delta_net.cu", defines: vec![("DELTA_WIDTH", width), ("DELTA_V_WIDTH", v_width)] });
    }
    for (width, by_query) in [(256, 0), (256, 1), (64, 0)] {
        let defines = vec![("ATTENTION_WIDTH", width), ("ATTENTION_V_WIDTH", width), ("ATTENTION_QUERY", by_query)];
        all.push(Source { file: "attention_f16.cu", defines });
    }
    let few = [Format::F32, Format::IQ2_XS, Format::IQ4_NL, Format::Q4_K, Format::MXFP4];
    let weights = Format::ALL.iter().copied().filter(|format| format.is_weight());
    for format in weights.filter(|format| every_format || few.contains(format)) {
        all.push(Source::of_format("embed.cu", format));
        all.push(product(format, 0, 0));
        all.push(narrow(format, 8, 0, 2));
        all.extend((format != Format::F32).then(|| gemm(format, 8, 0, 0, 2)));
    }
    for (map, end) in [0, 1, 2].into_iter().flat_map(|map| [0, 1, 2, 3].map(|end| (map, end))) {
        all.push(product(Format::IQ2_XS, map, end));
        all.push(gemm(Format::IQ2_XS, 8, map, end, 2));
    }
    for tokens in tune::TOKENS {
        all.push(gemm(Format::IQ4_NL, tokens, 2, 0, 2));
    }
    for (outputs, end) in [1, 4, 8].into_iter().flat_map(|outputs| [0, 1, 2].map(|end| (outputs, end))) {
        all.push(narrow(Format::F32, outputs, end, 16));
    }
    let mut split = gemm(Format::Q8_0, 8, 0, 0, 2);
    split.defines.push(("GEMM_SPLIT", 1));
    all.push(split);
    for format in [Format::Q4_K, Format::BF16] {
        all.push(gemm(format, 16, 0, 0, 16));
    }
    all
}

fn product(format: Format, map: u32, end: u32) -> Source {
    let mut source = Source::of_format("product.cu", format);
    source.defines.extend([("GEMM_MAP", map), ("GEMM_EPILOGUE", end), ("WEIGHT_ALIGN", 4)]);
    source
}

fn narrow(format: Format, outputs: u32, end: u32, align: u32) -> Source {
    let mut source = Source::of_format("narrow.cu", format);
    source.defines.extend([("NARROW_OUTPUTS", outputs), ("GEMM_EPILOGUE", end), ("WEIGHT_ALIGN", align)]);
    source
}

fn gemm(format: Format, tokens: u32, map: u32, end: u32, align: u32) -> Source {
    let mut defines = format_defines(format).to_vec();
    defines.extend([
        ("WEIGHT_ALIGN", align),
        ("GEMM_TOKENS", tokens),
        ("GEMM_CHUNK", if format.block_len() > 64 { 256 } else { 128 }),
        ("GEMM_STAGES", 2),
        ("GEMM_BLOCKS", 1),
        ("GEMM_GROUPS", 2),
        ("GEMM_RESIDENT", u32::from(tokens <= 16)),
        ("GEMM_TAIL", 1),
        ("GEMM_MAP", map),
        ("GEMM_EPILOGUE", end),
    ]);
    if end == 3 {
        defines.push(("GEMM_HALF_OUT", 1));
    }
    Source { file: "gemm.cu", defines }
}
