// out[t, s, :] = sigmoid(r(key[t, s] . query[t, s] / sqrt(D))) * value[t, :],  r(g) = sign(g) sqrt(max(|g|, 1e-6))
#include "view.cuh"

struct PleArgs { Floats key, query, value, out; };
AS_HOST(PleArgs, PLE_ARGS);

extern "C" __global__ void ple_gate(const __grid_constant__ PleArgs a) {
    const u32 row = blockIdx.x / a.key.groups, stream = blockIdx.x % a.key.groups, cols = a.key.cols;
    const float *key = a.key.at(row, stream), *query = a.query.at(row, stream), *value = a.value.at(row, 0);
    float sum = 0;
    for (u32 c = threadIdx.x; c < cols; c += blockDim.x) sum = fmaf(key[c], query[c], sum);
    const float g = block_sum(sum) / sqrtf((float)cols), root = sqrtf(fmaxf(fabsf(g), 1e-6f));
    const float gate = sigmoid(g == 0.0f ? 0.0f : copysignf(root, g));
    float *out = a.out.at(row, stream);
    for (u32 c = threadIdx.x; c < cols; c += blockDim.x) out[c] = gate * value[c];
}
