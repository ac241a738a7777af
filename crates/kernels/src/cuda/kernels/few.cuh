// Weights that meet few tokens, up to 8, in formats where it pays: decoded to exact numbers, without the factor that a whole
// block shares. Of few tokens there are few sums, so the sums are multiplied by it, in f32, and not each weight.
//
// What is short is the pipe of logic, shifts and byte permutations, which takes an instruction every other cycle. Products do
// what they can in its place.
#pragma once
#include "decode.cuh"

// The upper half of a word in both halves, as a product with `one`, two f16 that are 1: for halves below 0x7c00, which are
// numbers to f16.
DEVICE u32 upper_half(u32 word, u32 one) {
    u32 r;
    asm("{.reg .b16 l, h; .reg .b32 t; mov.b32 {l, h}, %1; mov.b32 t, {h, h}; mul.rn.f16x2 %0, t, %2;}" : "=r"(r) : "r"(word), "r"(one));
    return r;
}
#define HALF2_1 0x3c003c00u

#if GEMM_TOKENS == 8 && (WEIGHT_FORMAT == FORMAT_IQ2_XXS || WEIGHT_FORMAT == FORMAT_IQ2_XS || WEIGHT_FORMAT == FORMAT_IQ2_S)
// The table of selectors TABLE_COPIES times, side by side: of 32 copies each lane has its own, in a bank of its own. They lie
// in the shared memory that a launch asks for.
#define COPIED_BYTES GEMM_TABLES
struct Selectors { u32 words[ENTRIES * TABLE_COPIES]; };
struct Looked {
    const u8 *words;
    u32 copy, step; // bytes to this lane's copies, and from one word to the next
    u32 positive, negative, bias, one, two_7, two_29;

    DEVICE u32 operator[](u32 i) const { return *(const u32 *)(words + (i * step + copy)); }
    // Word `of & MASK`, where `of_128` = 128 * of.
    template <u32 MASK> DEVICE u32 masked(u32 of, u32 of_128) const {
        return TABLE_COPIES == 32 ? *(const u32 *)(words + and_or(of_128, 128 * MASK, copy)) : (*this)[of & MASK];
    }
};

// (2n + 1) / 8 for 16 weights, and what it makes of the 1024 + 128 that picked bytes are too large.
struct Sixteenth { u32 scale, minus; };

// A nibble of a selector picks 128 and a magnitude, or 128 less a magnitude, as a byte.
struct Decoder : W {
    static constexpr int RUNS = 8; // whose sums `factor` multiplies
    typedef Selectors Tables;
    struct State { u32 d, scales; Sixteenth s; };

    static DEVICE void load_tables(Tables &t, u32 thread, u32 threads) {
        for (u32 i = thread; i < ENTRIES * TABLE_COPIES; i += threads) t.words[i] = SELECTORS[i / TABLE_COPIES];
    }
    static DEVICE Looked look(const Tables &t, u32 lane) {
        return {(const u8 *)t.words, lane % TABLE_COPIES * 4, kept(4 * TABLE_COPIES), kept(0x80ab9988u), kept(0x80556778u),
                kept(0x64646464u), kept(HALF2_1), kept(1u << 7), kept(1u << 29)};
    }
    static DEVICE float factor(const State &s) { return half_to_float((u16)s.d); }

    // n is byte i of `bytes`.
    static DEVICE Sixteenth sixteenth(const Looked &t, u32 bytes, u32 i) {
        const u32 scale = half2_fma(prmt(bytes, t.bias, 0x4040 | i << 8 | i), 0x34003400u, 0xdbffdbffu); // (n + 1024) / 4 - 2047 / 8
        return {scale, half2_mul(scale, HALF2_MINUS(128))};
    }
    // Bits 16 to 22 of `signs` and whether they are odd, to bit 2 of the nibbles.
    static DEVICE u32 signs_of(const Looked &t, u32 signs) {
        const u32 twice = upper_half(signs, t.one); // seven * 0x10001, which the constant undoes
        return (twice * 0xfe7d0204u + (u32)__popc(twice) * t.two_29) & 0x44444444u;
    }
    static DEVICE void weights(const Looked &t, const Sixteenth &s, u32 selectors, u32 out[4]) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const u32 four = prmt(t.positive, t.negative, selectors);
            out[2 * i] = half2_fma(prmt(four, t.bias, 0x4140), s.scale, s.minus);
            out[2 * i + 1] = half2_fma(prmt(four, t.bias, 0x4342), s.scale, s.minus);
            selectors = upper_half(selectors, t.one);
        }
    }

#if WEIGHT_FORMAT == FORMAT_IQ2_XXS
    static DEVICE State load(const u8 *block, int) { return {half_at(block)}; }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Looked &t, u32 out[4]) {
        const u8 *q = block + 2 + 8 * (run & ~1) + 8 * (lane >> 1);
        if (run % 2 == 0) s.scales = load_u32_at2(q + 4), s.s = sixteenth(t, s.scales >> 28, 0);
        const u32 at = 2 * (lane & 1) + (run & 1);
        weights(t, s.s, t[q[at]] ^ signs_of(t, (s.scales >> (7 * at) & 127) << 16), out);
    }
#elif WEIGHT_FORMAT == FORMAT_IQ2_XS
    static DEVICE State load(const u8 *block, int lane) { return {half_at(block), lane_scales(block + 66, lane)}; }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Looked &t, u32 out[4]) {
        if (run % 2 == 0) s.s = sixteenth(t, s.scales, run / 2);
        const u32 code = half_at(block + 2 + 8 * (run & ~1) + 4 * lane + 2 * (run & 1)), of_128 = code * t.two_7;
        weights(t, s.s, t.masked<511>(code, of_128) ^ signs_of(t, of_128), out);
    }
#else
    static DEVICE State load(const u8 *block, int lane) { return {half_at(block), lane_scales(block + 74, lane)}; }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Looked &t, u32 out[4]) {
        if (run % 2 == 0) s.s = sixteenth(t, s.scales, run / 2);
        const u8 *q = block + 2 + 4 * (run & ~1) + 2 * lane + (run & 1);
        const u32 more = block[66 + (run & ~1) + (lane >> 1)] >> (4 * (lane & 1) + 2 * (run & 1)) & 3;
        weights(t, s.s, t[q[0] | more << 8] ^ eight_signs(q[32]), out);
    }
#endif
};

#else
// Of other formats, and of more tokens, as decode.cuh says.
#define COPIED_BYTES 0
struct Decoder : W {
    static constexpr int RUNS = 0;
    static DEVICE decltype(auto) look(const Tables &t, u32) { return ::look(t); }
    static DEVICE float factor(const State &) { return 1; }
};
#endif
