// Causal depthwise convolution along the tokens, then SiLU; and the history for the next call.
//   y[t, c] = silu(sum over j of weight[c, j] * in[t - (taps-1-j) * dilation, c]),  in[-1] = the state's last row
#include "view.cuh"

struct ConvArgs {
    Floats x, weight, state, out;
    u32 dilation, accumulate;
};
AS_HOST(ConvArgs, CONV_ARGS);

// Row `row` of the state followed by the chunk.
DEVICE float input(const ConvArgs &a, u32 row, u32 c) {
    return row < a.state.rows ? a.state.at(row, 0)[c] : a.x.at(row - a.state.rows, 0)[c];
}

extern "C" __global__ void conv(const __grid_constant__ ConvArgs a) {
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x, taps = a.weight.cols, history = a.state.rows;
    if (c >= a.x.cols) return;
    const float *weight = a.weight.at(c, 0);
    for (u32 t = blockIdx.y; t < a.x.rows; t += gridDim.y) {
        float sum = 0;
        for (u32 j = 0; j < taps; j++) sum = fmaf(weight[j], input(a, history + t - (taps - 1 - j) * a.dilation, c), sum);
        float y = silu(sum), *out = a.out.at(t, 0) + c;
        *out = a.accumulate ? *out + y : y;
    }
}

// state = the last rows of state and chunk. A thread moves a column upwards, so it reads a row before it overwrites it.
extern "C" __global__ void conv_state(const __grid_constant__ ConvArgs a) {
    const u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= a.x.cols) return;
    for (u32 r = 0; r < a.state.rows; r++) a.state.at(r, 0)[c] = input(a, a.x.rows + r, c);
}
