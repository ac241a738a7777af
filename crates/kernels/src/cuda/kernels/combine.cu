// y[t] = sum over k, in k order, of weights[t, k] * rows[pos[t*K + k]]; then + sigmoid(gate[t]) * shared[t].
// A block of threads for one token; no atomics, so the same bits in every run.
#include "view.cuh"

struct CombineArgs {
    Floats rows, weights, shared, gate, out;
    const i32 *pos;       // [T, K]
    u32 has_shared, has_gate, accumulate;
    u32 vectors;          // every row begins at a multiple of 16 bytes and has whole ones
};
AS_HOST(CombineArgs, COMBINE_ARGS);

extern "C" __global__ void combine(const __grid_constant__ CombineArgs a) {
    after_previous();
    const u32 t = blockIdx.x, cols = a.out.cols;
    const u32 top_k = a.weights.cols;
    const float *weights = a.weights.at(t, 0);
    const i32 *pos = a.pos + (u64)t * top_k;
    const float gate = !a.has_shared ? 0.0f : a.has_gate ? sigmoid(*a.gate.at(t, 0)) : 1.0f;
    if (a.vectors) {
        for (u32 c = 4 * threadIdx.x; c < cols; c += 4 * blockDim.x) {
            float4 y = make_float4(0, 0, 0, 0);
#pragma unroll 5
            for (u32 k = 0; k < top_k; k++) {
                i32 row = pos[k];
                if (row < 0) continue;
                float4 x = *(const float4 *)(a.rows.at(row, 0) + c);
                float w = weights[k];
                y.x = fmaf(w, x.x, y.x), y.y = fmaf(w, x.y, y.y), y.z = fmaf(w, x.z, y.z), y.w = fmaf(w, x.w, y.w);
            }
            if (a.has_shared) {
                float4 x = *(const float4 *)(a.shared.at(t, 0) + c);
                y.x = fmaf(gate, x.x, y.x), y.y = fmaf(gate, x.y, y.y), y.z = fmaf(gate, x.z, y.z), y.w = fmaf(gate, x.w, y.w);
            }
            float4 *out = (float4 *)(a.out.at(t, 0) + c);
            if (a.accumulate) { float4 o = *out; y.x += o.x, y.y += o.y, y.z += o.z, y.w += o.w; }
            *out = y;
        }
        return;
    }
    for (u32 c = threadIdx.x; c < cols; c += blockDim.x) {
        float y = 0;
        for (u32 k = 0; k < top_k; k++)
            if (pos[k] >= 0) y = fmaf(weights[k], a.rows.at(pos[k], 0)[c], y);
        if (a.has_shared) y = fmaf(gate, a.shared.at(t, 0)[c], y);
        float *out = a.out.at(t, 0) + c;
        *out = a.accumulate ? *out + y : y;
    }
}
