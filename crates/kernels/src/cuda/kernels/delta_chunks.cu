// The gated delta rule, a chunk of tokens at a time (the UT transform of its WY form), on tensor cores, as exact as in f32. Formulas as in delta_net.cu; what they
// come to within a chunk that begins with the state M is derived in cpu/delta_net.rs. With c[t] the product of the decays up to t:
//
//   A[t, s] = c[t]/c[s] q^[t].k^[s] for s <= t    L[t, s] = b[t] c[t]/c[s] k^[t].k^[s] for s < t    T = (1 + L)^-1
//   d = T b (v - c k^ M)                          [CHUNK, Cv]
//   out = c q^ M + A d
//   M' = c[n] M + sum over s of k^[s] (c[n]/c[s] d[s])^T
//
// `delta_prepare` makes q^, k^, T and A of all chunks at once. `delta_chunks` then goes from chunk to chunk: two warps keep 16
// columns of M each, in the registers of a product's sums, and two more make the outputs of these columns, half a chunk behind.
// All products are transposed, columns of M being rows of the tensor cores: sums become operands where they are.
//
// Every operand is the sum of two f16, 22 bits, and a product three: what both small parts give is beyond f32. Sums of M, d and
// their kin are scaled row by row by a power of two; everything that `delta_prepare` makes is at most 1. Where a number of 16
// columns is infinite or none, which zeros of A and T do not keep from earlier tokens, they are marked, their state is left as it
// was, and delta_net.cu makes them anew, token after token.
#include "delta.cuh"
#include "mma.cuh"

constexpr u32 CK = DELTA_WIDTH, CV = DELTA_V_WIDTH, CHUNK = CHUNK_TOKENS, COLUMNS = CHUNK_COLUMNS;
constexpr u32 CKP = (CK + 15) / 16 * 16;                  // of k^ and q^, with zeros
constexpr u32 UNITS = 2 * CKP, MIXING = 2 * CHUNK;        // f16 in a row: the large parts, then the small ones
constexpr u32 UNITS_P = UNITS + 8;                        // from row to row: 16 bytes more, for the banks of shared memory
constexpr float SCALE = 1024;                             // of numbers that are at most 1: their small parts are no subnormals
static_assert(CK <= CHUNK_WIDEST, "a warp keeps 16 columns in registers");
static_assert(CHUNK == 32 && COLUMNS == 2 * DELTA_COLUMNS, "a lane has a token, a warp the columns that are marked together");

struct ChunkArgs : DeltaRule {
    u16 *units;     // [chunks, Hk, 2 CHUNK, UNITS_P]: k^, then q^, times SCALE
    u16 *mixing;    // [chunks, Hv, 2 CHUNK, MIXING]: T, then A, times SCALE; pieces of 16 bytes exchanged by the row modulo 8
    float *factors; // [chunks, Hv, 3, CHUNK]: c, b, c[n]/c
    u32 *spoilt;    // [1 + Hv * ceil(Cv / 16)]: whether there is one; then which
    u32 vectors;    // values begin at multiples of 16 bytes and are whole ones
};
AS_HOST(ChunkArgs, CHUNK_ARGS);

// A number as the sum of two f16.
struct Split {
    u16 high, low;
    DEVICE Split(float x) : high(float_to_half(x)), low(float_to_half(x - half_to_float(high))) {}
};
// Number i of a row of T or A, where `delta_chunks` wants it.
DEVICE void store_mixing(u16 *mixing, u32 row, u32 i, float x) {
    const Split split(x);
    mixing += row * MIXING + i % 8;
    mixing[(i / 8 ^ row % 8) * 8] = split.high, mixing[((i + CHUNK) / 8 ^ row % 8) * 8] = split.low;
}

// Products with a split left operand: the sums of the large parts, and of what is 2^11 times smaller.
struct Sums {
    float large[4], small[4];

    DEVICE void add(const u32 *high, const u32 *low, u32 h0, u32 h1, u32 l0, u32 l1) {
        mma(large, high, h0, h1), mma(small, high, l0, l1), mma(small, low, h0, h1);
    }
    DEVICE float operator[](u32 i) const { return large[i] + small[i]; }
};

// ---- what chunks need that no other chunk has a part in ------------------------------------------------------------------

constexpr u32 PREPARE_WARPS = 4, PARTS = (CKP + 31) / 32, SQUARE_P = CHUNK + 4;

extern "C" __global__ void __launch_bounds__(32 * PREPARE_WARPS) delta_prepare(const __grid_constant__ ChunkArgs a) {
    __shared__ union {
        __align__(16) u16 units[2 * CHUNK][UNITS_P];
        float later[PREPARE_WARPS][CHUNK][SQUARE_P]; // L, when k^ and q^ are done with
    } first_then;
    auto &units = first_then.units;
    auto &later = first_then.later;
    __shared__ float products[2][CHUNK][SQUARE_P]; // k^ k^T, q^ k^T
    const u32 chunk = blockIdx.x, key_head = blockIdx.y, key_heads = a.k.groups, heads = a.v.groups;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = chunk * CHUNK, count = min(CHUNK, a.v.rows - first);
    if (chunk == 0 && key_head == 0 && threadIdx.x == 0) *a.spoilt = 0;

    u16 *all = a.units + ((u64)chunk * key_heads + key_head) * (2 * CHUNK * UNITS_P);
    constexpr u32 TOGETHER = 4; // rows on their way
    for (u32 row0 = warp * TOGETHER; row0 < 2 * CHUNK; row0 += PREPARE_WARPS * TOGETHER) {
        const bool queries = row0 >= CHUNK;
        float x[TOGETHER][PARTS];
#pragma unroll
        for (u32 r = 0; r < TOGETHER; r++) {
            const u32 token = row0 % CHUNK + r;
            const float *from = (queries ? a.q : a.k).at(first + min(token, count - 1), key_head);
#pragma unroll
            for (u32 p = 0; p < PARTS; p++) x[r][p] = token < count && 32 * p + lane < CK ? from[32 * p + lane] : 0.0f;
        }
#pragma unroll
        for (u32 r = 0; r < TOGETHER; r++) {
            float squares = 0;
#pragma unroll
            for (u32 p = 0; p < PARTS; p++) squares = fmaf(x[r][p], x[r][p], squares);
            const float unit = (queries ? SCALE / sqrtf((float)CK) : SCALE) / sqrtf(warp_sum(squares) + a.eps);
#pragma unroll
            for (u32 p = 0; p < PARTS; p++) {
                const u32 i = 32 * p + lane;
                if (i >= CKP) break;
                const Split split(x[r][p] * unit);
                u16 *here = &units[row0 + r][i], *there = all + (row0 + r) * UNITS_P + i;
                here[0] = there[0] = split.high, here[CKP] = there[CKP] = split.low;
            }
        }
    }
    __syncthreads();
    { // a warp has 16 rows of one of the products
        const u32 which = warp / 2, row0 = warp % 2 * 16, g = lane / 4, c = lane % 4;
        const u32 left = (which * CHUNK + row0 + lane % 16) * UNITS_P + lane / 16 * 8;
        const u32 right = (lane / 16 * 8 + lane % 8) * UNITS_P + lane / 8 % 2 * 8;
        Sums sums[CHUNK / 8] = {};
#pragma unroll 2
        for (u32 i = 0; i < CKP; i += 16) {
            u32 high[4], low[4];
            load_matrices(high, shared_address(&units[0][left + i])), load_matrices(low, shared_address(&units[0][left + CKP + i]));
#pragma unroll
            for (u32 n = 0; n < CHUNK / 8; n += 2) {
                u32 h[4], l[4];
                load_matrices(h, shared_address(&units[8 * n][right + i])), load_matrices(l, shared_address(&units[8 * n][right + CKP + i]));
                sums[n].add(high, low, h[0], h[1], l[0], l[1]), sums[n + 1].add(high, low, h[2], h[3], l[2], l[3]);
            }
        }
#pragma unroll
        for (u32 n = 0; n < CHUNK / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) products[which][row0 + g + i / 2 * 8][8 * n + 2 * c + i % 2] = sums[n][i] / (SCALE * SCALE);
    }
    __syncthreads();

    // A warp has a value head, a lane first a token and then a column of L, T and A.
    const u32 shared_by = heads / key_heads;
    for (u32 i = warp; i < shared_by; i += PREPARE_WARPS) {
        const u32 head = a.grouped ? key_head * shared_by + i : i * key_heads + key_head;
        const bool is = lane < count;
        const float x = is ? a.alpha.at(first + lane, 0)[head] + a.dt_bias.first[head] : 0.0f;
        double log = is ? (double)(a.a.first[head] * (fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))))) : 0.0;
#pragma unroll
        for (u32 d = 1; d < 32; d *= 2) {
            const double before = __shfl_up_sync(~0u, log, d);
            if (lane >= d) log += before;
        }
        const float rate = is ? sigmoid(a.beta.at(first + lane, 0)[head]) : 0.0f;
        float *factors = a.factors + ((u64)chunk * heads + head) * (3 * CHUNK);
        factors[lane] = expf((float)log), factors[CHUNK + lane] = rate;
        factors[2 * CHUNK + lane] = expf((float)(__shfl_sync(~0u, log, 31) - log));

        u16 *mixing = a.mixing + ((u64)chunk * heads + head) * (2 * CHUNK * MIXING);
#pragma unroll 4
        for (u32 t = 0; t < CHUNK; t++) {
            const float decay = expf((float)(__shfl_sync(~0u, log, t) - log)), b = __shfl_sync(~0u, rate, t);
            later[warp][t][lane] = lane < t ? b * decay * products[0][t][lane] : 0.0f;
            store_mixing(mixing, CHUNK + t, lane, lane <= t ? decay * products[1][t][lane] * SCALE : 0.0f);
        }
        __syncwarp();
        float column[CHUNK]; // of T, row by row
#pragma unroll
        for (u32 t = 0; t < CHUNK; t++) {
            float known[2] = {};
#pragma unroll
            for (u32 s = 0; s < t; s++) known[s % 2] = fmaf(later[warp][t][s], column[s], known[s % 2]);
            column[t] = (t == lane ? 1.0f : 0.0f) - (known[0] + known[1]);
            store_mixing(mixing, t, lane, column[t] * SCALE);
        }
        __syncwarp(); // nobody reads L any more
    }
}

// ---- from chunk to chunk ----------------------------------------------------------------------------------------------------

constexpr u32 THREADS = 128, STEPS = CKP / 16; // of a product with M
constexpr u32 V_P = COLUMNS + 4;

// Row by row split operands of a product, as each lane has them; and what their rows are to be multiplied by.
template <u32 PIECES> struct Operand {
    uint4 high[PIECES][32], low[PIECES][32];
    float powers[16];
};

struct Stage {
    u16 units[2 * CHUNK][UNITS_P], mixing[2 * CHUNK][MIXING];
    float v[CHUNK][V_P], factors[3][CHUNK];
};

struct Memory {
    Stage stages[DELTA_STAGES];
    Operand<STEPS> m[2];
    Operand<CHUNK / 16> d[2];
    u32 spoilt[4]; // of each warp
};
AS_HOST(Memory, SHARED_BYTES);

DEVICE u32 magnitude(float x) { return __float_as_uint(x) & 0x7fffffff; }

// Sums [16, 8 N] of this warp's rows: splits them, each row scaled by a power of two, into `high` and `low`, gives what undoes
// the scale, with that of the right operand, and has `most` grow to their largest magnitude.
template <u32 N> DEVICE void split_rows(const float (&x)[N][4], u32 (&high)[N / 2][4], u32 (&low)[N / 2][4], float (&powers)[2], u32 &most) {
    float scale[2];
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 row = 0;
#pragma unroll
        for (u32 n = 0; n < N; n++) row = max(row, max(magnitude(x[n][2 * h]), magnitude(x[n][2 * h + 1])));
        row = max(row, __shfl_xor_sync(~0u, row, 1)), row = max(row, __shfl_xor_sync(~0u, row, 2));
        most = max(most, row);
        const i32 e = min(126, 127 + 13 - (i32)(row >> 23)); // to between 2^13 and 2^14
        scale[h] = power_of_two(e), powers[h] = power_of_two(-e) / SCALE;
    }
#pragma unroll
    for (u32 n = 0; n < N; n++)
#pragma unroll
        for (u32 h = 0; h < 2; h++)
            split(x[n][2 * h] * scale[h], x[n][2 * h + 1] * scale[h], high[n / 2][n % 2 * 2 + h], low[n / 2][n % 2 * 2 + h]);
}

template <u32 N> DEVICE void publish(Operand<N> &to, const u32 (&high)[N][4], const u32 (&low)[N][4], const float (&powers)[2], u32 lane) {
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        to.high[i][lane] = make_uint4(high[i][0], high[i][1], high[i][2], high[i][3]);
        to.low[i][lane] = make_uint4(low[i][0], low[i][1], low[i][2], low[i][3]);
    }
    if (lane % 4 == 0) to.powers[lane / 4] = powers[0], to.powers[lane / 4 + 8] = powers[1];
}

DEVICE void take(u32 (&to)[4], const uint4 &from) { to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w; }

// sums[16, CHUNK] += left[16, 16] right[CHUNK, 16]^T, for the tokens from tile FROM on; `right(n, small)`: this lane's place in the
// parts of tiles n and n + 1.
template <u32 FROM, typename Right> DEVICE void times_rows(Sums (&sums)[CHUNK / 8], const u32 (&high)[4], const u32 (&low)[4], Right right) {
#pragma unroll
    for (u32 n = FROM; n < CHUNK / 8; n += 2) {
        u32 h[4], l[4];
        load_matrices(h, right(n, 0)), load_matrices(l, right(n, 1));
        sums[n].add(high, low, h[0], h[1], l[0], l[1]), sums[n + 1].add(high, low, h[2], h[3], l[2], l[3]);
    }
}

// As many bytes as `to` has, by all threads.
template <typename T> DEVICE void copy_all(T &to, const void *from) {
    const u32 first = shared_address(&to);
#pragma unroll
    for (u32 i = 0; i < sizeof to; i += 16 * THREADS)
        if (i + 16 * threadIdx.x < sizeof to) copy16_async(first + i + 16 * threadIdx.x, (const u8 *)from + i + 16 * threadIdx.x);
}

struct Lane {
    u32 warp, lane, g, c; // sums[n][i] are row g + i / 2 * 8, token or row of M 8n + 2c + i % 2
    u32 row, piece;       // of right operands in row order
    DEVICE Lane() : warp(threadIdx.x / 32 % 2), lane(threadIdx.x % 32), g(lane / 4), c(lane % 4), row(lane / 16 * 8 + lane % 8), piece(lane / 8 % 2 * 8) {}
};

extern "C" __global__ void __launch_bounds__(THREADS, 2) delta_chunks(const __grid_constant__ ChunkArgs a) {
    extern __shared__ __align__(16) u8 bytes[];
    Memory &memory = *(Memory *)bytes;
    const u32 head = blockIdx.y, key_heads = a.k.groups, key_head = a.grouped ? head / (a.v.groups / key_heads) : head % key_heads;
    const u32 t = threadIdx.x, tokens = a.v.rows, chunks = (tokens + CHUNK - 1) / CHUNK, column0 = blockIdx.x * COLUMNS;
    const Lane me;
    const bool keeps = t < THREADS / 2;

    auto fill = [&](u32 chunk) {
        Stage &stage = memory.stages[chunk % DELTA_STAGES];
        copy_all(stage.units, a.units + ((u64)chunk * key_heads + key_head) * (sizeof stage.units / 2));
        copy_all(stage.mixing, a.mixing + ((u64)chunk * a.v.groups + head) * (sizeof stage.mixing / 2));
        copy_all(stage.factors, a.factors + ((u64)chunk * a.v.groups + head) * (sizeof stage.factors / 4));
        constexpr u32 PIECES = COLUMNS / 4; // of 16 bytes
        for (u32 i = t; i < CHUNK * PIECES; i += THREADS) {
            const u32 token = i / PIECES, column = i % PIECES * 4;
            if (chunk * CHUNK + token >= tokens || column0 + column >= CV) continue;
            const float *from = a.v.at(chunk * CHUNK + token, head) + column0 + column;
            float *to = &stage.v[token][column];
            if (a.vectors) copy16_async(shared_address(to), from);
            else
                for (u32 j = 0; j < min(4u, CV - column0 - column); j++) copy4_async(shared_address(to + j), from + j);
        }
        copy_commit();
    };
    // Values of tokens and columns that there are not stay 0.
    for (u32 i = t; i < DELTA_STAGES * CHUNK * V_P; i += THREADS) (&memory.stages[i / (CHUNK * V_P)].v[0][0])[i % (CHUNK * V_P)] = 0;
    __syncthreads();
    fill(0);

    const u32 column = column0 + 16 * me.warp + me.g; // and the one 8 further
    u32 most = 0;                                     // the largest magnitude, as bits
    float m[2 * STEPS][4];
    if (keeps) {
#pragma unroll
        for (u32 n = 0; n < 2 * STEPS; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                const u32 row = 8 * n + 2 * me.c + i % 2, at = column + i / 2 * 8;
                m[n][i] = row < CK && at < CV ? a.state.at(head, row)[at] : 0.0f;
            }
    }
    for (u32 chunk = 0; chunk < chunks; chunk++) {
        const Stage &stage = memory.stages[chunk % DELTA_STAGES];
        Operand<STEPS> &left_m = memory.m[me.warp];
        Operand<CHUNK / 16> &left_d = memory.d[me.warp];
        if (keeps) {
            u32 high[STEPS][4], low[STEPS][4];
            float powers[2];
            split_rows(m, high, low, powers, most);
            publish(left_m, high, low, powers, me.lane);
        }
        copy_wait<0>();
        __syncthreads(); // M and this chunk are there, and everybody has left the one before
        if (DELTA_STAGES > 1 && chunk + 1 < chunks) fill(chunk + 1);

        // k^ M, or q^ M
        Sums sums[CHUNK / 8] = {};
        const u32 units = shared_address(&stage.units[(keeps ? 0 : CHUNK) + me.row][me.piece]);
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) {
            u32 high[4], low[4];
            take(high, left_m.high[i][me.lane]), take(low, left_m.low[i][me.lane]);
            times_rows<0>(sums, high, low, [&](u32 n, u32 small) { return units + 2 * (8 * n * UNITS_P + 16 * i + small * CKP); });
        }
        float x[CHUNK / 8][4];
#pragma unroll
        for (u32 n = 0; n < CHUNK / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                const u32 token = 8 * n + 2 * me.c + i % 2;
                x[n][i] = sums[n][i] * left_m.powers[me.g + i / 2 * 8] * stage.factors[0][token];
                if (keeps) x[n][i] = stage.factors[1][token] * (stage.v[token][16 * me.warp + me.g + i / 2 * 8] - x[n][i]);
            }
        // This warp's rows times those of T, or of A, of tokens that are not all before: the d of all tokens.
        auto mix = [&](const u32 (&high)[CHUNK / 16][4], const u32 (&low)[CHUNK / 16][4], u32 which, Sums (&sums)[CHUNK / 8]) {
            const u32 rows = shared_address(&stage.mixing[which * CHUNK + me.row][0]);
            auto right = [&](u32 piece) { return [=](u32 n, u32 small) { return rows + 2 * 8 * n * MIXING + 16 * ((piece + small * CHUNK / 8) ^ me.row % 8); }; };
            times_rows<0>(sums, high[0], low[0], right(me.piece / 8));
            times_rows<2>(sums, high[1], low[1], right(me.piece / 8 + 2));
        };
        u32 high[CHUNK / 16][4], low[CHUNK / 16][4];
        float powers[2];
        Sums mixed[CHUNK / 8] = {};
        if (keeps) {
            split_rows(x, high, low, powers, most);
            mix(high, low, 0, mixed);
#pragma unroll
            for (u32 n = 0; n < CHUNK / 8; n++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) x[n][i] = mixed[n][i] * powers[i / 2]; // d
            split_rows(x, high, low, powers, most);
            publish(left_d, high, low, powers, me.lane);
        }
        __syncthreads(); // d is there
        if (keeps) {
#pragma unroll
            for (u32 n = 0; n < CHUNK / 8; n++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) x[n][i] *= stage.factors[2][8 * n + 2 * me.c + i % 2];
            split_rows(x, high, low, powers, most);
            const float keep = stage.factors[0][CHUNK - 1];
            const u16 *right = &stage.units[me.piece + me.lane % 8][me.lane / 16 * 8];
#pragma unroll
            for (u32 n = 0; n < 2 * STEPS; n += 2) {
                u32 h[CHUNK / 16][4], l[CHUNK / 16][4];
                float two[2][4] = {};
#pragma unroll
                for (u32 i = 0; i < CHUNK / 16; i++) {
                    const u16 *here = right + 16 * i * UNITS_P + 8 * n;
                    load_transposed(h[i], shared_address(here)), load_transposed(l[i], shared_address(here + CKP));
                    // What is small first, so that it takes no more sums.
                    mma(two[0], high[i], l[i][0], l[i][1]), mma(two[1], high[i], l[i][2], l[i][3]);
                    mma(two[0], low[i], h[i][0], h[i][1]), mma(two[1], low[i], h[i][2], h[i][3]);
                }
#pragma unroll
                for (u32 i = 0; i < CHUNK / 16; i++) mma(two[0], high[i], h[i][0], h[i][1]), mma(two[1], high[i], h[i][2], h[i][3]);
#pragma unroll
                for (u32 i = 0; i < 8; i++) m[n + i / 4][i % 4] = fmaf(keep, m[n + i / 4][i % 4], two[i / 4][i % 4] * powers[i % 4 / 2]);
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < CHUNK / 16; i++) take(high[i], left_d.high[i][me.lane]), take(low[i], left_d.low[i][me.lane]);
            mix(high, low, 1, mixed);
#pragma unroll
            for (u32 n = 0; n < CHUNK / 8; n++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    const u32 token = chunk * CHUNK + 8 * n + 2 * me.c + i % 2, at = column + i / 2 * 8;
                    const float out = fmaf(mixed[n][i], left_d.powers[me.g + i / 2 * 8], x[n][i]);
                    most = max(most, magnitude(out));
                    if (token < tokens && at < CV) a.out.at(token, head)[at] = out;
                }
        }
        if (DELTA_STAGES == 1 && chunk + 1 < chunks) {
            __syncthreads(); // everybody has left this chunk
            fill(chunk + 1);
        }
    }
    if (keeps) {
#pragma unroll
        for (u32 n = 0; n < 2 * STEPS; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) most = max(most, magnitude(m[n][i]));
    }
    const bool spoilt = __any_sync(~0u, most >= 0x7f800000);
    if (me.lane == 0) memory.spoilt[t / 32] = spoilt;
    __syncthreads();
    if (!keeps) return;
    const bool marked = memory.spoilt[me.warp] || memory.spoilt[me.warp + 2];
    const u32 groups = (CV + 15) / 16, group = 2 * blockIdx.x + me.warp;
    if (group >= groups) return;
    if (me.lane == 0) a.spoilt[1 + head * groups + group] = marked;
    if (marked) {
        *a.spoilt = 1; // whoever writes it
        return;
    }
#pragma unroll
    for (u32 n = 0; n < 2 * STEPS; n++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 row = 8 * n + 2 * me.c + i % 2, at = column + i / 2 * 8;
            if (row < CK && at < CV) a.state.at(head, row)[at] = m[n][i];
        }
}
