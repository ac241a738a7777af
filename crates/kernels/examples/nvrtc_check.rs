//! Compiles every kernel for every architecture that is supported, on a machine without a GPU:
//! `cargo run --release -p argon-kernels --example nvrtc_check DIRECTORY_OF_LIBNVRTC`.

use std::sync::Mutex;
use std::time::Instant;

use argon_gguf::Format;
use argon_kernels::cuda::host::{End, Map};
use argon_kernels::cuda::jit::{Nvrtc, exact};
use argon_kernels::cuda::source::{FILES, Source};
use argon_kernels::cuda::tune::{self, Tile};

const CAPABILITIES: [u32; 5] = [80, 86, 89, 90, 120];

/// Files whose kernels are compiled for a configuration.
const CONFIGURED: [&str; 9] = [
    "attention.cu",
    "attention_f16.cu",
    "conv.cu",
    "delta_chunks.cu",
    "delta_net.cu",
    "embed.cu",
    "gemm.cu",
    "narrow.cu",
    "product.cu",
];

fn main() {
    let directories: Vec<_> = std::env::args_os().skip(1).map(Into::into).collect();
    let nvrtc = Nvrtc::open(&directories).unwrap_or_else(|error| panic!("{error}"));
    let start = Instant::now();
    let work: Vec<_> = CAPABILITIES.into_iter().flat_map(|c| sources().into_iter().map(move |s| (c, s))).collect();
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

/// Every file; those that are configured for every format, row map and epilogue, and a few widths and tiles.
fn sources() -> Vec<Source> {
    let plain = FILES.iter().map(|(file, _)| *file).filter(|file| !CONFIGURED.contains(file)).map(Source::plain);
    let mut all: Vec<Source> = plain.collect();
    for (widths, rows) in [([128, 128], 32), ([17, 5], 16)] {
        all.push(Source::attention(widths, rows));
        all.push(Source::delta_net(widths));
        all.extend([1, 2].map(|stages| Source::delta_chunks(widths, stages)));
    }
    all.extend([1, 4, 9].map(Source::conv));
    for (width, by_query) in [(256, false), (256, true), (64, false)] {
        all.push(Source::attention_f16([width; 2], by_query));
    }
    for format in Format::weights() {
        all.push(Source::of_format("embed.cu", format));
        all.push(Source::product(format, 4, Map::Dense, End::Store));
        all.push(Source::narrow(format, 2, [8, 4], End::Store));
        all.extend((format != Format::F32).then(|| gemm(format, 8, Map::Dense, End::Store, 2)));
    }
    for map in [Map::Dense, Map::Gather, Map::Segments] {
        for end in [End::Store, End::Accumulate, End::Silu, End::SwiGlu] {
            all.push(Source::product(Format::IQ2_XS, 4, map, end));
            all.push(gemm(Format::IQ2_XS, 8, map, end, 2));
        }
    }
    for streams in [2, 4, 8, 16] {
        let means = |tokens| gemm(Format::BF16, tokens, Map::Dense, End::GateMean, 16);
        let product = Source::product(Format::BF16, 4, Map::Dense, End::GateMean);
        all.extend([8, 192].map(means).into_iter().chain([product]).map(|mut source| {
            source.defines.extend([("GEMM_STREAMS", streams), ("GEMM_BIAS", 1)]);
            source
        }));
    }
    for tokens in tune::TOKENS {
        all.push(gemm(Format::IQ4_NL, tokens, Map::Segments, End::Store, 2));
    }
    for tile in [[1, 8], [4, 8], [8, 4]] {
        all.extend([End::Store, End::Accumulate, End::Silu].map(|end| Source::narrow(Format::F32, 16, tile, end)));
    }
    for format in [Format::IQ2_XXS, Format::IQ2_XS, Format::IQ2_S] {
        let tile = Tile { tokens: 8, chunk: 256, stages: 2, blocks: 1, groups: 2, resident: true, copies: 32 };
        all.push(tiled(format, &tile, Map::Gather, End::SwiGlu, 2));
    }
    let mut split = gemm(Format::Q8_0, 8, Map::Dense, End::Store, 2);
    split.defines.push(("GEMM_SPLIT", 1));
    all.push(split);
    for format in [Format::Q4_K, Format::BF16] {
        all.push(gemm(format, 16, Map::Dense, End::Store, 16));
    }
    all
}

fn gemm(format: Format, tokens: u32, map: Map, end: End, align: u64) -> Source {
    let chunk = if format.block_len() > 64 { 256 } else { 128 };
    let tile = Tile { tokens, chunk, stages: 2, blocks: 1, groups: 2, resident: tokens <= 16, copies: 1 };
    tiled(format, &tile, map, end, align)
}

fn tiled(format: Format, tile: &Tile, map: Map, end: End, align: u64) -> Source {
    let mut source = Source::gemm(format, align, tile, map, end);
    source.defines.push(("GEMM_TAIL", 1));
    if end == End::SwiGlu {
        source.defines.push(("GEMM_HALF_OUT", 1));
    }
    source
}
