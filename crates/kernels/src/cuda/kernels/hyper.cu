// Hyper-connections: the write into the residual streams, and the mean of gated streams.
#include "view.cuh"

struct WriteArgs { Floats y, inject, x; };
AS_HOST(WriteArgs, WRITE_ARGS);

// x[t, s, :] += y[t, :] * 2 sigmoid(inject[t, s] / S)
extern "C" __global__ void hyper_write(const __grid_constant__ WriteArgs a) {
    const u32 row = blockIdx.x / a.x.groups, stream = blockIdx.x % a.x.groups;
    const float gate = 2.0f * sigmoid(a.inject.at(row, 0)[stream] / (float)a.x.groups);
    const float *y = a.y.at(row, 0);
    float *x = a.x.at(row, stream);
    const u32 cols = a.x.cols;
    const bool quads = in_quads(a.x) && in_quads(a.y);
    for (u32 c = 4 * threadIdx.x; c < cols; c += 4 * blockDim.x) store4(x, c, cols, quads, fma4(gate, load4(y, c, cols, quads), load4(x, c, cols, quads)));
}

struct MeanArgs { Floats p, normed, out; };
AS_HOST(MeanArgs, MEAN_ARGS);

// out[t, d] = mean over s of sigmoid(p[t, s*D + d]) * normed[t, s, d]
extern "C" __global__ void gate_mean(const __grid_constant__ MeanArgs a) {
    const u32 row = blockIdx.x, streams = a.normed.groups, cols = a.out.cols;
    const bool quads = in_quads(a.p) && in_quads(a.normed) && in_quads(a.out);
    const float share = (float)streams;
    for (u32 c = 4 * threadIdx.x; c < cols; c += 4 * blockDim.x) {
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
        for (u32 s = 0; s < streams; s++) {
            const float4 p = load4(a.p.at(row, 0) + s * cols, c, cols, quads), x = load4(a.normed.at(row, s), c, cols, quads);
            sum = make_float4(fmaf(sigmoid(p.x), x.x, sum.x), fmaf(sigmoid(p.y), x.y, sum.y), fmaf(sigmoid(p.z), x.z, sum.z), fmaf(sigmoid(p.w), x.w, sum.w));
        }
        store4(a.out.at(row, 0), c, cols, quads, make_float4(sum.x / share, sum.y / share, sum.z / share, sum.w / share));
    }
}
