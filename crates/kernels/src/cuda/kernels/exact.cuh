// One weight of a block in f32, with ggml's operations in ggml's order: the same bits as argon_gguf's decoders. For
// embeddings, for products in f32, and for the formats that decode.cuh has no fast form of.
// Compiled for WEIGHT_FORMAT, whose blocks have WEIGHT_BLOCK weights in WEIGHT_BYTES bytes; rows begin at multiples of
// WEIGHT_ALIGN bytes, where that is known.
#pragma once
#include "prelude.cuh"
#include "tables.cuh"

DEVICE float f16_at(const u8 *p) { return half_to_float((u16)(p[0] | p[1] << 8)); }
DEVICE u32 nibble(const u8 *bytes, u32 i) { return bytes[i / 2] >> (i % 2 * 4) & 15; }
// Nibble j of 16 bytes whose low nibbles are 0..15 and whose high ones are 16..31.
DEVICE u32 halves(const u8 *bytes, u32 j) { return bytes[j % 16] >> (j / 16 * 4) & 15; }
DEVICE float times(float a, float b) { return __fmul_rn(a, b); }
// The sign of bit j in a mask of seven bits whose eighth makes their number even.
DEVICE float even_sign(u32 mask, u32 j) {
    mask &= 127, mask |= (__popc(mask) & 1) << 7;
    return mask >> j & 1 ? -1.0f : 1.0f;
}
DEVICE u32 byte_of(u64 word, u32 j) { return (u32)(word >> (8 * j)) & 255; }

// Weight j of `b`.
DEVICE float weight(const u8 *b, u32 j) {
    const u32 group = j / 8, e = j % 8; // codebooks have groups of 8
#if WEIGHT_FORMAT == FORMAT_F32 && WEIGHT_ALIGN >= 4
    return *(const float *)b;
#elif WEIGHT_FORMAT == FORMAT_F32
    return bits_to_float(load_u32_at1(b));
#elif WEIGHT_FORMAT == FORMAT_F16
    return f16_at(b);
#elif WEIGHT_FORMAT == FORMAT_BF16
    return bits_to_float((u32)(b[0] | b[1] << 8) << 16);
#elif WEIGHT_FORMAT == FORMAT_Q8_0
    return times((float)(signed char)b[2 + j], f16_at(b));
#elif WEIGHT_FORMAT == FORMAT_Q4_0
    return times((float)halves(b + 2, j) - 8.0f, f16_at(b));
#elif WEIGHT_FORMAT == FORMAT_Q4_1
    return __fadd_rn(times((float)halves(b + 4, j), f16_at(b)), f16_at(b + 2));
#elif WEIGHT_FORMAT == FORMAT_Q5_0
    return times((float)(halves(b + 6, j) | (load_u32_at1(b + 2) >> j & 1) << 4) - 16.0f, f16_at(b));
#elif WEIGHT_FORMAT == FORMAT_Q5_1
    return __fadd_rn(times((float)(halves(b + 8, j) | (load_u32_at1(b + 4) >> j & 1) << 4), f16_at(b)), f16_at(b + 2));
#elif WEIGHT_FORMAT == FORMAT_Q2_K
    const u32 q = b[16 + j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3, scale = b[j / 16];
    return __fsub_rn(times(times(f16_at(b + 80), (float)(scale & 15)), (float)q), times(f16_at(b + 82), (float)(scale >> 4)));
#elif WEIGHT_FORMAT == FORMAT_Q3_K
    const u32 g = j / 16, q = b[32 + j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3, third = b[j % 32] >> (j / 32) & 1;
    const u32 scale = (b[96 + g % 8] >> (g / 8 * 4) & 15) | (b[104 + g % 4] >> (g / 4 * 2) & 3) << 4;
    return times(times(f16_at(b + 108), (float)scale - 32.0f), (float)(third << 2 | q) - 4.0f);
#elif WEIGHT_FORMAT == FORMAT_Q4_K || WEIGHT_FORMAT == FORMAT_Q5_K
    const u32 g = j / 32;
    const u8 *s = b + 4;
    const u32 scale = g < 4 ? s[g] & 63 : s[g - 4] >> 6 << 4 | (s[g + 4] & 15);
    const u32 min = g < 4 ? s[g + 4] & 63 : s[g] >> 6 << 4 | s[g + 4] >> 4;
#if WEIGHT_FORMAT == FORMAT_Q4_K
    const u32 q = b[16 + g / 2 * 32 + j % 32] >> (g % 2 * 4) & 15;
#else
    const u32 q = (b[48 + g / 2 * 32 + j % 32] >> (g % 2 * 4) & 15) | (b[16 + j % 32] >> g & 1) << 4;
#endif
    return __fsub_rn(times(times(f16_at(b), (float)scale), (float)q), times(f16_at(b + 2), (float)min));
#elif WEIGHT_FORMAT == FORMAT_Q6_K
    const u32 half = j / 128, quarter = j % 128 / 32, l = j % 32;
    const u32 low = b[half * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15, high = b[128 + half * 32 + l] >> (quarter * 2) & 3;
    return times(times(f16_at(b + 208), (float)(signed char)b[192 + j / 16]), (float)(high << 4 | low) - 32.0f);
#elif WEIGHT_FORMAT == FORMAT_IQ4_NL
    return times(f16_at(b), (float)IQ4_NL_VALUES[halves(b + 2, j)]);
#elif WEIGHT_FORMAT == FORMAT_IQ4_XS
    const u32 g = j / 32, scale = nibble(b + 4, g) | ((b[2] | b[3] << 8) >> (2 * g) & 3) << 4;
    return times(times(f16_at(b), (float)scale - 32.0f), (float)IQ4_NL_VALUES[halves(b + 8 + 16 * g, j % 32)]);
#elif WEIGHT_FORMAT == FORMAT_IQ2_XXS
    const u8 *q = b + 2 + j / 32 * 8;
    const u32 word = load_u32_at1(q + 4);
    const float scaled = times(times(f16_at(b), 0.5f + (float)(word >> 28)), 0.25f);
    return times(times(scaled, (float)byte_of(IQ2XXS_GRID[q[group % 4]], e)), even_sign(word >> (group % 4 * 7), e));
#elif WEIGHT_FORMAT == FORMAT_IQ2_XS
    const u32 code = b[2 + 2 * group] | b[3 + 2 * group] << 8;
    const float scaled = times(times(f16_at(b), 0.5f + (float)nibble(b + 66, group / 2)), 0.25f);
    return times(times(scaled, (float)byte_of(IQ2XS_GRID[code & 511], e)), even_sign(code >> 9, e));
#elif WEIGHT_FORMAT == FORMAT_IQ2_S
    const u32 index = b[2 + group] | (b[66 + group / 4] >> (group % 4 * 2) & 3) << 8;
    const float scaled = times(times(f16_at(b), 0.5f + (float)nibble(b + 74, group / 2)), 0.25f);
    return times(times(scaled, (float)byte_of(IQ2S_GRID[index], e)), b[34 + group] >> e & 1 ? -1.0f : 1.0f);
#elif WEIGHT_FORMAT == FORMAT_IQ3_XXS
    const u32 word = load_u32_at1(b + 66 + group / 4 * 4);
    const float scaled = times(times(f16_at(b), 0.5f + (float)(word >> 28)), 0.5f);
    return times(times(scaled, (float)byte_of(IQ3XXS_GRID[b[2 + j / 4]], j % 4)), even_sign(word >> (group % 4 * 7), e));
#elif WEIGHT_FORMAT == FORMAT_IQ3_S
    const u32 index = b[2 + j / 4] | (b[66 + j / 32] >> (j / 4 % 8) & 1) << 8;
    const float scaled = times(f16_at(b), (float)(1 + 2 * nibble(b + 106, group / 4)));
    return times(times(scaled, (float)byte_of(IQ3S_GRID[index], j % 4)), b[74 + group] >> e & 1 ? -1.0f : 1.0f);
#elif WEIGHT_FORMAT == FORMAT_IQ1_S
    const u32 qh = b[34 + group / 4 * 2] | b[35 + group / 4 * 2] << 8;
    const u32 index = b[2 + group] | (qh >> (group % 4 * 3) & 7) << 8;
    const float scaled = times(f16_at(b), (float)(2 * (qh >> 12 & 7) + 1));
    return times(scaled, (float)(signed char)byte_of(IQ1S_GRID[index], e) + (qh & 0x8000 ? -0.125f : 0.125f));
#elif WEIGHT_FORMAT == FORMAT_IQ1_M
    u32 d = 0;
    for (int i = 3; i >= 0; i--) d = d << 4 | b[49 + 2 * i] >> 4;
    const u32 scales = b[48 + group / 8 * 2] | b[49 + group / 8 * 2] << 8, high = b[32 + group / 2] >> (group % 2 * 4);
    const float scaled = times(half_to_float((u16)d), (float)(2 * (scales >> (group / 2 % 4 * 3) & 7) + 1));
    return times(scaled, (float)(signed char)byte_of(IQ1S_GRID[b[group] | (high & 7) << 8], e) + (high & 8 ? -0.125f : 0.125f));
#elif WEIGHT_FORMAT == FORMAT_TQ1_0
    const u32 at = j < 160 ? j % 32 : j < 240 ? 32 + (j - 160) % 16 : 48 + (j - 240) % 4;
    const u32 digit = j < 160 ? j / 32 : j < 240 ? (j - 160) / 16 : (j - 240) / 4;
    const u32 power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
    return times((float)((b[at] * power & 255) * 3 >> 8) - 1.0f, f16_at(b + 52));
#elif WEIGHT_FORMAT == FORMAT_TQ2_0
    return times((float)(b[j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3) - 1.0f, f16_at(b + 64));
#elif WEIGHT_FORMAT == FORMAT_Q1_0
    return b[2 + j / 8] >> (j % 8) & 1 ? f16_at(b) : -f16_at(b);
#elif WEIGHT_FORMAT == FORMAT_Q2_0
    return times((float)(b[2 + j / 4] >> (j % 4 * 2) & 3) - 1.0f, f16_at(b));
#elif WEIGHT_FORMAT == FORMAT_MXFP4
    const float d = bits_to_float(b[0] < 2 ? 0x00200000u << b[0] : (u32)(b[0] - 1) << 23);
    return times((float)FP4_VALUES[halves(b + 1, j)], d);
#elif WEIGHT_FORMAT == FORMAT_NVFP4
    const u32 g = j / 16, s = b[g], exponent = s >> 3 & 15, q = b[4 + 8 * g + j % 8] >> (j % 16 / 8 * 4) & 15;
    const float mantissa = (float)(s & 7);
    const float d = s == 0x7f ? 0.0f : exponent == 0 ? mantissa / 1024.0f : times(1.0f + mantissa / 8.0f, bits_to_float((exponent + 119) << 23));
    return times((float)FP4_VALUES[q], d);
#else
#error "no such weight format"
#endif
}

// Weight k of a row.
DEVICE float weight_of_row(const u8 *row, u32 k) { return weight(row + (u64)(k / WEIGHT_BLOCK) * WEIGHT_BYTES, k % WEIGHT_BLOCK); }

// Weights k to k + 3 of a row of `cols`, 0 beyond its end.
DEVICE float4 four_weights(const u8 *row, u32 k, u32 cols) {
#if WEIGHT_FORMAT == FORMAT_F32 && WEIGHT_ALIGN >= 16
    return k < cols ? ((const float4 *)row)[k / 4] : make_float4(0, 0, 0, 0);
#else
    const auto of = [&](u32 column) { return column < cols ? weight_of_row(row, column) : 0.0f; };
    return make_float4(of(k), of(k + 1), of(k + 2), of(k + 3));
#endif
}
