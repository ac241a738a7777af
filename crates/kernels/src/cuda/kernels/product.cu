// Grouped and dense products in f32: weights decoded exactly, products as exact as in f32. For the mode f32, and in every mode
// for the weights that the tensor cores' f16 kernel does not take (plain f32, rows that are no whole runs of 32).
//
// Tensor cores take f32 operands of 11 bits (tf32). So a number is the sum of the nearest such number and of what is left, which is
// as close as f32 but for one unit in its last place. Of the four products of two sums the least, below 2^-24 of the whole, is left
// out. Tensor cores add up 16 columns, in sums of their own, since they cut off the lower bits of a sum; f32 additions do the rest.
// (Of an infinite number nothing is left that is a number: where f32 has an infinity, these have a NaN.)
//
// Compiled for one WEIGHT_FORMAT, row map and epilogue as gemm.cu. A block of threads makes 64 tokens x 64 outputs, a warp of its
// 8 makes 16 x 32.
#include "exact.cuh"
#include "mma.cuh"
#include "view.cuh"

constexpr u32 TOKENS = PRODUCT_TILE, OUTPUTS = PRODUCT_TILE, COLUMNS = 16; // of a stage
static_assert(PRODUCT_TILE == 64, "16 tokens and 32 outputs of each of 8 warps");
constexpr bool SWIGLU = GEMM_EPILOGUE == EPILOGUE_SWIGLU, MEAN = GEMM_EPILOGUE == EPILOGUE_GATE_MEAN;
#if GEMM_EPILOGUE == EPILOGUE_GATE_MEAN
constexpr u32 STREAMS = GEMM_STREAMS;
#else
constexpr u32 STREAMS = 1;
#endif
constexpr u32 MATRICES = SWIGLU ? 2 : 1;

struct ProductArgs {
    Floats x, out;
    Floats normed;        // [tokens, STREAMS, D], of EPILOGUE_GATE_MEAN
    const u8 *w0, *w1;    // packed rows; w1: the up matrix of SwiGLU
    const float *bias;    // [n] or null
    const i32 *stok;
    const u32 *tiles, *meta;
    const u32 *exceeded[2]; // 0 where both are, if there are any: another kernel has multiplied
    u32 *beyond;            // otherwise set there, if it is anywhere: that kernel has written no rows in f16
    u64 expert_bytes, row_bytes;
    u32 k, n, tokens, parts;
    float scale;
};
AS_HOST(ProductArgs, PRODUCT_ARGS);

// Columns of a stage, line by line: a lane's four are one piece, and the eight lanes that read at once meet all banks.
struct Stage { float x[TOKENS][COLUMNS], w[MATRICES][OUTPUTS][COLUMNS]; };

// Four numbers, each as the sum of two of tf32.
struct Split {
    u32 high[4], low[4];

    DEVICE Split(const float *four) {
        const float4 v = *(const float4 *)four;
        const float f[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            high[i] = to_tf32(__float_as_uint(f[i]) + (1 << 12)); // the nearest
            low[i] = to_tf32(__float_as_uint(f[i] - __uint_as_float(high[i])));
        }
    }
};

// Numbers k to k + 3 of a row, 0 beyond its end.
DEVICE float4 four_of(const float *row, u32 k, u32 cols, bool quads) { return k < cols ? load4(row, k, cols, quads) : make_float4(0, 0, 0, 0); }

// The weight row of an output, counted over all blocks of threads: those of a column's streams are neighbours.
DEVICE u32 weight_row(u32 output, u32 n) { return output % STREAMS * (n / STREAMS) + output / STREAMS; }

// The means of gated streams for one row: of 8 outputs from 8f on, this lane has `first` + 8f and the next, and the three lanes beside it
// the others.
DEVICE void store_means(const ProductArgs &a, const float (&sums)[4][4], u32 h, u32 row, bool valid, u32 first) {
    constexpr u32 EIGHTS = STREAMS < 16 ? 1 : 2, LANES = STREAMS < 8 ? (STREAMS + 1) / 2 : 4; // that have a column's streams
#pragma unroll
    for (u32 f = 0; f < 4; f += EIGHTS) {
        const u32 column = (first + 8 * f) / STREAMS;
        const bool there = valid && column < a.out.cols;
        float sum = 0;
#pragma unroll
        for (u32 i = 0; i < 2 * EIGHTS; i++) {
            if (!there) break;
            const u32 stream = (first + 8 * f) % STREAMS + i / 2 * 8 + i % 2;
            const float bias = a.bias ? a.bias[stream * a.out.cols + column] : 0.0f;
            sum = fmaf(sigmoid(sums[f + i / 2][2 * h + i % 2] + bias), a.normed.at(row, stream)[column], sum);
        }
#pragma unroll
        for (u32 apart = 1; apart < LANES; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
        if (there && threadIdx.x % LANES == 0) a.out.at(row, 0)[column] = sum / STREAMS;
    }
}

// Two blocks a multiprocessor: for more, the assembler would save registers and put products that wait for each other one after another.
extern "C" __global__ void __launch_bounds__(256, 2) product(const __grid_constant__ ProductArgs a) {
    __shared__ __align__(16) Stage stages[2];
    if (a.exceeded[0] || a.exceeded[1]) {
        if (!(a.exceeded[0] && *a.exceeded[0]) && !(a.exceeded[1] && *a.exceeded[1])) return;
        if (a.beyond && threadIdx.x == 0) *a.beyond = 1; // all blocks of threads the same
    }
    const u32 part = blockIdx.x % a.parts, tile = blockIdx.x / a.parts, t = threadIdx.x;
    u32 expert = 0, r0 = tile * TOKENS, valid = 0;
    if (GEMM_MAP == MAP_DENSE) {
        valid = min(TOKENS, a.tokens - r0);
    } else {
        if (tile >= a.meta[META_TILES]) return;
        expert = a.tiles[3 * tile], r0 = a.tiles[3 * tile + 1] + part * TOKENS, valid = a.tiles[3 * tile + 2];
        if (valid <= part * TOKENS) return;
        valid = min(TOKENS, valid - part * TOKENS);
    }

    const u32 n0 = blockIdx.y * OUTPUTS, warp = t / 32, quad = t % 32 / 4, c = t % 4;
    const u32 token0 = warp / 2 * 16 + quad, output0 = warp % 2 * 32; // of this warp's tile: lines `token0` and 8 more, 32 outputs
    const u32 line = t / 4, piece = t % 4 * 4; // what this thread fetches: four columns of a line
    const u32 x_cols = line < valid ? a.k : 0, w_cols = n0 + line < a.n ? a.k : 0;
    const float *x = a.x.at(line >= valid ? 0 : GEMM_MAP == MAP_GATHER ? a.stok[r0 + line] : r0 + line, 0);
    const bool quads = in_quads(a.x);
    const u8 *w[2] = {a.w0, a.w1};
#pragma unroll
    for (u32 m = 0; m < MATRICES; m++) w[m] += expert * a.expert_bytes + weight_row(min(n0 + line, a.n - 1), a.n) * a.row_bytes;
    float acc[MATRICES][4][4] = {};
    // The next columns are fetched while these are multiplied.
    float4 next_x, next_w[MATRICES];
    auto fetch = [&](u32 k) {
        next_x = four_of(x, k, x_cols, quads);
#pragma unroll
        for (u32 m = 0; m < MATRICES; m++) next_w[m] = four_weights(w[m], k, w_cols);
    };
    fetch(piece);
    for (u32 k0 = 0; k0 < a.k; k0 += COLUMNS) {
        Stage &stage = stages[k0 / COLUMNS % 2]; // whoever reads the other one's columns before these is through
        *(float4 *)&stage.x[line][piece] = next_x;
#pragma unroll
        for (u32 m = 0; m < MATRICES; m++) *(float4 *)&stage.w[m][line][piece] = next_w[m];
        __syncthreads();
        fetch(k0 + COLUMNS + piece);
        // Lane c takes columns 4c to 4c + 3; of these the first two are one product's, the others another's.
        const Split x0(&stage.x[token0][4 * c]), x8(&stage.x[token0 + 8][4 * c]);
#pragma unroll
        for (u32 m = 0; m < MATRICES; m++) {
            const auto split = [&](u32 f) { return Split(&stage.w[m][output0 + 8 * f + quad][4 * c]); };
            const Split w[4] = {split(0), split(1), split(2), split(3)};
            float sums[4][4] = {};
#pragma unroll
            for (u32 i = 0; i < 4; i += 2) {
                const u32 high[4] = {x0.high[i], x8.high[i], x0.high[i + 1], x8.high[i + 1]};
                const u32 low[4] = {x0.low[i], x8.low[i], x0.low[i + 1], x8.low[i + 1]};
                // Neighbouring instructions have different sums, so that none waits for the one before it.
#pragma unroll
                for (u32 f = 0; f < 4; f++) mma_tf32(sums[f], low, w[f].high[i], w[f].high[i + 1]);
#pragma unroll
                for (u32 f = 0; f < 4; f++) mma_tf32(sums[f], high, w[f].low[i], w[f].low[i + 1]);
#pragma unroll
                for (u32 f = 0; f < 4; f++) mma_tf32(sums[f], high, w[f].high[i], w[f].high[i + 1]);
            }
#pragma unroll
            for (u32 f = 0; f < 4; f++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) acc[m][f][i] += sums[f][i];
        }
    }
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        const u32 token = token0 + 8 * h;
        if (MEAN) store_means(a, acc[0], h, r0 + token, token < valid, n0 + output0 + 2 * c);
        if (MEAN || token >= valid) continue;
        float *out = a.out.at(r0 + token, 0);
#pragma unroll
        for (u32 f = 0; f < 4; f++)
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                const u32 n = n0 + output0 + 8 * f + 2 * c + j;
                if (n >= a.n) continue;
                float p = acc[0][f][2 * h + j];
                if (a.bias) p += a.bias[n];
                if (GEMM_EPILOGUE == EPILOGUE_ACCUMULATE) p += out[n];
                if (GEMM_EPILOGUE == EPILOGUE_SILU) p = silu(p * a.scale);
                if (SWIGLU) p = silu(p) * acc[SWIGLU][f][2 * h + j];
                out[n] = p;
            }
    }
}
