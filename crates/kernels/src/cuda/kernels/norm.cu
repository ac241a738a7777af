// out = x / sqrt(mean(x^2) + eps) * weight, and perhaps * activation(gate).
#include "view.cuh"

struct NormArgs {
    Floats x, weight, gate, out; // weight [1, G or 1, C]; gate only where there is an activation; out may be x
    float eps;
    u32 activation;
};
AS_HOST(NormArgs, NORM_ARGS);

// Quads of a group that a thread keeps between the sum and what comes of it.
constexpr u32 KEPT = NORM_KEPT;

// y * silu(gate) or y * sigmoid(gate)
DEVICE float activated(float y, float gate, u32 activation) { return y * ((activation == NORM_SILU ? gate : 1.0f) / (1.0f + expf(-gate))); }

// Group `index` of all rows, by `threads` threads, of which this is number `thread`, and which `add` sums over. QUADS: all rows are in
// quads, which is asked before all loads, not between them.
template <bool QUADS, typename Add> DEVICE void norm_group(const NormArgs &a, u32 index, u32 thread, u32 threads, Add add) {
    const u32 row = index / a.x.groups, group = index % a.x.groups, cols = a.x.cols;
    const bool plain = a.activation == NORM_PLAIN;
    const float *x = a.x.at(row, group), *weight = a.weight.at(0, a.weight.groups == 1 ? 0 : group);
    const float *gate = plain ? nullptr : a.gate.at(row, group);
    float *out = a.out.at(row, group);
    float4 kept[KEPT];
    float sum = 0;
    const auto square = [&](float4 v) { sum = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, sum)))); };
#pragma unroll
    for (u32 i = 0; i < KEPT; i++)
        if (const u32 c = 4 * (thread + i * threads); c < cols) square(kept[i] = load4(x, c, cols, QUADS));
#pragma unroll 1
    for (u32 c = 4 * (thread + KEPT * threads); c < cols; c += 4 * threads) square(load4(x, c, cols, QUADS));
    const float root = sqrtf(add(sum) / (float)cols + a.eps);
    const auto write = [&](u32 c, float4 v) {
        const float4 w = load4(weight, c, cols, QUADS);
        float4 y = make_float4(v.x / root * w.x, v.y / root * w.y, v.z / root * w.z, v.w / root * w.w);
        if (gate) {
            const float4 g = load4(gate, c, cols, QUADS);
            y.x = activated(y.x, g.x, a.activation), y.y = activated(y.y, g.y, a.activation);
            y.z = activated(y.z, g.z, a.activation), y.w = activated(y.w, g.w, a.activation);
        }
        store4(out, c, cols, QUADS, y);
    };
#pragma unroll
    for (u32 i = 0; i < KEPT; i++)
        if (const u32 c = 4 * (thread + i * threads); c < cols) write(c, kept[i]);
#pragma unroll 1
    for (u32 c = 4 * (thread + KEPT * threads); c < cols; c += 4 * threads) write(c, load4(x, c, cols, QUADS));
}
template <typename Add> DEVICE void norm(const NormArgs &a, u32 index, u32 thread, u32 threads, Add add) {
    const bool gate = a.activation == NORM_PLAIN || in_quads(a.gate);
    if (in_quads(a.x) && in_quads(a.weight) && in_quads(a.out) && gate) norm_group<true>(a, index, thread, threads, add);
    else norm_group<false>(a, index, thread, threads, add);
}

// A block of threads for a group of a row.
extern "C" __global__ void rms_norm(const __grid_constant__ NormArgs a) {
    norm(a, blockIdx.x, threadIdx.x, blockDim.x, [](float x) { return block_sum(x); });
}
// A warp for a group: narrow ones.
extern "C" __global__ void rms_norm_narrow(const __grid_constant__ NormArgs a) {
    const u32 index = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (index < a.x.rows * a.x.groups) norm(a, index, threadIdx.x % 32, 32, [](float x) { return warp_sum(x); });
}
