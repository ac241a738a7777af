// Causal softmax attention in f32, over a cache in f32 or f16.
//
//   out[t, h] = softmax over j of (scale * q[t, h] . k[j, kv(h)]) v[j, kv(h)],  j <= pos0 + t, and where there is a
//   selection: j in a selected block or in the query's incomplete last block;  then * sigmoid(gate[t, h])
//
// A block of 256 threads takes ROWS rows of one kv head, a row being a query and one of the heads that share that kv head
// (row = t * G + g), and walks over the keys in tiles, keeping each row's running maximum and sum.
// Compiled for the widths of keys and values.
#include "view.cuh"

constexpr u32 C = ATTENTION_WIDTH, CV = ATTENTION_V_WIDTH, ROWS = ATTENTION_ROWS, KEYS = ATTENTION_KEYS;
constexpr u32 CP = (C + 3) / 4 * 4, PITCH = CP + 4;           // columns in fours; rows spread over the banks
constexpr u32 MR = ROWS / 16, MK = KEYS / 16, MV = (CV + 15) / 16; // a thread's rows, keys and value columns
constexpr u32 WORDS = (KEYS + 1 + 31) / 32;                   // bits of the blocks that a tile of keys can touch

struct AttentionArgs {
    Floats q, k, v, gate, out;
    Ints blocks;        // [T, 1, n]
    u64 pos0;
    u32 ratio, has_gate, has_blocks;
    float scale;
};
AS_HOST(AttentionArgs, ATTENTION_ARGS);

// acc += p v over the keys of a tile. SPOILED: a value is no finite number; times the p = 0 of a query that does not see its
// key it would still be none, so such keys are left out.
template <bool SPOILED> DEVICE void add_values(const float *ps, const float *vs, u32 ty, u32 tx, float (&acc)[MR][MV]) {
#pragma unroll 4
    for (u32 k = 0; k < KEYS; k++) {
        float p[MR];
#pragma unroll
        for (u32 i = 0; i < MR; i++) p[i] = ps[(ty * MR + i) * (KEYS + 1) + k];
#pragma unroll
        for (u32 j = 0; j < MV; j++) {
            const u32 c = tx + 16 * j;
            const float v = CV % 16 == 0 || c < CV ? vs[k * CV + c] : 0.0f;
#pragma unroll
            for (u32 i = 0; i < MR; i++)
                if (!SPOILED || p[i] != 0) acc[i][j] = fmaf(p[i], v, acc[i][j]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) attention(const __grid_constant__ AttentionArgs a) {
    extern __shared__ __align__(16) float memory[];
    float *qs = memory;                     // [ROWS][PITCH]
    float *ks = qs + ROWS * PITCH;          // [KEYS][PITCH], then the values [KEYS][CV]
    float *ps = ks + KEYS * (PITCH > CV ? PITCH : CV); // [ROWS][KEYS + 1]
    u32 *chosen = (u32 *)(ps + ROWS * (KEYS + 1));     // [ROWS][WORDS]
    static_assert(4 * (ROWS * PITCH + KEYS * (PITCH > CV ? PITCH : CV) + ROWS * (KEYS + 1) + ROWS * WORDS) == SHARED_BYTES, "what the host asks for");
    const u32 t = threadIdx.x, ty = t / 16, tx = t % 16;
    const u32 shared_heads = a.q.groups / a.k.groups, kv = blockIdx.y;
    const u32 rows = a.q.rows * shared_heads, first = (gridDim.x - 1 - blockIdx.x) * ROWS; // the longest first
    const u32 last_query = (min(first + ROWS, rows) - 1) / shared_heads;
    const u64 end = a.pos0 + last_query + 1;

    for (u32 i = t; i < ROWS * CP; i += 256) {
        const u32 r = i / CP, c = i % CP, row = first + r;
        const bool is = row < rows && c < C;
        qs[r * PITCH + c] = is ? a.q.at(row / shared_heads, kv * shared_heads + row % shared_heads)[c] * a.scale : 0.0f;
    }
    float most[MR], sum[MR], acc[MR][MV];
#pragma unroll
    for (u32 i = 0; i < MR; i++) {
        most[i] = -INFINITY_F, sum[i] = 0;
#pragma unroll
        for (u32 j = 0; j < MV; j++) acc[i][j] = 0;
    }
    for (u64 key0 = 0; key0 < end; key0 += KEYS) {
        if (a.has_blocks) { // which blocks of this tile each row's query has chosen; none and all full: the next tile
            const u64 block0 = key0 / a.ratio;
            __syncthreads();
            for (u32 i = t; i < ROWS * WORDS; i += 256) chosen[i] = 0;
            __syncthreads();
            bool any = false;
            for (u32 i = t; i < ROWS * a.blocks.cols; i += 256) {
                const u32 row = first + i / a.blocks.cols;
                if (row >= rows) break;
                const i32 block = a.blocks.at(row / shared_heads, 0)[i % a.blocks.cols];
                const u64 bit = (u64)block - block0;
                if (block >= 0 && (u64)block >= block0 && bit < 32 * WORDS && (u64)block * a.ratio < key0 + KEYS) {
                    atomicOr(&chosen[i / a.blocks.cols * WORDS + (u32)bit / 32], 1u << bit % 32);
                    any = true;
                }
            }
            for (u32 r = t; r < ROWS; r += 256) { // the incomplete block
                const u64 position = a.pos0 + (first + r) / shared_heads;
                any |= first + r < rows && key0 <= position && key0 + KEYS > (position + 1) / a.ratio * a.ratio;
            }
            if (!__syncthreads_or(any)) continue;
        }
        __syncthreads();
        for (u32 i = t; i < KEYS * CP; i += 256) {
            const u32 j = i / CP, c = i % CP;
            ks[j * PITCH + c] = key0 + j < end && c < C ? get(a.k, (u32)(key0 + j), kv, c) : 0.0f;
        }
        __syncthreads();
        float s[MR][MK] = {};
#pragma unroll 4
        for (u32 c = 0; c < CP; c += 4) {
            float4 q[MR], k[MK];
#pragma unroll
            for (u32 i = 0; i < MR; i++) q[i] = *(const float4 *)(qs + (ty * MR + i) * PITCH + c);
#pragma unroll
            for (u32 j = 0; j < MK; j++) k[j] = *(const float4 *)(ks + (tx + 16 * j) * PITCH + c);
#pragma unroll
            for (u32 i = 0; i < MR; i++)
#pragma unroll
                for (u32 j = 0; j < MK; j++)
                    s[i][j] = fmaf(q[i].x, k[j].x, fmaf(q[i].y, k[j].y, fmaf(q[i].z, k[j].z, fmaf(q[i].w, k[j].w, s[i][j]))));
        }
#pragma unroll
        for (u32 i = 0; i < MR; i++) {
            const u32 r = ty * MR + i;
            const u64 position = a.pos0 + (first + r) / shared_heads, incomplete = a.has_blocks ? (position + 1) / a.ratio * a.ratio : 0;
            float highest = -INFINITY_F;
#pragma unroll
            for (u32 j = 0; j < MK; j++) {
                const u64 key = key0 + tx + 16 * j;
                bool seen = first + r < rows && key <= position;
                if (a.has_blocks && key < incomplete) {
                    const u32 bit = (u32)(key / a.ratio - key0 / a.ratio);
                    seen = seen && (chosen[r * WORDS + bit / 32] >> bit % 32 & 1);
                }
                if (!seen) s[i][j] = -INFINITY_F;
                highest = fmaxf(highest, s[i][j]);
            }
#pragma unroll
            for (int d = 8; d > 0; d /= 2) highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, d)); // the row's 16 threads
            const float next = fmaxf(most[i], highest), keep = most[i] == next ? 1.0f : expf(most[i] - next);
            float total = 0;
#pragma unroll
            for (u32 j = 0; j < MK; j++) {
                const float p = s[i][j] == -INFINITY_F ? 0.0f : s[i][j] == next ? 1.0f : expf(s[i][j] - next);
                ps[r * (KEYS + 1) + tx + 16 * j] = p, total += p;
            }
#pragma unroll
            for (int d = 8; d > 0; d /= 2) total += __shfl_xor_sync(~0u, total, d);
            most[i] = next, sum[i] = fmaf(sum[i], keep, total);
#pragma unroll
            for (u32 j = 0; j < MV; j++) acc[i][j] *= keep;
        }
        __syncthreads();
        bool spoiled = false;
        for (u32 i = t; i < KEYS * CV; i += 256) {
            const u32 j = i / CV, c = i % CV;
            const float v = key0 + j < end ? get(a.v, (u32)(key0 + j), kv, c) : 0.0f;
            ks[i] = v, spoiled |= !(fabsf(v) < INFINITY_F);
        }
        if (__syncthreads_or(spoiled)) add_values<true>(ps, ks, ty, tx, acc);
        else add_values<false>(ps, ks, ty, tx, acc);
    }
#pragma unroll
    for (u32 i = 0; i < MR; i++) {
        const u32 row = first + ty * MR + i;
        if (row >= rows) continue;
        const u32 query = row / shared_heads, head = kv * shared_heads + row % shared_heads;
#pragma unroll
        for (u32 j = 0; j < MV; j++) {
            const u32 c = tx + 16 * j;
            if (c >= CV) continue;
            float y = sum[i] == 0 ? 0.0f : acc[i][j] / sum[i]; // 0: no key was seen
            if (a.has_gate) y *= sigmoid(a.gate.at(query, head)[c]);
            a.out.at(query, head)[c] = y;
        }
    }
}
