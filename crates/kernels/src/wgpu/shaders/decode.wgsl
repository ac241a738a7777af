// The one place that knows what the bytes of a weight format mean.
//
// A kernel that reads weights defines `weight_word(i)`, the i-th 32-bit word of its weight buffer, and `table_word(i)`, the
// i-th word of the codebooks (argon_gguf's tables, laid out by codebooks.rs). It then calls
//     weights_at(row, column)     the eight weights from `column`, a multiple of 8, of the row that begins at byte `row`
// Sections begin with "//=" and the formats that they serve; of those, only the one in use is part of a kernel. The constants
// FORMAT_*, WEIGHT_FORMAT, WEIGHT_BLOCK (weights), WEIGHT_BYTES (of a block) and TABLE_* (first words) are prepended.
// Operations and their order are those of argon_gguf::quant::decode.
//
// The product by matrices wants f16. It calls prepare(thread, threads) once, before a barrier, then
//     sixteen_at(row, column)     sixteen weights, rounded to f16 once: from `column`, a multiple of 16, of the chunk of a row
//                                 that begins at byte `row`, which is some blocks, or one of 256
// Formats that are decoded faster in f16 have a section of their own whose names begin with HALVES; others share the last one.

struct Eight {
    a: vec4<f32>,
    b: vec4<f32>,
}

// Which rows of a weight are in the bound buffer, and where: row n of expert e, number e * rows + n, is there if its number
// is in first..last, at byte `at + (e - expert) * expert_bytes + n * row_bytes` (modulo 2^32).
struct Part {
    first: u32,
    last: u32,
    at: u32,
    row_bytes: u32,
    expert: u32,
    expert_bytes: u32,
    rows: u32,
    reserved: u32,
}

fn byte_of(part: Part, expert: u32, row: u32) -> u32 {
    return part.at + (expert - part.expert) * part.expert_bytes + row * part.row_bytes;
}

// The word, half word or byte at a byte address. Two words are read even where one would do: a branch costs more.
fn word_at(byte: u32) -> u32 {
    let shift = (byte & 3u) * 8u;
    return (weight_word(byte >> 2u) >> shift) | ((weight_word((byte >> 2u) + 1u) << (31u - shift)) << 1u);
}

// An even address.
fn half_word_at(byte: u32) -> u32 {
    return (weight_word(byte >> 2u) >> ((byte & 2u) * 8u)) & 0xffffu;
}

fn byte_at(byte: u32) -> u32 {
    return (weight_word(byte >> 2u) >> ((byte & 3u) * 8u)) & 255u;
}

fn half_at(byte: u32) -> f32 {
    return half_to_float(half_word_at(byte));
}

const BYTES_OF_WORD = vec4<u32>(0u, 8u, 16u, 24u);

fn unsigned_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4(word) >> BYTES_OF_WORD) & vec4(255u));
}

fn signed_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>((bitcast<vec4<i32>>(vec4(word) << (vec4(24u) - BYTES_OF_WORD))) >> vec4(24u));
}

// Bits j of a byte for j in 0..8, from bit `first` on, as ones and zeros in the bytes of two words.
fn spread_bits(bits: u32) -> vec2<u32> {
    let low = bits & 15u;
    let high = (bits >> 4u) & 15u;
    return vec2((low * 0x204081u) & 0x01010101u, (high * 0x204081u) & 0x01010101u);
}

// Eight integers, one in a byte, times a scale, plus an offset that is added first.
fn scaled(bytes: vec2<u32>, offset: f32, scale: f32) -> Eight {
    return Eight((unsigned_bytes(bytes.x) + offset) * scale, (unsigned_bytes(bytes.y) + offset) * scale);
}

fn scaled_minus(bytes: vec2<u32>, scale: f32, least: f32) -> Eight {
    return Eight(unsigned_bytes(bytes.x) * scale - least, unsigned_bytes(bytes.y) * scale - least);
}

// Weights 8 * eight .. + 8 of 32 whose nibbles lie in 16 bytes: all the low ones, then all the high ones.
fn nibbles(bytes: u32, eight: u32) -> vec2<u32> {
    let begin = bytes + 8u * (eight & 1u);
    let shift = vec2((eight >> 1u) * 4u);
    return (vec2(word_at(begin), word_at(begin + 4u)) >> shift) & vec2(0x0f0f0f0fu);
}

// Magnitudes in the bytes of two words, with signs: bit j of `signs` makes weight j negative.
fn with_signs(magnitudes: vec2<u32>, signs: u32, scale: f32) -> Eight {
    let low = vec4<f32>((vec4(signs) >> vec4(0u, 1u, 2u, 3u)) & vec4(1u));
    let high = vec4<f32>((vec4(signs) >> vec4(4u, 5u, 6u, 7u)) & vec4(1u));
    return Eight(unsigned_bytes(magnitudes.x) * scale * (1.0 - 2.0 * low), unsigned_bytes(magnitudes.y) * scale * (1.0 - 2.0 * high));
}

// Seven stored sign bits; the eighth makes their number even.
fn even_signs(seven: u32) -> u32 {
    return seven | ((countOneBits(seven) & 1u) << 7u);
}

// Two words of a codebook of eight bytes an entry.
fn entry_of_eight(table: u32, index: u32) -> vec2<u32> {
    return vec2(table_word(table + 2u * index), table_word(table + 2u * index + 1u));
}

// Integers of a table of 16 signed bytes (four words) picked by eight nibbles, times a scale.
fn sixteen(table: u32, picks: vec2<u32>, scale: f32) -> Eight {
    return Eight(four_of_sixteen(table, picks.x) * scale, four_of_sixteen(table, picks.y) * scale);
}

fn four_of_sixteen(table: u32, picks: u32) -> vec4<f32> {
    let index = (vec4(picks) >> BYTES_OF_WORD) & vec4(15u);
    return vec4(
        f32(bitcast<i32>(table_word(table + index.x))),
        f32(bitcast<i32>(table_word(table + index.y))),
        f32(bitcast<i32>(table_word(table + index.z))),
        f32(bitcast<i32>(table_word(table + index.w))),
    );
}

// Nibble `i` of a byte string.
fn nibble_at(bytes: u32, i: u32) -> u32 {
    return (byte_at(bytes + i / 2u) >> (i % 2u * 4u)) & 15u;
}

fn weights_at(row: u32, column: u32) -> Eight {
    return decode(row + column / BLOCK * BLOCK_BYTES, column % BLOCK / 8u);
}

// Plain numbers are taken eight at a time.
const BLOCK = max(WEIGHT_BLOCK, 8u);
const BLOCK_BYTES = WEIGHT_BYTES * (BLOCK / WEIGHT_BLOCK);

// Every section: fn decode(block, eight), the weights 8 * eight .. + 8 of the block that begins at byte `block`.

//= F32
fn decode(block: u32, eight: u32) -> Eight {
    let i = block / 4u;
    return Eight(
        bitcast<vec4<f32>>(vec4(weight_word(i), weight_word(i + 1u), weight_word(i + 2u), weight_word(i + 3u))),
        bitcast<vec4<f32>>(vec4(weight_word(i + 4u), weight_word(i + 5u), weight_word(i + 6u), weight_word(i + 7u))),
    );
}

//= F16 BF16
fn number(half: u32) -> f32 {
    if WEIGHT_FORMAT == FORMAT_F16 {
        return half_to_float(half & 0xffffu);
    }
    return bitcast<f32>(half << 16u);
}

fn four(byte: u32) -> vec4<f32> {
    let low = word_at(byte);
    let high = word_at(byte + 4u);
    return vec4(number(low & 0xffffu), number(low >> 16u), number(high & 0xffffu), number(high >> 16u));
}

fn decode(block: u32, eight: u32) -> Eight {
    return Eight(four(block), four(block + 8u));
}

//= Q8_0
fn decode(block: u32, eight: u32) -> Eight {
    let d = half_at(block);
    let begin = block + 2u + 8u * eight;
    return Eight(signed_bytes(word_at(begin)) * d, signed_bytes(word_at(begin + 4u)) * d);
}

//= Q4_0
fn decode(block: u32, eight: u32) -> Eight {
    return scaled(nibbles(block + 2u, eight), -8.0, half_at(block));
}

//= Q4_1
fn decode(block: u32, eight: u32) -> Eight {
    return scaled_minus(nibbles(block + 4u, eight), half_at(block), -half_at(block + 2u));
}

//= Q5_0
fn decode(block: u32, eight: u32) -> Eight {
    let fifth = spread_bits(word_at(block + 2u) >> (8u * eight)) << vec2(4u);
    return scaled(nibbles(block + 6u, eight) | fifth, -16.0, half_at(block));
}

//= Q5_1
fn decode(block: u32, eight: u32) -> Eight {
    let fifth = spread_bits(word_at(block + 4u) >> (8u * eight)) << vec2(4u);
    return scaled_minus(nibbles(block + 8u, eight) | fifth, half_at(block), -half_at(block + 2u));
}

//= Q2_K Q3_K
// The two bits of eight weights: a byte holds four weights that lie 32 apart, within each half of 128.
fn two_bits(bytes: u32, eight: u32) -> vec2<u32> {
    let begin = bytes + eight / 16u * 32u + eight % 4u * 8u;
    let shift = vec2(eight % 16u / 4u * 2u);
    return (vec2(word_at(begin), word_at(begin + 4u)) >> shift) & vec2(0x03030303u);
}

fn decode(block: u32, eight: u32) -> Eight {
    let group = eight / 2u; // of 16
    if WEIGHT_FORMAT == FORMAT_Q2_K {
        let scale = byte_at(block + group);
        let q = two_bits(block + 16u, eight);
        return scaled_minus(q, half_at(block + 80u) * f32(scale & 15u), half_at(block + 82u) * f32(scale >> 4u));
    }
    let low = (byte_at(block + 96u + group % 8u) >> (group / 8u * 4u)) & 15u;
    let high = (byte_at(block + 104u + group % 4u) >> (group / 4u * 2u)) & 3u;
    let mask = block + eight % 4u * 8u;
    let third = (vec2(word_at(mask), word_at(mask + 4u)) >> vec2(eight / 4u)) & vec2(0x01010101u);
    let q = two_bits(block + 32u, eight) | (third << vec2(2u));
    return scaled(q, -4.0, half_at(block + 108u) * (f32((high << 4u) | low) - 32.0));
}

//= Q4_K Q5_K
// 6-bit scale and minimum of a group of 32: argon_gguf::quant::decode::k::scale_and_min.
fn scale_and_least(packed: u32, group: u32) -> vec2<f32> {
    if group < 4u {
        return vec2(f32(byte_at(packed + group) & 63u), f32(byte_at(packed + group + 4u) & 63u));
    }
    let low = byte_at(packed + group + 4u);
    let scale = ((byte_at(packed + group - 4u) >> 6u) << 4u) | (low & 15u);
    let least = ((byte_at(packed + group) >> 6u) << 4u) | (low >> 4u);
    return vec2(f32(scale), f32(least));
}

fn decode(block: u32, eight: u32) -> Eight {
    let group = eight / 4u;
    let factors = scale_and_least(block + 4u, group) * vec2(half_at(block), half_at(block + 2u));
    let qs = select(block + 48u, block + 16u, WEIGHT_FORMAT == FORMAT_Q4_K);
    let begin = qs + group / 2u * 32u + eight % 4u * 8u;
    var q = (vec2(word_at(begin), word_at(begin + 4u)) >> vec2(group % 2u * 4u)) & vec2(0x0f0f0f0fu);
    if WEIGHT_FORMAT == FORMAT_Q5_K {
        let high = block + 16u + eight % 4u * 8u;
        q |= ((vec2(word_at(high), word_at(high + 4u)) >> vec2(group)) & vec2(0x01010101u)) << vec2(4u);
    }
    return scaled_minus(q, factors.x, factors.y);
}

//= Q6_K
fn decode(block: u32, eight: u32) -> Eight {
    let half = eight / 16u;
    let quarter = eight % 16u / 4u;
    let low = block + half * 64u + quarter % 2u * 32u + eight % 4u * 8u;
    let high = block + 128u + half * 32u + eight % 4u * 8u;
    let q = ((vec2(word_at(low), word_at(low + 4u)) >> vec2(quarter / 2u * 4u)) & vec2(0x0f0f0f0fu))
        | (((vec2(word_at(high), word_at(high + 4u)) >> vec2(quarter * 2u)) & vec2(0x03030303u)) << vec2(4u));
    let scale = f32(bitcast<i32>(byte_at(block + 192u + eight / 2u) << 24u) >> 24u);
    return scaled(q, -32.0, half_at(block + 208u) * scale);
}

//= IQ4_NL
fn decode(block: u32, eight: u32) -> Eight {
    return sixteen(TABLE_IQ4_NL, nibbles(block + 2u, eight), half_at(block));
}

//= IQ4_XS
fn decode(block: u32, eight: u32) -> Eight {
    let run = eight / 4u;
    let low = nibble_at(block + 4u, run);
    let high = (half_word_at(block + 2u) >> (run * 2u)) & 3u;
    let scale = half_at(block) * (f32((high << 4u) | low) - 32.0);
    return sixteen(TABLE_IQ4_NL, nibbles(block + 8u + run * 16u, eight % 4u), scale);
}

//= IQ2_XXS
fn decode(block: u32, eight: u32) -> Eight {
    let run = block + 2u + eight / 4u * 8u;
    let word = word_at(run + 4u);
    let scale = half_at(block) * (0.5 + f32(word >> 28u)) * 0.25;
    let magnitudes = entry_of_eight(TABLE_IQ2_XXS, byte_at(run + eight % 4u));
    return with_signs(magnitudes, even_signs((word >> (7u * (eight % 4u))) & 127u), scale);
}

//= IQ2_XS
fn decode(block: u32, eight: u32) -> Eight {
    let code = half_word_at(block + 2u + 2u * eight);
    let scale = half_at(block) * (0.5 + f32(nibble_at(block + 66u, eight / 2u))) * 0.25;
    return with_signs(entry_of_eight(TABLE_IQ2_XS, code & 511u), even_signs(code >> 9u), scale);
}

//= IQ2_S
fn decode(block: u32, eight: u32) -> Eight {
    let scale = half_at(block) * (0.5 + f32(nibble_at(block + 74u, eight / 2u))) * 0.25;
    let high = (byte_at(block + 66u + eight / 4u) >> (eight % 4u * 2u)) & 3u;
    let magnitudes = entry_of_eight(TABLE_IQ2_S, (high << 8u) | byte_at(block + 2u + eight));
    return with_signs(magnitudes, byte_at(block + 34u + eight), scale);
}

//= IQ3_XXS
fn decode(block: u32, eight: u32) -> Eight {
    let word = word_at(block + 66u + eight / 4u * 4u);
    let scale = half_at(block) * (0.5 + f32(word >> 28u)) * 0.5;
    let codes = half_word_at(block + 2u + 2u * eight);
    let magnitudes = vec2(table_word(TABLE_IQ3_XXS + (codes & 255u)), table_word(TABLE_IQ3_XXS + (codes >> 8u)));
    return with_signs(magnitudes, even_signs((word >> (7u * (eight % 4u))) & 127u), scale);
}

//= IQ3_S
fn decode(block: u32, eight: u32) -> Eight {
    let scale = half_at(block) * f32(1u + 2u * nibble_at(block + 106u, eight / 4u));
    let codes = half_word_at(block + 2u + 2u * eight);
    let ninth = byte_at(block + 66u + eight / 4u) >> (eight % 4u * 2u);
    let low = table_word(TABLE_IQ3_S + (((ninth & 1u) << 8u) | (codes & 255u)));
    let high = table_word(TABLE_IQ3_S + (((ninth & 2u) << 7u) | (codes >> 8u)));
    return with_signs(vec2(low, high), byte_at(block + 74u + eight), scale);
}

//= IQ1_S IQ1_M
// Eight values of -1, 0, 1, all moved by an eighth, up or down.
fn shifted(entry: vec2<u32>, down: bool, scale: f32) -> Eight {
    let shift = select(0.125, -0.125, down);
    return Eight((signed_bytes(entry.x) + shift) * scale, (signed_bytes(entry.y) + shift) * scale);
}

fn decode(block: u32, eight: u32) -> Eight {
    if WEIGHT_FORMAT == FORMAT_IQ1_S {
        let high = half_word_at(block + 34u + eight / 4u * 2u);
        let scale = half_at(block) * f32(2u * ((high >> 12u) & 7u) + 1u);
        let index = (((high >> (eight % 4u * 3u)) & 7u) << 8u) | byte_at(block + 2u + eight);
        return shifted(entry_of_eight(TABLE_IQ1_S, index), (high & 0x8000u) != 0u, scale);
    }
    // The scale of the scales: the top nibbles of the four words of scales, the first one lowest.
    var super_scale = 0u;
    for (var i = 0u; i < 4u; i++) {
        super_scale |= (half_word_at(block + 48u + 2u * i) >> 12u) << (4u * i);
    }
    let factor = (half_word_at(block + 48u + eight / 8u * 2u) >> (eight / 2u % 4u * 3u)) & 7u;
    let high = byte_at(block + 32u + eight / 2u) >> (eight % 2u * 4u);
    let index = ((high & 7u) << 8u) | byte_at(block + eight);
    return shifted(entry_of_eight(TABLE_IQ1_S, index), (high & 8u) != 0u, half_to_float(super_scale) * f32(2u * factor + 1u));
}

//= TQ1_0
// Digit n of every byte of a run, then digit n + 1 of every byte: runs of 32, 16 and 4 bytes.
fn digits(word: u32, power: u32) -> u32 {
    let bytes = ((vec4(word) >> BYTES_OF_WORD) & vec4(255u)) * power;
    let digit = ((bytes & vec4(255u)) * 3u) >> vec4(8u);
    return digit.x | (digit.y << 8u) | (digit.z << 16u) | (digit.w << 24u);
}

fn four_digits(block: u32, weight: u32) -> u32 {
    var powers = array<u32, 5>(1u, 3u, 9u, 27u, 81u);
    if weight < 160u {
        return digits(word_at(block + weight % 32u), powers[weight / 32u]);
    }
    if weight < 240u {
        return digits(word_at(block + 32u + (weight - 160u) % 16u), powers[(weight - 160u) / 16u]);
    }
    return digits(word_at(block + 48u), powers[(weight - 240u) / 4u]);
}

fn decode(block: u32, eight: u32) -> Eight {
    let q = vec2(four_digits(block, 8u * eight), four_digits(block, 8u * eight + 4u));
    return scaled(q, -1.0, half_at(block + 52u));
}

//= TQ2_0
fn decode(block: u32, eight: u32) -> Eight {
    let begin = block + eight / 16u * 32u + eight % 4u * 8u;
    let q = (vec2(word_at(begin), word_at(begin + 4u)) >> vec2(eight % 16u / 4u * 2u)) & vec2(0x03030303u);
    return scaled(q, -1.0, half_at(block + 64u));
}

//= Q1_0
fn decode(block: u32, eight: u32) -> Eight {
    return scaled(spread_bits(byte_at(block + 2u + eight)) << vec2(1u), -1.0, half_at(block));
}

//= Q2_0
// Four weights a byte, side by side.
fn decode(block: u32, eight: u32) -> Eight {
    let two = half_word_at(block + 2u + 2u * eight);
    let shifts = vec4(0u, 2u, 4u, 6u);
    let d = half_at(block);
    return Eight(
        (vec4<f32>((vec4(two) >> shifts) & vec4(3u)) - 1.0) * d,
        (vec4<f32>((vec4(two >> 8u) >> shifts) & vec4(3u)) - 1.0) * d,
    );
}

//= MXFP4
// 2^(e - 128): the scale of values that are stored doubled.
fn half_power(e: u32) -> f32 {
    return bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << e, e < 2u));
}

fn decode(block: u32, eight: u32) -> Eight {
    return sixteen(TABLE_FP4, nibbles(block + 1u, eight), half_power(byte_at(block)));
}

//= NVFP4
// Half of an unsigned 8-bit float, four exponent bits and three of mantissa; 0x7f is 0.
fn half_scale(bits: u32) -> f32 {
    let exponent = (bits >> 3u) & 15u;
    let mantissa = f32(bits & 7u);
    if bits == 0x7fu {
        return 0.0;
    }
    if exponent == 0u {
        return mantissa / 1024.0;
    }
    return (1.0 + mantissa / 8.0) * bitcast<f32>((exponent + 119u) << 23u);
}

fn decode(block: u32, eight: u32) -> Eight {
    let group = eight / 2u; // of 16
    let begin = block + 4u + group * 8u;
    let q = (vec2(word_at(begin), word_at(begin + 4u)) >> vec2(eight % 2u * 4u)) & vec2(0x0f0f0f0fu);
    return sixteen(TABLE_FP4, q, half_scale(byte_at(block + group)));
}

//= HALVES IQ2_XS
// An entry's magnitudes are 8, 25 and 43. Kept are bits 5 to 11 of their 64ths as f16, of four in a word: the first and the
// second where they belong in two halves, the others a byte further, the last around the end. The other bits are the same of
// all three, but for the signs: bits of `signs` are those of the first pair, each pair's a place below the one before it.
// The odd factor of the scale is multiplied first, which is exact, so that a weight is rounded once.
var<workgroup> grid: array<vec2<u32>, 512>;
var<workgroup> signs: array<u32, 128>;

const KEPT = 0x0fe00fe0u;
const SHARED = 0x30003000u;

fn kept(magnitudes: u32) -> u32 {
    let m = (vec4(magnitudes) >> BYTES_OF_WORD) & vec4(255u);
    let bits = (select(vec4(0u), vec4(50u), m == vec4(25u)) | select(vec4(0u), vec4(75u), m == vec4(43u))) << vec4(5u, 21u, 13u, 29u);
    return bits.x | bits.y | bits.z | bits.w | (select(0u, 75u, m.w == 43u) >> 3u) | (select(0u, 50u, m.w == 25u) >> 3u);
}

fn prepare(thread: u32, threads: u32) {
    for (var i = thread; i < 512u; i += threads) {
        let entry = entry_of_eight(TABLE_IQ2_XS, i);
        grid[i] = vec2(kept(entry.x), kept(entry.y));
    }
    for (var i = thread; i < 128u; i += threads) {
        let eight = even_signs(i);
        let first = (vec4(eight) >> vec4(0u, 2u, 4u, 6u)) & vec4(1u);
        let second = (vec4(eight) >> vec4(1u, 3u, 5u, 7u)) & vec4(1u);
        let pairs = (first << vec4(15u, 14u, 13u, 12u)) | (second << vec4(31u, 30u, 29u, 28u));
        signs[i] = pairs.x | pairs.y | pairs.z | pairs.w;
    }
}

fn signed_pair(bits: u32, negative: u32) -> vec2<f16> {
    return vec2<f16>(unpack2x16float(((bits & KEPT) | SHARED) ^ (negative & 0x80008000u)));
}

fn signed_four(bits: u32, negative: u32) -> vec4<f16> {
    return vec4(signed_pair(bits, negative), signed_pair((bits >> 8u) | (bits << 24u), negative << 1u));
}

fn signed_entry(code: u32, factor: f16, d: f16) -> EightHalves {
    let entry = grid[code & 511u];
    let negative = signs[(code >> 9u) & 127u];
    return EightHalves(signed_four(entry.x, negative) * factor * d, signed_four(entry.y, negative << 2u) * factor * d);
}

// A chunk is one block. It begins at an even byte, so that two codes lie in a word or in the halves of two.
fn sixteen_at(block: u32, column: u32) -> Sixteen {
    let run = column / 16u;
    let codes = block + 2u;
    let shift = codes % 4u * 8u;
    let word = codes / 4u + run;
    let two = (weight_word(word) >> shift) | ((weight_word(word + 1u) << (31u - shift)) << 1u);
    let scale = block + 66u + run / 2u;
    let odd = 2u * ((weight_word(scale / 4u) >> (scale % 4u * 8u + run % 2u * 4u)) & 15u) + 1u;
    let factor = f16(8u * odd);
    let d = f16(unpack2x16float(half_word_at(block)).x);
    return Sixteen(signed_entry(two, factor, d), signed_entry(two >> 16u, factor, d));
}

//= HALVES IQ4_NL
// A pair of neighbours' values for each pair of nibbles.
var<workgroup> pairs: array<vec2<f16>, 256>;

fn prepare(thread: u32, threads: u32) {
    for (var i = thread; i < 256u; i += threads) {
        let first = bitcast<i32>(table_word(TABLE_IQ4_NL + (i & 15u)));
        let second = bitcast<i32>(table_word(TABLE_IQ4_NL + (i >> 4u)));
        pairs[i] = vec2(f16(first), f16(second));
    }
}

fn four_halves(nibbles: u32, d: f16) -> vec4<f16> {
    let two = nibbles | (nibbles >> 4u);
    return vec4(pairs[two & 255u], pairs[(two >> 16u) & 255u]) * d;
}

fn sixteen_at(row: u32, column: u32) -> Sixteen {
    let block = row + column / BLOCK * BLOCK_BYTES;
    let shift = (block + 2u) % 4u * 8u;
    let i = (block + 2u) / 4u;
    let w = vec4(weight_word(i), weight_word(i + 1u), weight_word(i + 2u), weight_word(i + 3u));
    let bytes = (w >> vec4(shift)) | ((vec4(w.yzw, weight_word(i + 4u)) << vec4(31u - shift)) << vec4(1u));
    let n = (bytes >> vec4(column % BLOCK / 16u * 4u)) & vec4(0x0f0f0f0fu);
    let d = f16(half_at(block));
    return Sixteen(EightHalves(four_halves(n.x, d), four_halves(n.y, d)), EightHalves(four_halves(n.z, d), four_halves(n.w, d)));
}

//= HALVES
fn prepare(thread: u32, threads: u32) {}

fn halves_at(row: u32, column: u32) -> EightHalves {
    let eight = weights_at(row, column);
    return EightHalves(vec4<f16>(eight.a), vec4<f16>(eight.b));
}

fn sixteen_at(row: u32, column: u32) -> Sixteen {
    return Sixteen(halves_at(row, column), halves_at(row, column + 8u));
}
