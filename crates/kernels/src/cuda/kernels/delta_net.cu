// The gated delta rule, token after token; a head's columns do not know of each other.
//
//   q^ = q / sqrt(q.q + eps) / sqrt(Ck), k^ = k / sqrt(k.k + eps), g = exp(a softplus(alpha + dt_bias)), b = sigmoid(beta)
//   per column c of M [Ck, Cv]:  m = g m;  d = b (v[c] - m . k^);  m += k^ d;  out[c] = m . q^
//
// LANES lanes of a warp keep one column in registers. Inputs come a few tokens at a time through shared memory, the next
// ones while these are used. Compiled for the head widths.
#include "delta.cuh"

constexpr u32 CK = DELTA_WIDTH, CV = DELTA_V_WIDTH, COLUMNS = DELTA_COLUMNS, LANES = 128 / COLUMNS, TOKENS = 8;
constexpr u32 STEP = 4 * LANES, PARTS = (CK + STEP - 1) / STEP, CKP = PARTS * STEP; // lane l has 4 of every STEP rows

struct DeltaArgs : DeltaRule {
    float *factors;    // [T, Hk, 2]: 1 / |q| / sqrt(Ck), 1 / |k|
    const u32 *spoilt; // of delta_chunks.cu: nothing is to be done but what it marks; or null
};
AS_HOST(DeltaArgs, DELTA_ARGS);

// The norms of q and k: a warp for a token and key head.
extern "C" __global__ void delta_norms(const __grid_constant__ DeltaArgs a) {
    const u32 i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (i >= a.k.rows * a.k.groups || (a.spoilt && !*a.spoilt)) return;
    const float *q = a.q.at(i / a.k.groups, i % a.k.groups), *k = a.k.at(i / a.k.groups, i % a.k.groups);
    float qq = 0, kk = 0;
    for (u32 c = lane; c < CK; c += 32) qq = fmaf(q[c], q[c], qq), kk = fmaf(k[c], k[c], kk);
    qq = warp_sum(qq), kk = warp_sum(kk);
    if (lane == 0) {
        a.factors[2 * i] = 1.0f / sqrtf(qq + a.eps) / sqrtf((float)CK);
        a.factors[2 * i + 1] = 1.0f / sqrtf(kk + a.eps);
    }
}

struct Chunk { float q[TOKENS][CKP], k[TOKENS][CKP], v[TOKENS][COLUMNS], factors[TOKENS][2], alpha[TOKENS], beta[TOKENS]; };

extern "C" __global__ void __launch_bounds__(128) delta_net(const __grid_constant__ DeltaArgs a) {
    __shared__ __align__(16) Chunk chunks[2];
    const u32 head = blockIdx.y, column = threadIdx.x / LANES, lane = threadIdx.x % LANES, c = blockIdx.x * COLUMNS + column;
    const u32 key_heads = a.k.groups, key_head = a.grouped ? head / (a.v.groups / key_heads) : head % key_heads;
    const u32 tokens = a.v.rows, t = threadIdx.x;
    if (a.spoilt && !(*a.spoilt && a.spoilt[1 + head * gridDim.x + blockIdx.x])) return;
    const bool is = c < CV;
    const float rate = a.a.first[head], dt_bias = a.dt_bias.first[head];

    for (u32 i = t; i < 2 * sizeof(Chunk) / 4; i += 128) ((float *)chunks)[i] = 0; // columns beyond the widths stay so
    __syncthreads();
    auto fill = [&](u32 first, Chunk &chunk) {
        const u32 count = min(TOKENS, tokens - first);
        for (u32 i = t; i < count * CK; i += 128) {
            const u32 token = i / CK, j = i % CK;
            copy4_async(shared_address(&chunk.q[token][j]), a.q.at(first + token, key_head) + j);
            copy4_async(shared_address(&chunk.k[token][j]), a.k.at(first + token, key_head) + j);
        }
        for (u32 i = t; i < count * COLUMNS; i += 128) {
            const u32 token = i / COLUMNS, j = i % COLUMNS;
            if (blockIdx.x * COLUMNS + j < CV) copy4_async(shared_address(&chunk.v[token][j]), a.v.at(first + token, head) + blockIdx.x * COLUMNS + j);
        }
        for (u32 token = t; token < count; token += 128) {
            copy4_async(shared_address(&chunk.factors[token][0]), a.factors + 2 * ((first + token) * key_heads + key_head));
            copy4_async(shared_address(&chunk.factors[token][1]), a.factors + 2 * ((first + token) * key_heads + key_head) + 1);
            copy4_async(shared_address(&chunk.alpha[token]), a.alpha.at(first + token, 0) + head);
            copy4_async(shared_address(&chunk.beta[token]), a.beta.at(first + token, 0) + head);
        }
    };

    float m[4 * PARTS];
#pragma unroll
    for (u32 i = 0; i < 4 * PARTS; i++) {
        const u32 row = i / 4 * STEP + 4 * lane + i % 4;
        m[i] = is && row < CK ? a.state.at(head, row)[c] : 0.0f;
    }
    if (tokens) fill(0, chunks[0]);
    copy_commit();
    for (u32 first = 0, now = 0; first < tokens; first += TOKENS, now ^= 1) {
        if (first + TOKENS < tokens) fill(first + TOKENS, chunks[now ^ 1]);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        const Chunk &chunk = chunks[now];
        const u32 count = min(TOKENS, tokens - first);
        for (u32 token = 0; token < count; token++) {
            const float x = chunk.alpha[token] + dt_bias, softplus = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
            const float g = expf(rate * softplus), b = sigmoid(chunk.beta[token]);
            const float unit_q = chunk.factors[token][0], unit_k = chunk.factors[token][1];
            float4 k[PARTS];
            float known[4] = {};
#pragma unroll
            for (u32 p = 0; p < PARTS; p++) {
                k[p] = *(const float4 *)&chunk.k[token][p * STEP + 4 * lane];
                m[4 * p] *= g, m[4 * p + 1] *= g, m[4 * p + 2] *= g, m[4 * p + 3] *= g;
                known[0] = fmaf(m[4 * p], k[p].x, known[0]), known[1] = fmaf(m[4 * p + 1], k[p].y, known[1]);
                known[2] = fmaf(m[4 * p + 2], k[p].z, known[2]), known[3] = fmaf(m[4 * p + 3], k[p].w, known[3]);
            }
            float dot = (known[0] + known[1]) + (known[2] + known[3]);
#pragma unroll
            for (int d = LANES / 2; d > 0; d /= 2) dot += __shfl_xor_sync(~0u, dot, d);
            const float d = b * (chunk.v[token][column] - dot * unit_k) * unit_k;
            float y[4] = {};
#pragma unroll
            for (u32 p = 0; p < PARTS; p++) {
                const float4 q = *(const float4 *)&chunk.q[token][p * STEP + 4 * lane];
                m[4 * p] = fmaf(k[p].x, d, m[4 * p]), m[4 * p + 1] = fmaf(k[p].y, d, m[4 * p + 1]);
                m[4 * p + 2] = fmaf(k[p].z, d, m[4 * p + 2]), m[4 * p + 3] = fmaf(k[p].w, d, m[4 * p + 3]);
                y[0] = fmaf(m[4 * p], q.x, y[0]), y[1] = fmaf(m[4 * p + 1], q.y, y[1]);
                y[2] = fmaf(m[4 * p + 2], q.z, y[2]), y[3] = fmaf(m[4 * p + 3], q.w, y[3]);
            }
            float out = (y[0] + y[1]) + (y[2] + y[3]);
#pragma unroll
            for (int d = LANES / 2; d > 0; d /= 2) out += __shfl_xor_sync(~0u, out, d);
            if (is && lane == 0) a.out.at(first + token, head)[c] = out * unit_q;
        }
        __syncthreads(); // everybody has left this chunk
    }
    if (!is) return;
#pragma unroll
    for (u32 i = 0; i < 4 * PARTS; i++) {
        const u32 row = i / 4 * STEP + 4 * lane + i % 4;
        if (row < CK) a.state.at(head, row)[c] = m[i];
    }
}
