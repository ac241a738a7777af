// Quantised weights to f16 operands, in registers: the one place of the matrix products that knows a format.
//
// A row is cut into runs of 32 weights. The four lanes of a quad that share a row of a matrix fragment each decode 8 of
// them, so nothing is decoded twice: `decode(state, block, run, lane, tables, out)` gives four words of two f16, run after
// run. Which 8 weights a lane takes is the format's ORDER (order.cuh).
//
// `load` reads what a whole block shares (scales) once for this lane; `Tables` are look-up tables in shared memory.
//
// Rounding: the exact value, rounded once to f16, unless a format says otherwise. Where a scale and a small integer are
// multiplied first, that product is exact in f16 (below 2048).
//
// Compiled for WEIGHT_FORMAT; its rows begin at multiples of WEIGHT_ALIGN (1, 2, 4, 8 or 16) bytes.
#pragma once
#include "exact.cuh"
#include "order.cuh"

// Bytes i and j of `bytes` as two f16 of their value plus 1024: 0x6400 + b is 1024 + b.
#define BYTES_TO_HALF2(bytes, i, j) prmt(bytes, 0x64646464u, 0x4040 | (j) << 8 | (i))
#define HALF2_1024 0x64006400u
// -1024, -1025, ...: what takes the 1024 and an offset away.
#define HALF2_MINUS_1024 0xe400e400u
#define HALF2_MINUS(n) (HALF2_MINUS_1024 + (n) * 0x10001u)

// A word of a block, which begins at a multiple of WEIGHT_ALIGN.
DEVICE u32 load_u32(const u8 *p) {
#if WEIGHT_ALIGN >= 4
    return *(const u32 *)p;
#else
    return load_u32_at2(p);
#endif
}
DEVICE u32 twice(u32 half) {
    u32 r;
    asm("mov.b32 %0, {%1, %1};" : "=r"(r) : "h"((u16)half)); // an operand's choice of halves, not an instruction
    return r;
}
DEVICE u32 half_at(const u8 *p) { return *(const u16 *)p; }
// Byte i of `bytes`, an integer below 1024, as two f16.
DEVICE u32 integer(u32 bytes, u32 i) { return half2_add(BYTES_TO_HALF2(bytes, i, i), HALF2_MINUS_1024); }
// s * n for two f16 `biased` = 1024 + n and an integer s: exact below 2048.
DEVICE u32 scaled_integers(u32 biased, u32 s, u32 minus_1024_s) { return half2_fma(biased, s, minus_1024_s); }

// Signs of 8 weights (bit j: weight j is negative) for the four words: bits 2i and 2i + 16 are those of word i.
DEVICE u32 spread_signs(u32 signs) { return signs | signs << 15; }
DEVICE u32 with_signs(u32 spread, int i, u32 magnitudes) { return and_xor(spread << (15 - 2 * i), 0x80008000u, magnitudes); }
DEVICE u32 with_parity(u32 seven) { return seven | (__popc(seven) << 7 & 0x80); }

// A constant that stays in a register. It is multiplied by the one row of threads that a block has: the assembler, which
// does not know that, cannot make it again at each use, nor turn a product with it into logic, which decoding is short of.
DEVICE u32 kept(u32 constant) {
    u32 r;
    asm volatile("mul.lo.u32 %0, %1, %2;" : "=r"(r) : "r"(constant), "r"(blockDim.y));
    return r;
}

// A table of 16 bytes, `offset` too large, and constants.
struct Sixteen { u32 t0, t1, t2, t3, bias, fours, two_16; };
DEVICE Sixteen sixteen(u32 t0, u32 t1, u32 t2, u32 t3) {
    return {kept(t0), t1, kept(t2), t3, kept(0x64646464u), kept(0x44444444u), kept(1u << 16)};
}

// A scale d * n as the sum of two f16, the second less than half a unit in the last place of the first.
struct Scale { u32 high, low; };
DEVICE Scale product_of(u32 d, u32 n) {
    const u32 high = half2_mul(d, n);
    return {high, half2_fma(d, n, half2_negative(high))};
}
// Times such a scale, rounded once; or times an f16.
DEVICE u32 times(u32 integers, const Scale &s) { return half2_fma(integers, s.high, half2_mul(integers, s.low)); }
DEVICE u32 times(u32 integers, u32 scale) { return half2_mul(integers, scale); }
// integers * d + a minimum that is such a product: rounded twice, to the size of the result and not of the minimum, which is larger.
DEVICE u32 less(u32 integers, u32 d, const Scale &min) { return half2_add(half2_fma(integers, d, min.high), min.low); }

// 8 nibbles, the lower and the upper one of each byte a pair, through the table.
template <int OFFSET, class S> DEVICE void table_of_16(u32 q, const Sixteen &t, const S &scale, u32 out[4]) {
    const u32 pick = q & 0x77777777u, upper = ((q >> 1) & t.fours) | 0x32103210u;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const u32 four = pick >> (16 * i), v = prmt(prmt(t.t0, t.t1, four), prmt(t.t2, t.t3, four), upper >> (16 * i));
        out[2 * i] = times(half2_add(prmt(v, t.bias, 0x4140), HALF2_MINUS(OFFSET)), scale);
        out[2 * i + 1] = times(half2_add(prmt(v, t.bias, 0x4342), HALF2_MINUS(OFFSET)), scale);
    }
}

// Look-up tables in shared memory, and what `decode` is given of them.
struct NoTables {};
template <class T> DEVICE const T &look(const T &tables) { return tables; }

// Tables that are registers only: values plus 128, or plus 12.
struct Iq4Values {};
DEVICE Sixteen look(const Iq4Values &) { return sixteen(IQ4_BYTES); }
struct Fp4Values {};
DEVICE Sixteen look(const Fp4Values &) { return sixteen(FP4_BYTES); }

#if WEIGHT_FORMAT == FORMAT_IQ2_XXS || WEIGHT_FORMAT == FORMAT_IQ2_XS || WEIGHT_FORMAT == FORMAT_IQ2_S
// Codebooks of 8 magnitudes, each 8, 25 or 43, with signs and a scale d (2n + 1) / 8 for 16 weights. A lane takes 16 weights
// of one scale in two runs: it makes the three products with the scale once, and picks their bytes by selectors. A nibble of a
// selector is 0, 1 or 2 for the magnitude, and 4 more for a negative weight; nibbles are weights 0, 4, 1, 5, 2, 6, 3, 7.
#if WEIGHT_FORMAT == FORMAT_IQ2_XXS
#define SELECTORS IQ2XXS_SELECTORS
#define ENTRIES 256
#elif WEIGHT_FORMAT == FORMAT_IQ2_XS
#define SELECTORS IQ2XS_SELECTORS
#define ENTRIES 512
#else
#define SELECTORS IQ2S_SELECTORS
#define ENTRIES 1024
#endif
struct SelectorTables { u32 selectors[ENTRIES]; };

DEVICE void load_selectors(SelectorTables &t, u32 thread, u32 threads) {
    for (u32 i = thread; i < ENTRIES; i += threads) t.selectors[i] = SELECTORS[i];
}

// Low and high bytes of the three products; the high bytes of the negative ones.
struct Products { u32 low, high, negative; };

// `n`: two f16 of n + 1024. (2n + 1) times a magnitude is exact, so only the product with d is rounded.
DEVICE Products three_products(u32 d, u32 n) {
    u32 scale = half2_fma(n, 0x40004000u, 0xe7ffe7ffu);       // 2 (n + 1024) - 2047
    u32 small = half2_mul(half2_mul(scale, 0x42403c00u), d);  // 8/8, 25/8
    u32 large = half2_mul(half2_mul(scale, 0x45604560u), d);  // 43/8
    u32 high = prmt(small, large, 0x5531);
    return {prmt(small, large, 0x4420), high, high ^ 0x80808080u};
}
// Bits 0 to 6 of `signs`, none of which meets another, and whether they are odd, to bit 2 of the nibbles.
DEVICE u32 even_signs(u32 seven) { return (seven * 0x00810204u + ((u32)__popc(seven) << 30)) & 0x44444444u; }
DEVICE u32 eight_signs(u32 eight) { return ((eight & 127) * 0x00810204u & 0x44444444u) | (eight << 23 & 0x40000000u); }

// 8 weights.
DEVICE void pick(const Products &p, u32 selectors, u32 out[4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const u32 four = selectors >> (16 * i);
        const u32 low = prmt(p.low, p.low, four), high = prmt(p.high, p.negative, four);
        out[2 * i] = prmt(low, high, 0x5140), out[2 * i + 1] = prmt(low, high, 0x7362);
    }
}

// 4-bit scales of 16 weights: of each two runs this lane's, in a byte.
DEVICE u32 lane_scales(const u8 *scales, int lane) {
    u32 four = prmt(load_u32_at2(scales), load_u32_at2(scales + 4), lane >> 1 ? 0x7531u : 0x6420u);
    return four >> (4 * (lane & 1)) & 0x0f0f0f0fu;
}
#endif

#if WEIGHT_FORMAT == FORMAT_IQ2_XS
// f16 d | u16[32] codes: 9 bits of grid, 7 bits of sign | 4-bit scales of 16 weights
struct W {
    static constexpr int BLOCK = 256, BYTES = 74, ORDER = ORDER_SIXTEENS;
    typedef SelectorTables Tables;
    struct State { u32 d, scales; Products p; };

    static DEVICE void load_tables(Tables &t, u32 thread, u32 threads) { load_selectors(t, thread, threads); }
    static DEVICE State load(const u8 *block, int lane) { return {twice(half_at(block)), lane_scales(block + 66, lane)}; }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Tables &t, u32 out[4]) {
        if (run % 2 == 0) s.p = three_products(s.d, BYTES_TO_HALF2(s.scales, run / 2, run / 2));
        const u32 code = half_at(block + 2 + 8 * (run & ~1) + 4 * lane + 2 * (run & 1));
        pick(s.p, t.selectors[code & 511] ^ even_signs(code >> 9), out);
    }
};

#elif WEIGHT_FORMAT == FORMAT_IQ2_XXS
// f16 d | of each 32 weights: 4 bytes of grid, a word of 4 times 7 bits of sign and a 4-bit scale
struct W {
    static constexpr int BLOCK = 256, BYTES = 66, ORDER = ORDER_SIXTEENS;
    typedef SelectorTables Tables;
    struct State { u32 d, word; Products p; };

    static DEVICE void load_tables(Tables &t, u32 thread, u32 threads) { load_selectors(t, thread, threads); }
    static DEVICE State load(const u8 *block, int) { return {twice(half_at(block))}; }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Tables &t, u32 out[4]) {
        const u8 *q = block + 2 + 8 * (run & ~1) + 8 * (lane >> 1);
        if (run % 2 == 0) s.word = load_u32_at2(q + 4), s.p = three_products(s.d, BYTES_TO_HALF2(s.word >> 28, 0, 0));
        const u32 at = 2 * (lane & 1) + (run & 1);
        pick(s.p, t.selectors[q[at]] ^ even_signs(s.word >> (7 * at) & 127), out);
    }
};

#elif WEIGHT_FORMAT == FORMAT_IQ2_S
// f16 d | u8[32] low bits of grid | u8[32] signs | two more bits of grid each | 4-bit scales of 16 weights
struct W {
    static constexpr int BLOCK = 256, BYTES = 82, ORDER = ORDER_SIXTEENS;
    typedef SelectorTables Tables;
    struct State { u32 d, scales; Products p; };

    static DEVICE void load_tables(Tables &t, u32 thread, u32 threads) { load_selectors(t, thread, threads); }
    static DEVICE State load(const u8 *block, int lane) { return {twice(half_at(block)), lane_scales(block + 74, lane)}; }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Tables &t, u32 out[4]) {
        if (run % 2 == 0) s.p = three_products(s.d, BYTES_TO_HALF2(s.scales, run / 2, run / 2));
        const u8 *q = block + 2 + 4 * (run & ~1) + 2 * lane + (run & 1);
        const u32 more = block[66 + (run & ~1) + (lane >> 1)] >> (4 * (lane & 1) + 2 * (run & 1)) & 3;
        pick(s.p, t.selectors[q[0] | more << 8] ^ eight_signs(q[32]), out);
    }
};

#elif WEIGHT_FORMAT == FORMAT_IQ3_XXS || WEIGHT_FORMAT == FORMAT_IQ3_S
// Codebooks of 4 magnitudes up to 62, in shared memory as they are.
// IQ3_XXS: f16 d | u8[64] of grid | of each run a word of 4 times 7 bits of sign and a 4-bit scale n: d (2n + 1) / 4
// IQ3_S: f16 d | u8[64] low bits of grid | a ninth bit each | u8[32] signs | 4-bit scales of runs n: d (2n + 1)
struct W {
    static constexpr bool XXS = WEIGHT_FORMAT == FORMAT_IQ3_XXS;
    static constexpr int BLOCK = 256, BYTES = XXS ? 98 : 110, ORDER = ORDER_EIGHTS, ENTRIES = XXS ? 256 : 512;
    struct Tables { u32 grid[ENTRIES]; };
    struct State { u32 d; u32 scales; };

    static DEVICE void load_tables(Tables &t, u32 thread, u32 threads) {
#if WEIGHT_FORMAT == FORMAT_IQ3_XXS
        for (u32 i = thread; i < ENTRIES; i += threads) t.grid[i] = IQ3XXS_GRID[i];
#else
        for (u32 i = thread; i < ENTRIES; i += threads) t.grid[i] = IQ3S_GRID[i];
#endif
    }
    static DEVICE State load(const u8 *block, int) {
        u32 d = twice(half_at(block));
        return {XXS ? half2_mul(d, 0x34003400u) : d, XXS ? 0 : load_u32_at2(block + 106)};
    }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Tables &t, u32 out[4]) {
        u32 q = ((const u16 *)(block + 2))[4 * run + lane], n, signs, grid[2];
        if (XXS) {
            u32 word = load_u32_at2(block + 66 + 4 * run);
            n = word >> 28, signs = with_parity(word >> (7 * lane) & 127);
            grid[0] = t.grid[q & 255], grid[1] = t.grid[q >> 8];
        } else {
            u32 high = block[66 + run] >> (2 * lane);
            n = s.scales >> (4 * run) & 15, signs = block[74 + 4 * run + lane];
            grid[0] = t.grid[(q & 255) | (high & 1) << 8], grid[1] = t.grid[q >> 8 | (high & 2) << 7];
        }
        u32 scale = integer(2 * n + 1, 0), minus = half2_mul(scale, HALF2_MINUS_1024), spread = spread_signs(signs);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 biased = i % 2 ? BYTES_TO_HALF2(grid[i / 2], 2, 3) : BYTES_TO_HALF2(grid[i / 2], 0, 1);
            out[i] = with_signs(spread, i, half2_mul(scaled_integers(biased, scale, minus), s.d));
        }
    }
};

#elif WEIGHT_FORMAT == FORMAT_IQ4_NL
// f16 d | 16 bytes: low nibbles are weights 0..15, high nibbles 16..31; a nibble indexes 16 uneven values
struct W {
    static constexpr int BLOCK = 32, BYTES = 18, ORDER = ORDER_HALVES;
    typedef Iq4Values Tables;
    struct State { u32 d; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int) { return {twice(half_at(block))}; }
    static DEVICE void decode(State &s, const u8 *block, int, int lane, const Sixteen &t, u32 out[4]) {
        const u8 *q = block + 2 + 4 * lane;
        table_of_16<128>(half_at(q) + half_at(q + 2) * t.two_16, t, s.d, out);
    }
};

#elif WEIGHT_FORMAT == FORMAT_IQ4_XS
// f16 d | high bits and low nibbles of the 6-bit scales of runs, offset by 32 | runs as IQ4_NL.
struct W {
    static constexpr int BLOCK = 256, BYTES = 136, ORDER = ORDER_HALVES;
    typedef Iq4Values Tables;
    struct State { u32 d, low, high; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int) { return {twice(half_at(block)), load_u32(block + 4), half_at(block + 2)}; }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Sixteen &t, u32 out[4]) {
        u32 n = (s.low >> (4 * run) & 15) | (s.high >> (2 * run) & 3) << 4;
        const Scale scale = product_of(half2_add(BYTES_TO_HALF2(n, 0, 0), HALF2_MINUS(32)), s.d);
        table_of_16<128>(load_u32(block + 8 + 16 * run + 4 * lane), t, scale, out);
    }
};

#elif WEIGHT_FORMAT == FORMAT_MXFP4
// u8 exponent e | 16 bytes of nibbles as IQ4_NL, 4-bit floats times two: 2^(e - 128), in f16 (0 below 2^-24, so below a
// weight of 12 * 2^-24; beyond 2^15 it is infinite). Blocks of 17 bytes begin anywhere.
struct W {
    static constexpr int BLOCK = 32, BYTES = 17, ORDER = ORDER_HALVES;
    typedef Fp4Values Tables;
    struct State { u32 d; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int) {
        u32 e = block[0];
        float d = bits_to_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        return {float2_to_half2(d, d)};
    }
    static DEVICE void decode(State &s, const u8 *block, int, int lane, const Sixteen &t, u32 out[4]) {
        table_of_16<12>(load_u32_at1(block + 1 + 4 * lane), t, s.d, out);
    }
};

#elif WEIGHT_FORMAT == FORMAT_NVFP4
// Four scales (unsigned 8-bit floats, halved) of 16 weights | 8 bytes each: low nibbles are weights 0..7, high 8..15
struct W {
    static constexpr int BLOCK = 64, BYTES = 36, ORDER = ORDER_HALVES;
    typedef Fp4Values Tables;
    struct State { u32 d; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int) { return {load_u32(block)}; }
    static DEVICE u32 scale(u32 bits) { // an 8-bit float's exponent is 8 less than that of f16; 0x7f is 0
        float f = bits == 0x7f ? 0.0f : half_to_float((u16)((bits & 127) << 7)) * 128.0f; // 2^8 for the exponents, 1/2
        return float_to_half(f);
    }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Sixteen &t, u32 out[4]) {
        u32 d = s.d >> (16 * run), scales = scale(d & 255) | scale(d >> 8 & 255) << 16, shift = 4 * (lane >> 1);
        const u8 *q = block + 4 + 16 * run + 4 * (lane & 1);
        u32 low = load_u32(q) >> shift & 0x0f0f0f0fu, high = load_u32(q + 8) >> shift & 0x0f0f0f0fu;
        table_of_16<12>(low | high << 4, t, scales, out);
    }
};

#elif WEIGHT_FORMAT == FORMAT_Q4_0 || WEIGHT_FORMAT == FORMAT_Q4_1 || WEIGHT_FORMAT == FORMAT_Q5_0 || WEIGHT_FORMAT == FORMAT_Q5_1
// f16 d | f16 m of the _1 | u32 fifth bits of the 5s | 16 bytes: low nibbles are weights 0..15, high nibbles 16..31.
// (q - 8 or 16) d, or q d + m.
struct W {
    static constexpr bool MIN = WEIGHT_FORMAT == FORMAT_Q4_1 || WEIGHT_FORMAT == FORMAT_Q5_1;
    static constexpr bool FIVE = WEIGHT_FORMAT == FORMAT_Q5_0 || WEIGHT_FORMAT == FORMAT_Q5_1;
    static constexpr int BLOCK = 32, HEAD = MIN ? 4 : 2, QS = HEAD + (FIVE ? 4 : 0), BYTES = QS + 16, ORDER = ORDER_NIBBLES;
    typedef NoTables Tables;
    struct State { u32 d, m, fifth; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int) {
        return {twice(half_at(block)), MIN ? twice(half_at(block + 2)) : 0, FIVE ? load_u32_at2(block + HEAD) : 0};
    }
    static DEVICE void decode(State &s, const u8 *block, int, int lane, const Tables &, u32 out[4]) {
        u32 q = load_u32_at2(block + QS + 4 * lane);
        // Bits 0 and 2 of four to where a pair's fifth bits belong (16, or 256 for upper nibbles), bits 1 and 3 one above.
        u32 low = FIVE ? (s.fifth >> (4 * lane) & 15) * 0x00040010u : 0, high = FIVE ? (s.fifth >> (16 + 4 * lane) & 15) * 0x00400100u : 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 l = (q & 0x000f000fu) | HALF2_1024, h = (q & 0x00f000f0u) | HALF2_1024; // 1024 + n, 1024 + 16 n
            if (FIVE) l |= low & 0x00100010u, h |= high & 0x01000100u;
            constexpr u32 OFFSET = MIN ? 0 : FIVE ? 16 : 8;
            constexpr u32 MINUS_64 = MIN ? 0xd400d400u : FIVE ? 0xd500d500u : 0xd480d480u; // -64, -80, -72
            l = half2_add(l, HALF2_MINUS(OFFSET)), h = half2_fma(h, 0x2c002c00u, MINUS_64);
            out[2 * i] = MIN ? half2_fma(l, s.d, s.m) : half2_mul(l, s.d);
            out[2 * i + 1] = MIN ? half2_fma(h, s.d, s.m) : half2_mul(h, s.d);
            q >>= 8, low >>= 1, high >>= 1;
        }
    }
};

#elif WEIGHT_FORMAT == FORMAT_Q8_0
// f16 d | i8[32]
struct W {
    static constexpr int BLOCK = 32, BYTES = 34, ORDER = ORDER_EIGHTS;
    typedef NoTables Tables;
    struct State { u32 d; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int) { return {twice(half_at(block))}; }
    static DEVICE void decode(State &s, const u8 *block, int, int lane, const Tables &, u32 out[4]) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 q = load_u32_at2(block + 2 + 8 * lane + 4 * i) ^ 0x80808080u;
            out[2 * i] = half2_mul(half2_add(BYTES_TO_HALF2(q, 0, 1), HALF2_MINUS(128)), s.d);
            out[2 * i + 1] = half2_mul(half2_add(BYTES_TO_HALF2(q, 2, 3), HALF2_MINUS(128)), s.d);
        }
    }
};

#elif WEIGHT_FORMAT == FORMAT_Q2_K
// u8[16] scale and minimum of 16 weights | u8[64] of 2 bits, four that are 32 apart in a byte | f16 d | f16 dmin.
// Rounded twice (less).
struct W {
    static constexpr int BLOCK = 256, BYTES = 84, ORDER = ORDER_EIGHTS;
    typedef NoTables Tables;
    struct State { u32 d, dmin, scales[2]; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int lane) {
        u32 pick = lane >> 1 ? 0x7531u : 0x6420u; // this lane's of each pair
        return {twice(half_at(block + 80)), twice(half_at(block + 82)) ^ 0x80008000u,
                {prmt(load_u32(block), load_u32(block + 4), pick), prmt(load_u32(block + 8), load_u32(block + 12), pick)}};
    }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Tables &, u32 out[4]) {
        u32 both = s.scales[run >> 2], scale = integer(both & 0x0f0f0f0fu, run & 3);
        const Scale min = product_of(integer(both >> 4 & 0x0f0f0f0fu, run & 3), s.dmin);
        const u32 minus = half2_mul(scale, HALF2_MINUS_1024);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 q = load_u32(block + 16 + run / 4 * 32 + 8 * lane + 4 * i) >> (run % 4 * 2) & 0x03030303u;
            out[2 * i] = less(scaled_integers(BYTES_TO_HALF2(q, 0, 1), scale, minus), s.d, min);
            out[2 * i + 1] = less(scaled_integers(BYTES_TO_HALF2(q, 2, 3), scale, minus), s.d, min);
        }
    }
};

#elif WEIGHT_FORMAT == FORMAT_Q3_K
// u8[32] third bits | u8[64] of 2 bits as Q2_K | 6-bit scales of 16 weights, offset by 32 | f16 d
struct W {
    static constexpr int BLOCK = 256, BYTES = 110, ORDER = ORDER_EIGHTS;
    typedef NoTables Tables;
    struct State { u32 d, scales[2]; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int lane) {
        // Of the low nibbles and of the high bits, those of this lane's group in each run.
        u32 low = prmt(load_u32_at2(block + 96), load_u32_at2(block + 100), lane >> 1 ? 0x7531u : 0x6420u);
        u32 high = prmt(load_u32_at2(block + 104), 0, lane >> 1 ? 0x3131u : 0x2020u);
        return {twice(half_at(block + 108)),
                {(low & 0x0f0f0f0fu) | (high << 4 & 0x00003030u) | (high << 2 & 0x30300000u),
                 (low >> 4 & 0x0f0f0f0fu) | (high & 0x00003030u) | (high >> 2 & 0x30300000u)}};
    }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Tables &, u32 out[4]) {
        u32 scale = half2_add(BYTES_TO_HALF2(s.scales[run >> 2], run & 3, run & 3), HALF2_MINUS(32));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 low = load_u32_at2(block + 32 + run / 4 * 32 + 8 * lane + 4 * i) >> (run % 4 * 2) & 0x03030303u;
            u32 third = load_u32_at2(block + 8 * lane + 4 * i), q = low | ((run < 2 ? third << (2 - run) : third >> (run - 2)) & 0x04040404u);
            out[2 * i] = half2_mul(half2_mul(half2_add(BYTES_TO_HALF2(q, 0, 1), HALF2_MINUS(4)), scale), s.d);
            out[2 * i + 1] = half2_mul(half2_mul(half2_add(BYTES_TO_HALF2(q, 2, 3), HALF2_MINUS(4)), scale), s.d);
        }
    }
};

#elif WEIGHT_FORMAT == FORMAT_Q4_K || WEIGHT_FORMAT == FORMAT_Q5_K
// f16 d | f16 dmin | 6-bit scales and minima of runs | Q5_K: u8[32] fifth bits, one a run | u8[128] nibbles: of each pair
// of runs the low and the high ones. Rounded twice (less).
struct W {
    static constexpr bool FIVE = WEIGHT_FORMAT == FORMAT_Q5_K;
    static constexpr int BLOCK = 256, BYTES = FIVE ? 176 : 144, QS = FIVE ? 48 : 16, ORDER = ORDER_EIGHTS;
    typedef NoTables Tables;
    struct State { u32 d, dmin, scales[2], mins[2]; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int) {
        u32 both = load_u32(block), a = load_u32(block + 4), b = load_u32(block + 8), c = load_u32(block + 12);
        return {twice(both & 0xffff), twice(both >> 16) ^ 0x80008000u,
                {a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u)},
                {b & 0x3f3f3f3fu, (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u)}};
    }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Tables &, u32 out[4]) {
        u32 scale = integer(s.scales[run >> 2], run & 3), minus = half2_mul(scale, HALF2_MINUS_1024);
        const Scale min = product_of(integer(s.mins[run >> 2], run & 3), s.dmin);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 q = load_u32(block + QS + run / 2 * 32 + 8 * lane + 4 * i) >> (run % 2 * 4) & 0x0f0f0f0fu;
            if (FIVE) {
                u32 fifth = load_u32(block + 16 + 8 * lane + 4 * i);
                q |= (run < 4 ? fifth << (4 - run) : fifth >> (run - 4)) & 0x10101010u;
            }
            out[2 * i] = less(scaled_integers(BYTES_TO_HALF2(q, 0, 1), scale, minus), s.d, min);
            out[2 * i + 1] = less(scaled_integers(BYTES_TO_HALF2(q, 2, 3), scale, minus), s.d, min);
        }
    }
};

#elif WEIGHT_FORMAT == FORMAT_Q6_K
// u8[128] low nibbles | u8[64] high two bits | i8[16] scales of 16 weights | f16 d
struct W {
    static constexpr int BLOCK = 256, BYTES = 210, ORDER = ORDER_EIGHTS;
    typedef NoTables Tables;
    struct State { u32 d; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int) { return {half_at(block + 208)}; }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Tables &, u32 out[4]) {
        const int half = run / 4, quarter = run % 4;
        u32 n = block[192 + 2 * run + (lane >> 1)] ^ 0x80;
        const Scale scale = product_of(half2_add(BYTES_TO_HALF2(n, 0, 0), HALF2_MINUS(128)), twice(s.d));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 low = load_u32_at2(block + half * 64 + quarter % 2 * 32 + 8 * lane + 4 * i) >> (quarter / 2 * 4) & 0x0f0f0f0fu;
            u32 high = load_u32_at2(block + 128 + half * 32 + 8 * lane + 4 * i);
            u32 q = low | ((quarter < 2 ? high << (4 - 2 * quarter) : high >> (2 * quarter - 4)) & 0x30303030u);
            out[2 * i] = times(half2_add(BYTES_TO_HALF2(q, 0, 1), HALF2_MINUS(32)), scale);
            out[2 * i + 1] = times(half2_add(BYTES_TO_HALF2(q, 2, 3), HALF2_MINUS(32)), scale);
        }
    }
};

#elif WEIGHT_FORMAT == FORMAT_TQ2_0
// u8[64] of 2 bits, four that are 32 apart in a byte, offset by 1 | f16 d
struct W {
    static constexpr int BLOCK = 256, BYTES = 66, ORDER = ORDER_EIGHTS;
    typedef NoTables Tables;
    struct State { u32 d; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int) { return {twice(half_at(block + 64))}; }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Tables &, u32 out[4]) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 q = load_u32_at2(block + run / 4 * 32 + 8 * lane + 4 * i) >> (run % 4 * 2) & 0x03030303u;
            out[2 * i] = half2_mul(half2_add(BYTES_TO_HALF2(q, 0, 1), HALF2_MINUS(1)), s.d);
            out[2 * i + 1] = half2_mul(half2_add(BYTES_TO_HALF2(q, 2, 3), HALF2_MINUS(1)), s.d);
        }
    }
};

#elif WEIGHT_FORMAT == FORMAT_Q2_0
// f16 d | u8[16] of 2 bits, four neighbours in a byte, offset by 1
struct W {
    static constexpr int BLOCK = 64, BYTES = 18, ORDER = ORDER_EIGHTS;
    typedef NoTables Tables;
    struct State { u32 d; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int) { return {twice(half_at(block))}; }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Tables &, u32 out[4]) {
        u32 q = half_at(block + 2 + 8 * run + 2 * lane), pairs = q | q << 14; // a pair's second one 16 bits above its first
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = half2_mul(half2_add((pairs >> (4 * i) & 0x00030003u) | HALF2_1024, HALF2_MINUS(1)), s.d);
    }
};

#elif WEIGHT_FORMAT == FORMAT_Q1_0
// f16 d | bits: set is d, clear is -d
struct W {
    static constexpr int BLOCK = 128, BYTES = 18, ORDER = ORDER_EIGHTS;
    typedef NoTables Tables;
    struct State { u32 d; };

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *block, int) { return {twice(half_at(block))}; }
    static DEVICE void decode(State &s, const u8 *block, int run, int lane, const Tables &, u32 out[4]) {
        u32 spread = spread_signs(~(u32)block[2 + 4 * run + lane] & 255);
#pragma unroll
        for (int i = 0; i < 4; i++) out[i] = with_signs(spread, i, s.d);
    }
};

#elif WEIGHT_FORMAT == FORMAT_F16 || WEIGHT_FORMAT == FORMAT_BF16
// Plain numbers. A matrix with a bfloat16 beyond the f16 range is multiplied in f32 instead (gemm.rs).
struct W {
    static constexpr int BLOCK = 32, BYTES = 64, ORDER = ORDER_EIGHTS;
    typedef NoTables Tables;
    struct State {};

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *, int) { return {}; }
    static DEVICE void decode(State &, const u8 *block, int, int lane, const Tables &, u32 out[4]) {
        u32 words[4];
        if (WEIGHT_ALIGN >= 16) {
            uint4 all = *(const uint4 *)(block + 16 * lane);
            words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) words[i] = load_u32(block + 16 * lane + 4 * i);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 two = words[i];
            out[i] = WEIGHT_FORMAT == FORMAT_F16 ? two : float2_to_half2(bits_to_float(two << 16), bits_to_float(two & 0xffff0000u));
        }
    }
};

#else
// Any other format: each weight by its definition.
struct W {
    static constexpr int BLOCK = WEIGHT_BLOCK < 32 ? 32 : WEIGHT_BLOCK, BYTES = WEIGHT_BYTES * (BLOCK / WEIGHT_BLOCK), ORDER = ORDER_EIGHTS;
    typedef NoTables Tables;
    struct State {};

    static DEVICE void load_tables(Tables &, u32, u32) {}
    static DEVICE State load(const u8 *, int) { return {}; }
    static DEVICE void decode(State &, const u8 *block, int run, int lane, const Tables &, u32 out[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 k = 32 * run + 8 * lane + 2 * i;
            out[i] = float2_to_half2(weight_of_row(block, k), weight_of_row(block, k + 1));
        }
    }
};
#endif
static_assert(W::ORDER == WEIGHT_ORDER, "source.rs knows the order");
static_assert(W::BLOCK % WEIGHT_BLOCK == 0 && W::BYTES == WEIGHT_BYTES * (W::BLOCK / WEIGHT_BLOCK), "the format table's sizes");
