// y[t] = sum over k, in k order, of weights[t, k] * rows[pos[t*K + k]]; then + sigmoid(gate[t]) * shared[t].
// A block of threads for one token; no atomics, so the same bits in every run.
#include "view.cuh"

struct CombineArgs {
    Floats rows, weights, shared, gate, out;
    const i32 *pos;       // [T, K]
    u32 has_shared, has_gate, accumulate;
};
AS_HOST(CombineArgs, COMBINE_ARGS);

// Rows whose columns are on their way together.
constexpr u32 BATCH = 10;

// QUADS: all rows are in quads, which is asked before all loads, not between them.
template <bool QUADS> DEVICE void combine_row(const CombineArgs &a) {
    const u32 t = blockIdx.x, cols = a.out.cols;
    const u32 top_k = a.weights.cols;
    const float *weights = a.weights.at(t, 0);
    const i32 *pos = a.pos + (u64)t * top_k;
    const float gate = !a.has_shared ? 0.0f : a.has_gate ? sigmoid(*a.gate.at(t, 0)) : 1.0f;
    for (u32 c = 4 * threadIdx.x; c < cols; c += 4 * blockDim.x) {
        float4 y = make_float4(0, 0, 0, 0);
#pragma unroll 1
        for (u32 first = 0; first < top_k; first += BATCH) {
            i32 row[BATCH];
            float4 x[BATCH];
#pragma unroll
            for (u32 j = 0; j < BATCH; j++) row[j] = first + j < top_k ? pos[first + j] : -1;
#pragma unroll
            for (u32 j = 0; j < BATCH; j++)
                if (row[j] >= 0) x[j] = load4(a.rows.at(row[j], 0), c, cols, QUADS);
#pragma unroll
            for (u32 j = 0; j < BATCH; j++)
                if (row[j] >= 0) y = fma4(weights[first + j], x[j], y);
        }
        if (a.has_shared) y = fma4(gate, load4(a.shared.at(t, 0), c, cols, QUADS), y);
        float *out = a.out.at(t, 0);
        if (a.accumulate) y = fma4(1.0f, load4(out, c, cols, QUADS), y);
        store4(out, c, cols, QUADS, y);
    }
}

extern "C" __global__ void combine(const __grid_constant__ CombineArgs a) {
    after_previous();
    if (in_quads(a.rows) && in_quads(a.out) && (!a.has_shared || in_quads(a.shared))) combine_row<true>(a);
    else combine_row<false>(a);
}
