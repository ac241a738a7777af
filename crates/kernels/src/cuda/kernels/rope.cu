// Turns pair i of every group of row r by the angle (pos0 + r * step) * freqs[i], the product rounded to f32.
#include "view.cuh"

struct RopeArgs {
    Floats x, freqs;
    u64 pos0, step;
    u32 neighbours; // pairs (2i, 2i + 1) instead of (i, i + n)
};
AS_HOST(RopeArgs, ROPE_ARGS);

extern "C" __global__ void rope(const __grid_constant__ RopeArgs a) {
    const u32 row = blockIdx.x, n = a.freqs.cols;
    const float position = (float)(a.pos0 + row * a.step);
    for (u32 i = threadIdx.x; i < n * a.x.groups; i += blockDim.x) {
        u32 group = i / n, pair = i % n;
        float s, c;
        sincosf(__fmul_rn(position, a.freqs.first[pair]), &s, &c);
        float *x = a.x.at(row, group);
        float *first = x + (a.neighbours ? 2 * pair : pair), *second = x + (a.neighbours ? 2 * pair + 1 : pair + n);
        float u = *first, v = *second;
        *first = u * c - v * s;
        *second = v * c + u * s;
    }
}
