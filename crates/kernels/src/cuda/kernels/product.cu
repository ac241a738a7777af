// Grouped and dense products in f32: weights decoded exactly, f32 arithmetic. For the mode f32, and in every mode for the
// weights that the tensor cores' kernel does not take (plain f32, rows that are no whole runs of 32).
//
// Compiled for one WEIGHT_FORMAT, row map and epilogue as gemm.cu. A block of threads makes 64 tokens x 64 outputs.
#include "exact.cuh"
#include "view.cuh"

constexpr u32 TOKENS = PRODUCT_TILE, OUTPUTS = PRODUCT_TILE, COLUMNS = 16, PITCH = 64 + 4;
static_assert(PRODUCT_TILE == 64, "4 tokens and 4 outputs of each of 256 threads");
constexpr bool SWIGLU = GEMM_EPILOGUE == EPILOGUE_SWIGLU, MEAN = GEMM_EPILOGUE == EPILOGUE_GATE_MEAN;
#if GEMM_EPILOGUE == EPILOGUE_GATE_MEAN
constexpr u32 STREAMS = GEMM_STREAMS;
#else
constexpr u32 STREAMS = 1;
#endif
static_assert(OUTPUTS % STREAMS == 0, "a block of threads has all streams of a column, one after another");

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

// The mean of gated streams of this thread's 4 outputs, `first` the first of them, for one row: two columns of two streams, the
// four of a column, or four that neighbouring threads have the rest of.
DEVICE void store_mean(const ProductArgs &a, const float p[4], u32 row, bool valid, u32 first) {
    constexpr u32 OWN = STREAMS < 4 ? STREAMS : 4;
#pragma unroll
    for (u32 begin = 0; begin < 4; begin += OWN) {
        const u32 column = (first + begin) / STREAMS, stream = (first + begin) % STREAMS;
        const bool there = valid && column < a.out.cols;
        float sum = 0;
#pragma unroll
        for (u32 j = 0; there && j < OWN; j++) {
            const float bias = a.bias ? a.bias[(stream + j) * a.out.cols + column] : 0.0f;
            sum = fmaf(sigmoid(p[begin + j] + bias), a.normed.at(row, stream + j)[column], sum);
        }
#pragma unroll
        for (u32 apart = 1; apart < STREAMS / OWN; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
        if (there && stream == 0) a.out.at(row, 0)[column] = sum / STREAMS;
    }
}

extern "C" __global__ void __launch_bounds__(256) product(const __grid_constant__ ProductArgs a) {
    __shared__ __align__(16) float xs[COLUMNS][PITCH], ws[SWIGLU ? 2 : 1][COLUMNS][PITCH];
    __shared__ i32 rows[TOKENS];
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
    if (t < TOKENS) rows[t] = t >= valid ? -1 : GEMM_MAP == MAP_GATHER ? a.stok[r0 + t] : (i32)(r0 + t);
    __syncthreads();

    const u32 n0 = blockIdx.y * OUTPUTS, ty = t / 16, tx = t % 16; // this thread's 4 tokens and 4 outputs
    const u32 column = t % COLUMNS, line = t / COLUMNS;           // what it loads: a column of every 16th line
    // The weight row of an output of this block of threads, or a.n: there is none.
    const auto weight_row = [&](u32 output) {
        const u32 column = (n0 + output) / STREAMS, cols = a.n / STREAMS;
        return column < cols ? (n0 + output) % STREAMS * cols + column : a.n;
    };
    float acc[SWIGLU ? 2 : 1][4][4] = {};
    // The next columns are fetched while these are multiplied.
    float next_x[4], next_w[SWIGLU ? 2 : 1][4];
    auto fetch = [&](u32 k) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const i32 row = rows[line + 16 * i];
            const u32 n = weight_row(line + 16 * i);
            next_x[i] = row >= 0 && k < a.k ? a.x.at(row, 0)[k] : 0.0f;
            const u64 at = expert * a.expert_bytes + n * a.row_bytes;
            next_w[0][i] = n < a.n && k < a.k ? weight_of_row(a.w0 + at, k) : 0.0f;
            if (SWIGLU) next_w[SWIGLU][i] = n < a.n && k < a.k ? weight_of_row(a.w1 + at, k) : 0.0f;
        }
    };
    fetch(column);
    for (u32 k0 = 0; k0 < a.k; k0 += COLUMNS) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            xs[column][line + 16 * i] = next_x[i];
#pragma unroll
            for (u32 m = 0; m < (SWIGLU ? 2 : 1); m++) ws[m][column][line + 16 * i] = next_w[m][i];
        }
        __syncthreads();
        fetch(k0 + COLUMNS + column);
#pragma unroll
        for (u32 c = 0; c < COLUMNS; c++) {
            const float4 x = *(const float4 *)&xs[c][4 * ty];
#pragma unroll
            for (u32 m = 0; m < (SWIGLU ? 2 : 1); m++) {
                const float4 w = *(const float4 *)&ws[m][c][4 * tx];
                const float xv[4] = {x.x, x.y, x.z, x.w}, wv[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
                for (u32 i = 0; i < 4; i++)
#pragma unroll
                    for (u32 j = 0; j < 4; j++) acc[m][i][j] = fmaf(xv[i], wv[j], acc[m][i][j]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        const u32 token = 4 * ty + i;
        if (MEAN) store_mean(a, acc[0][i], r0 + token, token < valid, n0 + 4 * tx);
        if (MEAN || token >= valid) continue;
        float *out = a.out.at(r0 + token, 0);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 n = n0 + 4 * tx + j;
            if (n >= a.n) continue;
            float p = acc[0][i][j];
            if (a.bias) p += a.bias[n];
            if (GEMM_EPILOGUE == EPILOGUE_ACCUMULATE) p += out[n];
            if (GEMM_EPILOGUE == EPILOGUE_SILU) p = silu(p * a.scale);
            if (SWIGLU) p = silu(p) * acc[SWIGLU][i][j];
            out[n] = p;
        }
    }
}
