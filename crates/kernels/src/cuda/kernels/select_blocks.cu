// The QSA indexer: block keys, their scores, and the choice of blocks.
#include "view.cuh"

struct PoolArgs { Floats x, out; u32 ratio; };
AS_HOST(PoolArgs, POOL_ARGS);

// out[b] = mean of x[b*ratio .. (b+1)*ratio]
extern "C" __global__ void mean_pool(const __grid_constant__ PoolArgs a) {
    const u32 block = blockIdx.x;
    for (u32 c = threadIdx.x; c < a.out.cols; c += blockDim.x) {
        float sum = 0;
        for (u32 i = 0; i < a.ratio; i++) sum += a.x.at(block * a.ratio + i, 0)[c];
        a.out.at(block, 0)[c] = sum / (float)a.ratio;
    }
}

struct SelectArgs {
    Floats q, keys;      // q [T, H, C]: the queries at hand; keys [>= blocks, 1, C]
    Ints out;            // [T, 1, n]
    float *scores;       // [T, stride]
    u64 pos0, stride;
    u32 ratio;
};
AS_HOST(SelectArgs, SELECT_ARGS);

DEVICE u32 complete(const SelectArgs &a, u32 query) { return (u32)((a.pos0 + query + 1) / a.ratio); }

static_assert(SELECT_KEYS == 32, "a lane for a block");

// scores[t, b] = sum over h of max(0, q[t, h] . keys[b]): a warp for a query, a lane for a block.
extern "C" __global__ void block_scores(const __grid_constant__ SelectArgs a) {
    extern __shared__ float keys[]; // [32][C + 1]
    const u32 cols = a.q.cols, lane = threadIdx.x % 32, block0 = blockIdx.x * 32;
    const u32 query = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
    const u32 last = complete(a, min((blockIdx.y + 1) * (blockDim.x / 32), a.q.rows) - 1);
    if (block0 >= last) return;
    for (u32 i = threadIdx.x; i < 32 * cols; i += blockDim.x) {
        const u32 b = i / cols, c = i % cols;
        keys[b * (cols + 1) + c] = block0 + b < last ? a.keys.at(block0 + b, 0)[c] : 0.0f;
    }
    __syncthreads();
    if (query >= a.q.rows || block0 + lane >= complete(a, query)) return;
    float score = 0;
    for (u32 h = 0; h < a.q.groups; h++) {
        const float *q = a.q.at(query, h);
        float dot = 0;
        for (u32 c = 0; c < cols; c++) dot = fmaf(q[c], keys[lane * (cols + 1) + c], dot);
        score += fmaxf(dot, 0.0f);
    }
    a.scores[query * a.stride + block0 + lane] = score;
}

// This thread's place among those of the block for which `is` holds, and how many there are.
DEVICE u32 block_rank(bool is, u32 *all) {
    __shared__ u32 counts[32];
    const u32 votes = __ballot_sync(~0u, is), lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    __syncthreads();
    if (lane == 0) counts[warp] = __popc(votes);
    __syncthreads();
    u32 before = 0, total = 0;
    for (u32 w = 0; w < warps; w++) before += w < warp ? counts[w] : 0, total += counts[w];
    *all = total;
    return before + __popc(votes & ((1u << lane) - 1));
}

// The n blocks of the highest scores, ties to the lower block; ascending, then -1. A block of 256 threads for a query.
// The n-th highest score is found byte by byte: scores are not negative, so their bits have their order.
extern "C" __global__ void __launch_bounds__(256) select_blocks(const __grid_constant__ SelectArgs a) {
    __shared__ u32 histogram[256], prefix, missing;
    const u32 query = blockIdx.x, t = threadIdx.x, blocks = complete(a, query), n = a.out.cols;
    i32 *out = a.out.at(query, 0);
    const u32 *scores = (const u32 *)(a.scores + query * a.stride);
    if (blocks <= n) {
        for (u32 i = t; i < n; i += 256) out[i] = i < blocks ? (i32)i : -1;
        return;
    }
    if (t == 0) prefix = 0, missing = n;
    __syncthreads();
    for (int shift = 24; shift >= 0; shift -= 8) {
        histogram[t] = 0;
        __syncthreads();
        for (u32 b = t; b < blocks; b += 256)
            if (shift == 24 || scores[b] >> (shift + 8) == prefix >> (shift + 8)) atomicAdd(&histogram[scores[b] >> shift & 255], 1);
        __syncthreads();
        if (t == 0 && n > 0) {
            u32 digit = 255, need = missing;
            while (histogram[digit] < need) need -= histogram[digit--];
            prefix |= digit << shift, missing = need;
        }
        __syncthreads();
    }
    if (n == 0) return;
    const u32 threshold = prefix, ties = missing; // all above it, and the first `ties` equal to it
    u32 written = 0, equal = 0;
    for (u32 first = 0; first < blocks; first += 256) {
        const u32 b = first + t, score = b < blocks ? scores[b] : 0;
        u32 found, taken;
        const bool tie = b < blocks && score == threshold;
        const u32 rank = equal + block_rank(tie, &found);
        const bool is = b < blocks && (score > threshold || (tie && rank < ties));
        const u32 place = written + block_rank(is, &taken);
        if (is) out[place] = b;
        equal += found, written += taken;
    }
}
