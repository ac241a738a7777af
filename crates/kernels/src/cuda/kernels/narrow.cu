// Dense products of few outputs in f32: routers' shares, gates of heads, injections. Tiles of product.cu would be mostly empty,
// and few.
//
// A block of 256 threads makes TOKENS x OUTPUTS sums; its threads share the columns. Compiled for one WEIGHT_FORMAT, whose rows
// begin at multiples of WEIGHT_ALIGN bytes, a number of outputs and an epilogue as product.cu.
#include "exact.cuh"
#include "view.cuh"

constexpr u32 OUTPUTS = NARROW_OUTPUTS, TOKENS = NARROW_TOKENS, SUMS = TOKENS * OUTPUTS, WARPS = 8;
static_assert(SUMS <= 32 && (SUMS & (SUMS - 1)) == 0, "a warp's lanes end with one sum each");

struct NarrowArgs {
    Floats x, out;
    const u8 *w;       // packed rows
    const float *bias; // [n] or null
    u64 row_bytes;
    u32 k, n;
    float scale;
};
AS_HOST(NarrowArgs, NARROW_ARGS);

// Adds up COUNT numbers of each lane over the warp: the 32 / COUNT lanes from 32 / COUNT * i on have the sum of number i. At each
// step a lane gives away half of its numbers and takes the sums of the others.
template <u32 COUNT, int DISTANCE> DEVICE void spread_sums(float *sums, u32 lane) {
    if constexpr (COUNT > 1) {
        const bool upper = lane & DISTANCE;
#pragma unroll
        for (u32 i = 0; i < COUNT / 2; i++) {
            const float give = upper ? sums[i] : sums[i + COUNT / 2], keep = upper ? sums[i + COUNT / 2] : sums[i];
            sums[i] = keep + __shfl_xor_sync(~0u, give, DISTANCE);
        }
        spread_sums<COUNT / 2, DISTANCE / 2>(sums, lane);
    } else if constexpr (DISTANCE > 0) {
        sums[0] += __shfl_xor_sync(~0u, sums[0], DISTANCE);
        spread_sums<1, DISTANCE / 2>(sums, lane);
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) narrow(const __grid_constant__ NarrowArgs a) {
    __shared__ float parts[WARPS][SUMS];
    after_previous();
    const u32 t0 = blockIdx.x * TOKENS, n0 = blockIdx.y * OUTPUTS, t = threadIdx.x, lane = t % 32;
    const float *x[TOKENS];
    const u8 *w[OUTPUTS];
#pragma unroll
    for (u32 i = 0; i < TOKENS; i++) x[i] = a.x.at(min(t0 + i, a.x.rows - 1), 0);
#pragma unroll
    for (u32 j = 0; j < OUTPUTS; j++) w[j] = a.w + min(n0 + j, a.n - 1) * a.row_bytes;
    float sums[SUMS] = {};
    for (u32 k = 4 * t; k < a.k; k += 4 * 32 * WARPS) {
        float4 xs[TOKENS];
#pragma unroll
        for (u32 i = 0; i < TOKENS; i++) xs[i] = *(const float4 *)(x[i] + k);
#pragma unroll
        for (u32 j = 0; j < OUTPUTS; j++) {
            const float4 v = four_weights(w[j], k, a.k);
#pragma unroll
            for (u32 i = 0; i < TOKENS; i++) {
                float &sum = sums[i * OUTPUTS + j];
                sum = fmaf(xs[i].x, v.x, fmaf(xs[i].y, v.y, fmaf(xs[i].z, v.z, fmaf(xs[i].w, v.w, sum))));
            }
        }
    }
    spread_sums<SUMS, 16>(sums, lane);
    if (lane % (32 / SUMS) == 0) parts[t / 32][lane / (32 / SUMS)] = sums[0];
    __syncthreads();
    const u32 token = t0 + t / OUTPUTS, n = n0 + t % OUTPUTS;
    if (t >= SUMS || token >= a.x.rows || n >= a.n) return;
    float p = 0;
#pragma unroll
    for (u32 i = 0; i < WARPS; i++) p += parts[i][t];
    float *out = a.out.at(token, 0) + n;
    if (a.bias) p += a.bias[n];
    if (GEMM_EPILOGUE == EPILOGUE_ACCUMULATE) p += *out;
    if (GEMM_EPILOGUE == EPILOGUE_SILU) p = silu(p * a.scale);
    *out = p;
}
