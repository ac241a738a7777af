// Causal softmax attention on tensor cores, over caches in f16, as exact as in f32: keys and values are f16 already, and
// queries and probabilities, scaled by powers of two, are each the sum of two f16, 22 bits.
//
//   out[t, h] = softmax over j of (scale * q[t, h] . k[j, kv(h)]) v[j, kv(h)],  j <= pos0 + t, and where there is a
//   selection: j in a selected block or in the query's incomplete last block;  then * sigmoid(gate[t, h])
//
// A block has four warps; a warp takes 16 rows, a row being a query and one of the heads that share a kv head, and 16 keys at a
// time, with a running maximum and sum for each row.
//   ATTENTION_QUERY 0: 64 rows, 16 for each warp; all warps walk over the same keys
//   ATTENTION_QUERY 1: the heads of one query, 16 at most; its keys alone are fetched and shared out to the warps, whose results
//                      are added up in the end
// Compiled for the widths of keys and values, multiples of 16 up to 256.
#include "mma.cuh"
#include "view.cuh"

constexpr u32 C = ATTENTION_WIDTH, CV = ATTENTION_V_WIDTH, WARPS = 4, THREADS = 32 * WARPS;
constexpr bool QUERY = ATTENTION_QUERY;
constexpr u32 ROWS = QUERY ? 16 : 64, KEYS = QUERY ? 64 : 32;
constexpr u32 QP = C + 8, KP = C + 8, VP = CV + 8; // from row to row: 16 bytes more, for the banks
constexpr float P_SCALE = 1024;                    // of probabilities: what is left of them is no subnormal

struct AttentionArgs {
    Floats q, k, v, gate, out;
    Ints blocks;        // [T, 1, n], ascending, then -1
    u64 pos0;
    u32 ratio, has_gate, has_blocks;
    float scale;
};
AS_HOST(AttentionArgs, ATTENTION_ARGS);

extern "C" __global__ void __launch_bounds__(THREADS, 2) attention_f16(const __grid_constant__ AttentionArgs a) {
    extern __shared__ __align__(16) u8 memory[];
    u16 *q_high = (u16 *)memory, *q_low = q_high + ROWS * QP, *ks = q_low + ROWS * QP, *vs = ks + KEYS * KP;
    constexpr u32 TILES = 2 * (2 * ROWS * QP + KEYS * KP + KEYS * VP), RESULTS = QUERY ? 4 * WARPS * ROWS * CV : 0;
    static_assert(SHARED_BYTES == (TILES > RESULTS ? TILES : RESULTS), "what the host asks for");
    __shared__ i32 ids[2][KEYS]; // keys of a tile, -1: none
    __shared__ float powers[ROWS];
    const u32 t = threadIdx.x, warp = t / 32, lane = t % 32, g = lane / 4, c = lane % 4;
    const u32 shared_heads = a.q.groups / a.k.groups, kv = blockIdx.y;
    // Rows of this block: all rows (query, head) of the kv head in turn, or the heads of one query from blockIdx.z * 16 on.
    const u32 rows = QUERY ? shared_heads - blockIdx.z * 16 : a.q.rows * shared_heads;
    const u32 first = QUERY ? 0 : (gridDim.x - 1 - blockIdx.x) * ROWS; // the longest first
    auto query_of = [&](u32 r) { return QUERY ? blockIdx.x : (first + r) / shared_heads; };
    auto head_of = [&](u32 r) { return kv * shared_heads + (QUERY ? blockIdx.z * 16 + r : (first + r) % shared_heads); };
    auto position_of = [&](u32 r) { return (i32)(a.pos0 + query_of(r)); };

    // Key number n of this block, or -1.
    const i32 last = position_of(min(ROWS, rows - first) - 1);
    const u32 listed = QUERY && a.has_blocks ? a.blocks.cols * a.ratio : 0;
    const i32 incomplete = QUERY && a.has_blocks ? (last + 1) / (i32)a.ratio * (i32)a.ratio : 0;
    const u32 all = listed + (last + 1 - incomplete), tiles = (all + KEYS - 1) / KEYS;
    auto key_of = [&](u32 n) -> i32 {
        if (n >= listed) return n < all ? incomplete + (i32)(n - listed) : -1;
        const i32 *blocks = a.blocks.at(blockIdx.x, 0);
        const u32 i = n / a.ratio;
        if (blocks[i] < 0 || (i > 0 && blocks[i] == blocks[i - 1])) return -1;
        const u64 key = (u64)blocks[i] * a.ratio + n % a.ratio;
        return key < (u64)incomplete ? (i32)key : -1;
    };
    auto fetch = [&](const Floats &from, u16 *to, u32 cols, u32 pitch, const i32 *keys) {
        for (u32 i = t; i < KEYS * (cols / 8); i += THREADS) {
            const u32 r = i / (cols / 8), piece = 8 * (i % (cols / 8));
            u16 *there = to + r * pitch + piece;
            if (keys[r] >= 0) copy16_async(shared_address(there), (const u16 *)from.first + keys[r] * from.row_stride + kv * from.group_stride + piece);
            else *(uint4 *)there = make_uint4(0, 0, 0, 0);
        }
        copy_commit();
    };

    if (t < KEYS) ids[0][t] = key_of(t);
    // Queries, each row times a power of two that brings its largest number to 256 and more.
    for (u32 r = warp; r < ROWS; r += WARPS) {
        const bool is = first + r < rows;
        const float *q = is ? a.q.at(query_of(r), head_of(r)) : nullptr;
        float most = 0;
        for (u32 i = lane; i < C; i += 32) most = fmaxf(most, is ? fabsf(q[i] * a.scale) : 0.0f);
#pragma unroll
        for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
        const i32 e = most > 1e-30f && most < 1e30f ? 8 + 127 - (i32)(__float_as_uint(most) >> 23) : 0;
        for (u32 i = lane; i < C; i += 32) {
            const float x = is ? q[i] * a.scale * power_of_two(e) : 0.0f;
            const u16 high = float_to_half(x);
            q_high[r * QP + i] = high, q_low[r * QP + i] = float_to_half(x - half_to_float(high));
        }
        if (lane == 0) powers[r] = power_of_two(-e);
    }
    __syncthreads();
    fetch(a.k, ks, C, KP, ids[0]);
    fetch(a.v, vs, CV, VP, ids[0]);

    const u32 row0 = QUERY ? 0 : 16 * warp; // this warp's rows; this lane's are row0 + g and row0 + g + 8
    const u32 q_at = (row0 + lane % 16) * QP + lane / 16 * 8;
    const u32 k_at = (lane / 16 * 8 + lane % 8) * KP + lane / 8 % 2 * 8, v_at = (lane / 8 % 2 * 8 + lane % 8) * VP + lane / 16 * 8;
    const float power[2] = {powers[row0 + g], powers[row0 + g + 8]};
    const i32 position[2] = {position_of(row0 + g), position_of(row0 + g + 8)};
    float most[2] = {-INFINITY_F, -INFINITY_F}, sum[2] = {}, acc[CV / 8][4] = {};
    for (u32 tile = 0; tile < tiles; tile++) {
        const i32 *keys = ids[tile & 1], *next = ids[tile & 1 ^ 1];
        copy_wait<1>(); // the keys
        if (t < KEYS) ids[tile & 1 ^ 1][t] = key_of((tile + 1) * KEYS + t);
        __syncthreads();
        constexpr u32 STEPS = QUERY ? 1 : KEYS / 16;
        float s[STEPS][2][4] = {}; // [8-key half][row g, row g + 8 of keys 2c, 2c + 1]
#pragma unroll 4
        for (u32 k0 = 0; k0 < C; k0 += 16) {
            u32 high[4], low[4];
            load_matrices(high, shared_address(q_high + q_at + k0));
            load_matrices(low, shared_address(q_low + q_at + k0));
#pragma unroll
            for (u32 step = 0; step < STEPS; step++) {
                u32 k[4];
                load_matrices(k, shared_address(ks + (QUERY ? warp : step) * 16 * KP + k_at + k0));
                mma(s[step][0], high, k[0], k[1]), mma(s[step][1], high, k[2], k[3]);
                mma(s[step][0], low, k[0], k[1]), mma(s[step][1], low, k[2], k[3]);
            }
        }
        __syncthreads(); // nobody reads these keys any more
        if (tile + 1 < tiles) fetch(a.k, ks, C, KP, next);
        else copy_commit();
        copy_wait<1>(); // the values
        __syncthreads();
        // Times the probability 0 of a row that does not see it, a value that is no number would still be none. A query's own
        // keys are all seen.
        bool spoiled = false;
        if (!QUERY && !(keys[KEYS - 1] >= 0 && keys[KEYS - 1] <= position_of(0))) {
            for (u32 i = t; i < KEYS * (CV / 2); i += THREADS) {
                const u32 two = *(const u32 *)(vs + i / (CV / 2) * VP + 2 * (i % (CV / 2)));
                spoiled |= (two & 0x7c00u) == 0x7c00u || (two & 0x7c000000u) == 0x7c000000u;
            }
            spoiled = __syncthreads_or(spoiled);
        }
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) {
            const u32 key0 = (QUERY ? warp : step) * 16;
            float keep[2];
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                float highest = -INFINITY_F;
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    float &score = s[step][i / 2][2 * h + i % 2];
                    const i32 key = keys[key0 + i / 2 * 8 + 2 * c + i % 2];
                    score = key >= 0 && key <= position[h] ? score * power[h] : -INFINITY_F;
                    highest = fmaxf(highest, score);
                }
                highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1)), highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
                const float most_now = fmaxf(most[h], highest);
                keep[h] = most[h] == most_now ? 1.0f : expf(most[h] - most_now);
                most[h] = most_now, sum[h] *= keep[h];
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    float &p = s[step][i / 2][2 * h + i % 2];
                    p = p == -INFINITY_F ? 0.0f : p == most_now ? 1.0f : expf(p - most_now);
                    sum[h] += p, p *= P_SCALE;
                }
            }
            if (__any_sync(~0u, keep[0] != 1.0f || keep[1] != 1.0f)) {
#pragma unroll
                for (u32 n = 0; n < CV / 8; n++) acc[n][0] *= keep[0], acc[n][1] *= keep[0], acc[n][2] *= keep[1], acc[n][3] *= keep[1];
            }
            if (spoiled) {
#pragma unroll 1
                for (u32 key = 0; key < 16; key++) {
                    float p[2];
#pragma unroll
                    for (u32 h = 0; h < 2; h++) {
                        const float(&half)[4] = s[step][0], (&other)[4] = s[step][1];
                        const float even = key < 8 ? half[2 * h] : other[2 * h], odd = key < 8 ? half[2 * h + 1] : other[2 * h + 1];
                        p[h] = __shfl_sync(~0u, key % 2 ? odd : even, (lane & ~3u) | key % 8 / 2);
                    }
#pragma unroll
                    for (u32 n = 0; n < CV / 8; n++)
#pragma unroll
                        for (u32 i = 0; i < 4; i++) {
                            const float v = half_to_float(vs[(key0 + key) * VP + 8 * n + 2 * c + i % 2]);
                            if (p[i / 2] != 0) acc[n][i] = fmaf(p[i / 2], v, acc[n][i]);
                        }
                }
                continue;
            }
            u32 high[4], low[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) split(s[step][i / 2][2 * (i % 2)], s[step][i / 2][2 * (i % 2) + 1], high[i], low[i]);
#pragma unroll
            for (u32 n = 0; n < CV / 8; n += 2) {
                u32 v[4];
                load_transposed(v, shared_address(vs + key0 * VP + v_at + 8 * n));
                mma(acc[n], high, v[0], v[1]), mma(acc[n + 1], high, v[2], v[3]);
                mma(acc[n], low, v[0], v[1]), mma(acc[n + 1], low, v[2], v[3]);
            }
        }
        __syncthreads(); // nobody reads these values any more
        if (tile + 1 < tiles) fetch(a.v, vs, CV, VP, next);
        else copy_commit();
    }
    copy_wait<0>();
#pragma unroll
    for (u32 h = 0; h < 2; h++) sum[h] += __shfl_xor_sync(~0u, sum[h], 1), sum[h] += __shfl_xor_sync(~0u, sum[h], 2);

    auto store = [&](u32 r, u32 column, float x) {
        if (a.has_gate) x *= sigmoid(a.gate.at(query_of(r), head_of(r))[column]);
        a.out.at(query_of(r), head_of(r))[column] = x;
    };
    if (!QUERY) {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u32 r = row0 + g + 8 * h;
            if (first + r >= rows) continue;
#pragma unroll
            for (u32 n = 0; n < CV / 8; n++)
#pragma unroll
                for (u32 j = 0; j < 2; j++) // no key was seen: 0
                    store(r, 8 * n + 2 * c + j, sum[h] == 0 ? 0.0f : acc[n][2 * h + j] / P_SCALE / sum[h]);
        }
        return;
    }
    // The warps' results, in the order of the warps.
    __shared__ float mosts[WARPS][16], sums[WARPS][16];
    float *parts = (float *)memory; // [WARPS][16][CV]
    if (c == 0)
#pragma unroll
        for (u32 h = 0; h < 2; h++) mosts[warp][g + 8 * h] = most[h], sums[warp][g + 8 * h] = sum[h];
    __syncthreads();
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        float highest = -INFINITY_F;
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) highest = fmaxf(highest, mosts[w][g + 8 * h]);
        const float keep = most[h] == highest ? 1.0f : most[h] == -INFINITY_F ? 0.0f : expf(most[h] - highest);
#pragma unroll
        for (u32 n = 0; n < CV / 8; n++)
            *(float2 *)&parts[(warp * 16 + g + 8 * h) * CV + 8 * n + 2 * c] = make_float2(acc[n][2 * h] * keep, acc[n][2 * h + 1] * keep);
        if (c == 0) sums[warp][g + 8 * h] = sum[h] * keep;
    }
    __syncthreads();
    for (u32 i = t; i < 16 * CV; i += THREADS) {
        const u32 r = i / CV;
        if (r >= rows) break;
        float x = 0, total = 0;
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) x += parts[w * 16 * CV + i], total += sums[w][r];
        store(r, i % CV, total == 0 ? 0.0f : x / P_SCALE / total);
    }
}
