// f32 activations to the f16 operands of a product, and the product of two halves of a gated layer.
//
// A row becomes f16(x * 2^-s): s is 0 unless a number of the row is beyond the f16 range; then it is the least power of
// two that brings the row inside, undone in the product's epilogue. Columns go where the weight format's decoder wants
// them (stored_column), which does not change a sum.
#include "order.cuh"
#include "range.cuh"
#include "view.cuh"

struct ActArgs {
    Floats x;          // [M, 1, K]
    u16 *out;          // [M, stride]
    i32 *exponents;    // [M]
    const u32 *rows;   // how many rows there are (a word of a plan's meta), or null: all
    const u32 *needed; // 0 there: nothing is to be done; null: it is
    u64 stride;
    u32 order;
};
AS_HOST(ActArgs, ACT_ARGS);

// Columns of a row that are kept while its largest is looked for: then they are read in another order.
constexpr u32 KEPT = 4096;

extern "C" __global__ void act_f16(const __grid_constant__ ActArgs a) {
    after_previous();
    const u32 cols = a.x.cols, rows = a.rows ? *a.rows : a.x.rows;
    if (a.needed && *a.needed == 0) return;
    __shared__ __align__(16) float kept[KEPT];
    const bool quads = in_quads(a.x);
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        const float *x = a.x.at(row, 0);
        float most = 0;
        for (u32 c = 4 * threadIdx.x; c < cols; c += 4 * blockDim.x) {
            const float4 v = load4(x, c, cols, quads);
            most = fmaxf(most, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
            if (c < KEPT) *(float4 *)(kept + c) = v;
        }
        const i32 s = range_exponent(block_max(most));
        if (threadIdx.x == 0) a.exponents[row] = s;
        const float scale = power_of_two(-s);
        u32 *out = (u32 *)(a.out + row * a.stride);
        for (u32 pair = threadIdx.x; pair < a.stride / 2; pair += blockDim.x) {
            const float *from = 2 * pair < KEPT ? kept : x; // a pair's columns are among the same 64
            const u32 first = source_column(a.order, 2 * pair), second = source_column(a.order, 2 * pair + 1);
            out[pair] = float2_to_half2(first < cols ? from[first] * scale : 0.0f, second < cols ? from[second] * scale : 0.0f);
        }
        __syncthreads(); // `kept` is the next row's
    }
}
static_assert(KEPT % 64 == 0, "a pair is here or there");

struct SwigluArgs {
    Floats gate, up;        // [R, 1, F]
    const i32 *stok;        // of a routed product, or null
    const u32 *meta;
};
AS_HOST(SwigluArgs, SWIGLU_ARGS);

// gate = silu(gate) * up, in the rows that are no padding: where one product could not make both.
extern "C" __global__ void swiglu(const __grid_constant__ SwigluArgs a) {
    after_previous();
    const u32 row = blockIdx.x;
    if (a.stok && (row >= a.meta[META_ROWS] || a.stok[row] < 0)) return;
    float *gate = a.gate.at(row, 0);
    const float *up = a.up.at(row, 0);
    const u32 cols = a.gate.cols;
    const bool quads = in_quads(a.gate) && in_quads(a.up);
    for (u32 c = 4 * threadIdx.x; c < cols; c += 4 * blockDim.x) {
        const float4 g = load4(gate, c, cols, quads), u = load4(up, c, cols, quads);
        store4(gate, c, cols, quads, make_float4(silu(g.x) * u.x, silu(g.y) * u.y, silu(g.z) * u.z, silu(g.w) * u.w));
    }
}

struct SumArgs {
    Floats out;        // [M, 1, N]
    const float *sums; // [parts, M, N]
    const float *bias; // [N] or null
    const u32 *exceeded; // not 0 there: there are no sums, another kernel has multiplied; or null
    u32 parts, end;    // end: an epilogue (gemm.cu) that stores one number for each sum
    float scale;
};
AS_HOST(SumArgs, SUM_ARGS);

// What is stored for a product whose columns were shared out.
extern "C" __global__ void add_parts(const __grid_constant__ SumArgs a) {
    after_previous();
    if (a.exceeded && *a.exceeded) return;
    const u32 row = blockIdx.x, n = a.out.cols;
    for (u32 c = blockIdx.y * blockDim.x + threadIdx.x; c < n; c += gridDim.y * blockDim.x) {
        float p = a.bias ? a.bias[c] : 0.0f;
        for (u32 i = 0; i < a.parts; i++) p += a.sums[((u64)i * a.out.rows + row) * n + c];
        float *out = a.out.at(row, 0) + c;
        *out = a.end == EPILOGUE_ACCUMULATE ? *out + p : a.end == EPILOGUE_SILU ? silu(p * a.scale) : p;
    }
}
