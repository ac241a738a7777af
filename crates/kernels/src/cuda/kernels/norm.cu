// out = x / sqrt(mean(x^2) + eps) * weight, and perhaps * activation(gate): a block of threads for one group of one row.
#include "view.cuh"

struct NormArgs {
    Floats x, weight, gate, out; // weight [1, G or 1, C]; gate only where there is an activation; out may be x
    float eps;
    u32 activation;
};
AS_HOST(NormArgs, NORM_ARGS);

extern "C" __global__ void rms_norm(const __grid_constant__ NormArgs a) {
    const u32 row = blockIdx.x / a.x.groups, group = blockIdx.x % a.x.groups, cols = a.x.cols;
    const float *x = a.x.at(row, group), *weight = a.weight.at(0, a.weight.groups == 1 ? 0 : group);
    const float *gate = a.activation == NORM_PLAIN ? nullptr : a.gate.at(row, group);
    float *out = a.out.at(row, group);
    float sum = 0;
    for (u32 c = threadIdx.x; c < cols; c += blockDim.x) sum = fmaf(x[c], x[c], sum);
    const float root = sqrtf(block_sum(sum) / (float)cols + a.eps);
    for (u32 c = threadIdx.x; c < cols; c += blockDim.x) {
        float y = x[c] / root * weight[c];
        if (gate) y *= a.activation == NORM_SILU ? silu(gate[c]) : sigmoid(gate[c]);
        out[c] = y;
    }
}
