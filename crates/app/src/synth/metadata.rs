//! The keys of a synthetic file, as converters write them.

use argon_gguf::{Format, Writer};

use super::shape::{Attention, Ngrams, Shape};
use super::types::{Role, Types};
use super::vocabulary::Tokens;

/// Adds every key of `shape` to `writer`.
pub fn write<'a>(writer: Writer<'a>, shape: &Shape, types: &Types, tokens: &Tokens, seed: u64) -> Writer<'a> {
    let mut writer = writer
        .metadata("general.architecture", shape.architecture)
        .metadata("general.type", "model")
        .metadata("general.name", format!("{} (random weights)", shape.name))
        .metadata("general.description", format!("Random weights, seed {seed}: for measuring, not for talking."))
        .metadata("general.quantization_version", 2u32);
    if let Some(file_type) = file_type(types.asked(Role::GateUp)) {
        writer = writer.metadata("general.file_type", file_type);
    }
    let mut keys = Keys { writer, architecture: shape.architecture };
    keys.add("block_count", shape.layers);
    keys.add("context_length", shape.context);
    keys.add("embedding_length", shape.hidden);
    keys.add("vocab_size", shape.vocabulary.size);
    keys.value("attention.layer_norm_rms_epsilon", shape.eps);
    keys.attention(&shape.attention, shape);
    keys.experts(shape);
    if let Some(delta_net) = &shape.delta_net {
        keys.add("ssm.conv_kernel", delta_net.taps);
        keys.add("ssm.state_size", delta_net.dim);
        keys.add("ssm.group_count", delta_net.key_heads);
        keys.add("ssm.time_step_rank", delta_net.value_heads);
        keys.add("ssm.inner_size", delta_net.value_width());
        keys.add("full_attention_interval", shape.attention.interval);
        let recurrent: Vec<bool> = (0..shape.layers).map(|layer| !shape.is_attention(layer)).collect();
        keys.value("attention.recurrent_layers", &recurrent);
    }
    if let Some(streams) = &shape.streams {
        keys.add("hyper_connection.count", streams.count);
        keys.add("hyper_connection.low_rank", streams.rank);
    }
    if let Some(ngrams) = &shape.ngrams {
        keys.ngrams(ngrams, tokens.end_of_text, seed);
    }
    tokens.write(keys.writer)
}

/// What llama.cpp's tables call a file with most of its weights in this format; only its tables.
fn file_type(format: Format) -> Option<u32> {
    Some(match format {
        Format::F32 => 0,
        Format::F16 => 1,
        Format::Q4_0 => 2,
        Format::Q4_1 => 3,
        Format::Q8_0 => 7,
        Format::Q5_0 => 8,
        Format::Q5_1 => 9,
        Format::Q2_K => 10,
        Format::Q3_K => 12,
        Format::Q4_K => 15,
        Format::Q5_K => 17,
        Format::Q6_K => 18,
        Format::IQ2_XXS => 19,
        Format::IQ2_XS => 20,
        Format::IQ3_XXS => 23,
        Format::IQ1_S => 24,
        Format::IQ4_NL => 25,
        Format::IQ3_S => 26,
        Format::IQ2_S => 28,
        Format::IQ4_XS => 30,
        Format::IQ1_M => 31,
        Format::BF16 => 32,
        Format::TQ1_0 => 36,
        Format::TQ2_0 => 37,
        Format::MXFP4 => 38,
        Format::Q1_0 => 40,
        Format::Q2_0 => 41,
        _ => return None,
    })
}

/// A writer that knows the prefix of its keys.
struct Keys<'a> {
    writer: Writer<'a>,
    architecture: &'static str,
}

impl Keys<'_> {
    fn value(&mut self, key: &str, value: impl argon_gguf::ToMetadata) {
        let writer = std::mem::take(&mut self.writer);
        self.writer = writer.metadata(format!("{}.{key}", self.architecture), value);
    }

    fn add(&mut self, key: &str, count: usize) {
        self.value(key, count as u32); // lengths of a shape, all far below
    }

    fn attention(&mut self, a: &Attention, shape: &Shape) {
        self.add("attention.head_count", a.heads);
        self.add("attention.head_count_kv", a.kv_heads);
        self.add("attention.key_length", a.dim);
        self.add("attention.value_length", a.dim);
        self.add("rope.dimension_count", a.rope_dims);
        self.value("rope.freq_base", a.rope_base);
        if let Some(sections) = &a.rope_sections {
            self.value("rope.dimension_sections", &sections[..]);
        }
        if let Some(indexer) = &a.indexer {
            self.add("attention.indexer.head_count", indexer.heads);
            self.add("attention.indexer.key_length", indexer.dim);
            self.add("attention.indexer.top_k", indexer.budget);
            let ratio = |layer| if shape.is_attention(layer) { indexer.ratio as i32 } else { 0 };
            let ratios: Vec<i32> = (0..shape.layers).map(ratio).collect();
            self.value("attention.compress_ratios", &ratios);
        }
    }

    fn experts(&mut self, shape: &Shape) {
        let e = &shape.experts;
        self.add("expert_count", e.count);
        self.add("expert_used_count", e.used);
        if let Some(dense) = e.dense {
            self.add("feed_forward_length", dense);
        }
        self.add("expert_feed_forward_length", e.width);
        if let Some(shared) = e.shared {
            self.add("expert_shared_feed_forward_length", shared);
        }
    }

    /// Each hash has a prime number of rows, a prime of its own, so that no two of them agree.
    fn ngrams(&mut self, n: &Ngrams, end_of_text: u32, seed: u64) {
        let sizes = primes_up_to(n.rows / n.heads(), n.heads());
        let firsts: Vec<u64> =
            sizes.iter().scan(0, |first, size| Some(std::mem::replace(first, *first + size))).collect();
        let mut rng = super::weights::rng(seed, "ple.layer_multipliers");
        // Odd, and so small that a multiple by an id does not wrap.
        let multiplier = || rand_pcg::rand_core::Rng::next_u64(&mut rng) >> 19 | 1;
        let multipliers: Vec<u64> = std::iter::repeat_with(multiplier).take(n.longest).collect();
        self.value("ple.layers", &[n.layer as i32][..]);
        self.add("ple.ngram_size", n.longest);
        self.add("ple.heads_per_ngram", n.heads_per_length);
        self.add("ple.conv_kernel", n.taps);
        self.value("ple.eos_token_id", end_of_text);
        self.add("embedding_length_per_layer_input", n.dim);
        self.value("ple.layer_multipliers", &multipliers);
        self.value("ple.head_offsets", &firsts);
        self.value("ple.head_vocab_sizes", &sizes);
    }
}

/// The `count` largest primes that are no larger than `most`, or fewer where there are not so many; ascending.
pub fn primes_up_to(most: usize, count: usize) -> Vec<u64> {
    let is_prime = |n: &u64| *n >= 2 && (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    let mut primes: Vec<u64> = (2..=most as u64).rev().filter(is_prime).take(count).collect();
    primes.reverse();
    primes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_primes() {
        assert_eq!(primes_up_to(20, 3), [13, 17, 19]);
        assert_eq!(primes_up_to(5, 9), [2, 3, 5]);
        assert!(primes_up_to(1, 1).is_empty());
        assert_eq!(primes_up_to(20_000_096, 2), [20_000_081, 20_000_093]);
    }
}
