// Causal depthwise convolution along the tokens, then SiLU; and the history for the next call.
//   y[t, c] = silu(sum over j of weight[c, j] * in[t - (taps-1-j) * dilation, c]),  in[-1] = the state's last row
#include "view.cuh"

struct ConvArgs {
    Floats x, weight, state, out;
    u32 dilation, accumulate;
};
AS_HOST(ConvArgs, CONV_ARGS);

// Row `row` of the state followed by the chunk.
DEVICE float *input(const ConvArgs &a, u32 row) { return row < a.state.rows ? a.state.at(row, 0) : a.x.at(row - a.state.rows, 0); }

// Tap j of columns c to c + 3.
DEVICE float4 taps4(const ConvArgs &a, u32 c, u32 j) {
    const auto of = [&](u32 column) { return a.weight.at(min(column, a.x.cols - 1), 0)[j]; };
    return make_float4(of(c), of(c + 1), of(c + 2), of(c + 3));
}

// A thread takes four columns of CONV_TOKENS tokens: what one of these reads, the next ones find near. CONV_TAPS: so many taps, which stay
// in registers; 0: too many for that.
extern "C" __global__ void conv(const __grid_constant__ ConvArgs a) {
    constexpr u32 KEPT = CONV_TAPS ? CONV_TAPS : 1;
    const u32 c = 4 * (blockIdx.x * blockDim.x + threadIdx.x), cols = a.x.cols, history = a.state.rows, taps = CONV_TAPS ? CONV_TAPS : a.weight.cols;
    if (c >= cols) return;
    const bool quads = in_quads(a.x) && in_quads(a.state) && in_quads(a.out);
    float4 kept[KEPT];
#pragma unroll
    for (u32 j = 0; j < KEPT; j++) kept[j] = taps4(a, c, j);
    for (u32 t0 = blockIdx.y * CONV_TOKENS; t0 < a.x.rows; t0 += gridDim.y * CONV_TOKENS)
        for (u32 t = t0; t < min(t0 + CONV_TOKENS, a.x.rows); t++) {
            float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll KEPT
            for (u32 j = 0; j < taps; j++) {
                const float4 w = CONV_TAPS ? kept[CONV_TAPS ? j : 0] : taps4(a, c, j);
                const float4 x = load4(input(a, history + t - (taps - 1 - j) * a.dilation), c, cols, quads);
                sum = make_float4(fmaf(w.x, x.x, sum.x), fmaf(w.y, x.y, sum.y), fmaf(w.z, x.z, sum.z), fmaf(w.w, x.w, sum.w));
            }
            float4 y = make_float4(silu(sum.x), silu(sum.y), silu(sum.z), silu(sum.w));
            float *out = a.out.at(t, 0);
            if (a.accumulate) y = fma4(1, load4(out, c, cols, quads), y);
            store4(out, c, cols, quads, y);
        }
}

// state = the last rows of state and chunk. A thread moves a column upwards, so it reads a row before it overwrites it.
extern "C" __global__ void conv_state(const __grid_constant__ ConvArgs a) {
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= a.x.cols) return;
    for (u32 r = 0; r < a.state.rows; r++) a.state.at(r, 0)[c] = input(a, a.x.rows + r)[c];
}
