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
    for (u32 c = threadIdx.x; c < a.x.cols; c += blockDim.x) x[c] = fmaf(y[c], gate, x[c]);
}

struct MeanArgs { Floats p, normed, out; };
AS_HOST(MeanArgs, MEAN_ARGS);

// out[t, d] = mean over s of sigmoid(p[t, s*D + d]) * normed[t, s, d]
extern "C" __global__ void gate_mean(const __grid_constant__ MeanArgs a) {
    const u32 row = blockIdx.x, streams = a.normed.groups, cols = a.out.cols;
    const float *p = a.p.at(row, 0);
    for (u32 c = threadIdx.x; c < cols; c += blockDim.x) {
        float sum = 0;
        for (u32 s = 0; s < streams; s++) sum = fmaf(sigmoid(p[s * cols + c]), a.normed.at(row, s)[c], sum);
        a.out.at(row, 0)[c] = sum / (float)streams;
    }
}
