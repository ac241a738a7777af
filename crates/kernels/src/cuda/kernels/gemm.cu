// Grouped and dense products of f16 activations with quantised weights.
//
//   p[r, n] = 2^s[row(r)] * sum over k of x[row(r), k] * w[expert(r), n, k],   then an epilogue
//
// Why this shape: an expert sees few tokens (T*K/E, often below 64) and its weights are read once, so decoding them is
// the cost. Weights are therefore the 64-row side of the tensor core product and go from packed bytes straight to
// operand registers, each decoded once for all tokens of the tile (decode.cuh); tokens are the side whose size is free
// (8 to 192). No row is gathered beforehand: a tile fetches its tokens' rows through the plan while earlier columns are
// multiplied.
//
// Compiled for one WEIGHT_FORMAT, token tile GEMM_TOKENS, row map and epilogue:
//   MAP_DENSE     token r of the tile is input row r
//   MAP_GATHER    input row stok[r0 + r]           (gate and up)
//   MAP_SEGMENTS  input row r0 + r                 (down)
//   EPILOGUE_STORE       out[row, n] = p + bias[n]
//   EPILOGUE_ACCUMULATE  out[row, n] += p + bias[n]
//   EPILOGUE_SILU        out[row, n] = silu((p + bias[n]) * scale)
//   EPILOGUE_SWIGLU      out[row, f] = silu(gate) * up; with GEMM_HALF_OUT also as f16, in that order of columns, for the
//                        product that follows; a number beyond the f16 range is counted in `beyond`
#include "decode.cuh"
#include "mma.cuh"

#define MAP_DENSE 0
#define MAP_GATHER 1
#define MAP_SEGMENTS 2
#define EPILOGUE_STORE 0
#define EPILOGUE_ACCUMULATE 1
#define EPILOGUE_SILU 2
#define EPILOGUE_SWIGLU 3

static_assert(GEMM_CHUNK % W::BLOCK == 0, "a stage holds whole blocks");
constexpr int N = GEMM_TOKENS;

constexpr int WARPGROUPS = 2, THREADS = 128 * WARPGROUPS;
constexpr int ROWS = 64 * WARPGROUPS;                // weight rows of a block: for SwiGLU half gate, half up
constexpr int CHUNK = GEMM_CHUNK;                    // columns of a pipeline stage
constexpr int RUNS = CHUNK / 32;
constexpr int SEGMENT = CHUNK / W::BLOCK * W::BYTES; // packed bytes of a row in a stage
// A segment begins anywhere in a 16-byte piece. An odd number of pieces from row to row spreads rows over the banks.
constexpr int PIECES = ((SEGMENT + 30) / 16) | 1, PITCH = 16 * PIECES;
constexpr int WEIGHT_STAGE = ROWS * PITCH, TOKEN_STAGE = N * CHUNK * 2;
constexpr int STAGE_BYTES = (TOKEN_STAGE + WEIGHT_STAGE + 1023) / 1024 * 1024;

struct GemmArgs {
    const u16 *x;         // [*, x_stride] f16, columns in the format's order
    const i32 *exponents; // [*] s of each row of x
    const u8 *w0, *w1;    // packed rows; w1: the up matrix of SwiGLU
    float *out;           // [*, out_stride]
    u16 *half;            // [*, half_stride]
    u32 *beyond;          // written with `half`: how many of its numbers are infinite
    const u32 *scaled;    // 0 there: no row of x is scaled and `exponents` say nothing; null: they do
    const float *bias;    // [n] or null
    const i32 *stok;      // [R]
    const u32 *tiles;     // [meta[0], 3]: expert, first row, valid rows
    const u32 *meta;
    u64 expert_bytes, row_bytes;
    u64 x_stride, out_stride, half_stride;
    u32 k, n;             // columns, weight rows (of one matrix)
    u32 tokens;           // dense: rows of x
    u32 parts;            // thread blocks that share a plan's tile of more than N rows
    u32 row_blocks;       // blocks of weight rows
    u32 splits, blocks_per_split; // thread blocks a tile, and the row blocks that each walks through
    float scale;
};

// x / (1 + e^-x) within a few units in the last place.
DEVICE float fast_silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

// What is stored for a product, where `before` is.
DEVICE float finished(float p, const float &before, float scale) {
    return GEMM_EPILOGUE == EPILOGUE_ACCUMULATE ? before + p : GEMM_EPILOGUE == EPILOGUE_SILU ? fast_silu(p * scale) : p;
}

// Where a pipeline stage comes from: one chunk of columns of one block of weight rows.
struct Step { u32 row_block, chunk; };

extern "C" __global__ void __launch_bounds__(THREADS, GEMM_BLOCKS) gemm(const __grid_constant__ GemmArgs a) {
    extern __shared__ __align__(1024) u8 shared[];
    __shared__ W::Tables tables;
    __shared__ i32 rows[N];
    __shared__ float powers[N]; // 2^s
    const u32 part = blockIdx.x / a.splits % a.parts, tile = blockIdx.x / a.splits / a.parts, split = blockIdx.x % a.splits;
    u32 expert = 0, r0 = tile * N, valid = 0;
    if (GEMM_MAP == MAP_DENSE) {
        valid = min((u32)N, a.tokens - r0);
    } else {
        if (tile >= a.meta[0]) return;
        expert = a.tiles[3 * tile], r0 = a.tiles[3 * tile + 1] + part * N, valid = a.tiles[3 * tile + 2];
        if (valid <= part * N) return;
        valid = min((u32)N, valid - part * N);
    }
    const u32 t = threadIdx.x, warp = t / 32, group = warp / 4, lane = t % 32, quad = lane / 4, c = lane % 4;
    i32 exponent = 0;
    if (t < N) {
        i32 row = t >= valid ? -1 : GEMM_MAP == MAP_GATHER ? a.stok[r0 + t] : (i32)(r0 + t);
        if (row >= 0 && !(a.scaled && *a.scaled == 0)) exponent = a.exponents[row];
        rows[t] = row, powers[t] = power_of_two(exponent);
    }
    W::load_tables(tables, t, THREADS);
    const bool scaled = __syncthreads_or(exponent != 0);

    // Weight row `slot` of a block: for SwiGLU the first half are gate rows, the second half the up rows that belong to them.
    constexpr bool SWIGLU = GEMM_EPILOGUE == EPILOGUE_SWIGLU;
    constexpr u32 BLOCK_N = SWIGLU ? ROWS / 2 : ROWS;
    const u32 slot0 = SWIGLU ? 32 * group + 8 * (warp % 4) + quad : 64 * group + 16 * (warp % 4) + quad;
    const u32 slot1 = slot0 + (SWIGLU ? ROWS / 2 : 8);
    auto row_address = [&](u32 row_block, u32 slot) {
        u32 row = min(row_block * BLOCK_N + slot % BLOCK_N, a.n - 1);
        return (u64)(SWIGLU && slot >= BLOCK_N ? a.w1 : a.w0) + expert * a.expert_bytes + row * a.row_bytes;
    };

    const u32 chunks = (a.k + CHUNK - 1) / CHUNK;
    const u32 first_block = split * a.blocks_per_split, last_block = min(first_block + a.blocks_per_split, a.row_blocks);
    const u32 steps = last_block > first_block ? (last_block - first_block) * chunks : 0;

    // Filling a stage: two threads a weight row; for tokens a thread keeps its piece of the columns and walks over rows.
    constexpr u32 PIECES_X = CHUNK / 8, WALK = THREADS / PIECES_X, WALKS = (N + WALK - 1) / WALK;
    static_assert(THREADS % PIECES_X == 0, "a stage's columns are a power of two of 16-byte pieces");
    const u32 fill_slot = t / 2, shared0 = shared_address(shared), first_token = t / PIECES_X, piece_x = t % PIECES_X;
    const u16 *source[WALKS]; // this thread's piece of each row of its walk, null for a row without a token
#pragma unroll
    for (u32 i = 0; i < WALKS; i++) {
        u32 token = first_token + i * WALK;
        i32 row = token < N ? rows[token] : -1;
        source[i] = row >= 0 ? a.x + (u64)row * a.x_stride + piece_x * 8 : nullptr;
    }
    Step next = {first_block, 0};
    u32 next_stage = 0;
    u64 fill_address = row_address(next.row_block, fill_slot);
    auto fill = [&]() {
        const u32 at = shared0 + next_stage * STAGE_BYTES, first = next.chunk * CHUNK, columns = min((u32)CHUNK, a.k - first);
        const bool inside = !GEMM_TAIL || piece_x * 8 < columns;
#pragma unroll
        for (u32 i = 0; i < WALKS; i++) {
            u32 token = first_token + i * WALK;
            bool use = source[i] && inside;
            if (N % WALK == 0 || token < N) copy16_async(activation_address<N>(at, token, piece_x), use ? source[i] + first : a.x, use);
        }
        const u32 begin = (u32)fill_address & 15, end = begin + columns / W::BLOCK * W::BYTES;
        const u8 *from = (const u8 *)(fill_address - begin);
#pragma unroll
        for (u32 i = 0; i < (PIECES + 1) / 2; i++) {
            u32 piece = 2 * i + t % 2;
            if (piece * 16 < end) copy16_async(at + TOKEN_STAGE + fill_slot * PITCH + piece * 16, from + piece * 16, true);
        }
        next_stage = next_stage + 1 == GEMM_STAGES ? 0 : next_stage + 1;
        fill_address += SEGMENT;
        if (++next.chunk == chunks) {
            next.chunk = 0;
            fill_address = row_address(++next.row_block, fill_slot);
        }
    };

    u32 filled = 0;
#pragma unroll
    for (u32 s = 0; s < GEMM_STAGES - 1; s++) {
        if (filled < steps) fill(), filled++;
        copy_commit();
    }
    float acc[N / 2];
    Step at = {first_block, 0};
    u32 stage = 0;
    u32 begin0 = 0, begin1 = 0;
    for (u32 step = 0; step < steps; step++) {
        if (at.chunk == 0) {
#pragma unroll
            for (int i = 0; i < N / 2; i++) acc[i] = 0;
            begin0 = (u32)row_address(at.row_block, slot0), begin1 = (u32)row_address(at.row_block, slot1);
        }
        copy_wait<GEMM_STAGES - 2>();
        product_fence();
        __syncthreads(); // this stage is full, and everybody has left the one that is filled next
        if (filled < steps) fill(), filled++;
        copy_commit();

        const u8 *base = shared + stage * STAGE_BYTES;
        const u8 *block0 = base + TOKEN_STAGE + slot0 * PITCH + (begin0 & 15);
        const u8 *block1 = base + TOKEN_STAGE + slot1 * PITCH + (begin1 & 15);
        const u32 runs = GEMM_TAIL ? min((u32)CHUNK, a.k - at.chunk * CHUNK) / 32 : RUNS;
        u32 operand[2][8];
        W::State s0, s1;
#pragma unroll
        for (int run = 0; run < RUNS; run++) {
            if (GEMM_TAIL && run >= runs) break;
            const u8 *b0 = block0 + run * 32 / W::BLOCK * W::BYTES, *b1 = block1 + run * 32 / W::BLOCK * W::BYTES;
            if (run * 32 % W::BLOCK == 0) s0 = W::load(b0, c), s1 = W::load(b1, c);
            u32 g[4], h[4];
            W::decode(s0, b0, run * 32 % W::BLOCK / 32, c, tables, g);
            W::decode(s1, b1, run * 32 % W::BLOCK / 32, c, tables, h);
            product_wait<1>(); // the products of the run before last have read their operands
            u32 *o = operand[run & 1];
            o[0] = g[0], o[1] = h[0], o[2] = g[1], o[3] = h[1], o[4] = g[2], o[5] = h[2], o[6] = g[3], o[7] = h[3];
            multiply<N>(acc, o, shared0 + stage * STAGE_BYTES, run, lane);
        }
        product_wait<0>();
        stage = stage + 1 == GEMM_STAGES ? 0 : stage + 1;
        begin0 += SEGMENT, begin1 += SEGMENT;
        if (++at.chunk < chunks) continue;

        // acc[4i + 2h + j]: fragment row quad + 8h, token 8i + 2c + j
        if (scaled) {
#pragma unroll
            for (int i = 0; i < N / 2; i++) acc[i] *= powers[i / 4 * 8 + 2 * c + i % 2];
        }
        const u32 n0 = at.row_block * BLOCK_N + slot0;
        const bool in0 = n0 < a.n, in1 = !SWIGLU && n0 + 8 < a.n;
        float *to = a.out + (u64)(r0 + 2 * c) * a.out_stride + n0;
#ifdef GEMM_BIAS
        const float bias0 = in0 ? a.bias[n0] : 0.0f, bias1 = in1 ? a.bias[n0 + 8] : 0.0f;
#else
        constexpr float bias0 = 0, bias1 = 0;
#endif
#ifdef GEMM_HALF_OUT
        u16 *half = a.half + (u64)(r0 + 2 * c) * a.half_stride + stored_column<GEMM_HALF_OUT>(n0);
        bool beyond = false;
#endif
#pragma unroll
        for (int i = 0; i < N / 8; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float p0 = acc[4 * i + j], p1 = acc[4 * i + 2 + j];
                if (8 * i + 2 * c + j < valid) {
                    if (SWIGLU) {
                        const float h = fast_silu(p0) * p1;
                        if (in0) to[0] = h;
#ifdef GEMM_HALF_OUT
                        if (in0) *half = float_to_half(h);
                        beyond |= fabsf(h) >= 65520.0f;
#endif
                    } else {
                        if (in0) to[0] = finished(p0 + bias0, to[0], a.scale);
                        if (in1) to[8] = finished(p1 + bias1, to[8], a.scale);
                    }
                }
                to += (j == 0 ? 1 : 7) * a.out_stride;
#ifdef GEMM_HALF_OUT
                half += (j == 0 ? 1 : 7) * a.half_stride;
#endif
            }
#ifdef GEMM_HALF_OUT
        if (beyond && in0) atomicAdd(a.beyond, 1);
#endif
        at = {at.row_block + 1, 0};
    }
}
