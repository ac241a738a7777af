// The plan: which row of which expert's product each routed entry becomes. What every word means is argon_plan's matter;
// these kernels leave the same bytes.
//
// A block of 1024 threads for each block of 1024 entries, whatever the variant; the default has one more, for the sizes, and
// at least 16, to share the writing of tiles and padding. A kernel runs its code once, so fetching the code counts: no loop is unrolled.
//   default   alone    one launch: every block counts all entries itself            (few blocks)
//             clustered   one launch: four blocks count for each other              (many, compute capability 9.0)
//             hist, place      every block adds up the counts of the others          (some)
//             hist, sums, place    a thread for each expert adds them up once        (many)
//   serial    hist, scan, clear, place_serial     packed    hist, scan, place_packed     fused    hist_scan, place_match
#include "rank.cuh"
#include "view.cuh"

struct PlanArgs {
    const i32 *ids;             // [T*K]
    const u32 *weights;         // [T*K], moved as they are
    u32 *bcnt, *boff;           // [blocks, E]
    u32 *eoff;                  // [E + 1]
    u32 *tiles;                 // [n, 3]
    i32 *stok;                  // [R]
    u32 *sw;                    // [R]
    i32 *pos;                   // [T*K]
    u32 *meta;                  // [11]
    u32 *totals;                // scratch [E]: entries of each expert
    u32 *left;                  // scratch [blocks, 2]: skipped and rejected entries of each block
    u32 entries, top_k, experts, tile, blocks;
};
AS_HOST(PlanArgs, PLAN_ARGS);

DEVICE i32 expert_of(i32 id, u32 experts) { return id >= 0 && (u32)id < experts ? id : -1; }
// The entry of this thread, and its id; -1 beyond the end.
DEVICE u32 entry() { return blockIdx.x * BLOCK + threadIdx.x; }
DEVICE i32 entry_id(const PlanArgs &a) { return entry() < a.entries ? a.ids[entry()] : -1; }

// The sum over the block, for all threads.
DEVICE u32 block_add(u32 x) {
    __shared__ u32 parts[32];
    x = __reduce_add_sync(~0u, x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    return __reduce_add_sync(~0u, parts[threadIdx.x % 32]);
}
// The sum over the threads before this one.
DEVICE u32 block_before(u32 x) {
    __shared__ u32 parts[32];
    const u32 lane = threadIdx.x % 32;
    u32 sum = x;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    __syncthreads();
    if (lane == 31) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    u32 warps = lane < threadIdx.x / 32 ? parts[lane] : 0;
    return __reduce_add_sync(~0u, warps) + sum - x;
}

// From counts [E] to the first tile of each expert [E + 1], both in shared memory.
DEVICE void lay_out(const PlanArgs &a, const u32 *counts, u32 *first_tile) {
    const u32 each = (a.experts + BLOCK - 1) / BLOCK, begin = min(threadIdx.x * each, a.experts), end = min(begin + each, a.experts);
    u32 mine = 0;
#pragma unroll 1
    for (u32 e = begin; e < end; e++) mine += first_tile[e] = (counts[e] + a.tile - 1) / a.tile;
    u32 next = block_before(mine);
#pragma unroll 1
    for (u32 e = begin; e < end; e++) {
        const u32 tiles = first_tile[e];
        first_tile[e] = next, next += tiles;
    }
    if (threadIdx.x == BLOCK - 1) first_tile[a.experts] = next;
    __syncthreads();
}

// eoff and meta: by one block.
DEVICE void write_sizes(const PlanArgs &a, const u32 *counts, const u32 *first_tile, u32 skipped, u32 rejected) {
    __shared__ u32 sums[3];
    if (threadIdx.x < 3) sums[threadIdx.x] = 0;
    __syncthreads();
    u32 kept = 0, active = 0, largest = 0;
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) {
        a.eoff[e] = first_tile[e] * a.tile;
        kept += counts[e], active += counts[e] > 0, largest = max(largest, counts[e]);
    }
    kept = __reduce_add_sync(~0u, kept), active = __reduce_add_sync(~0u, active), largest = __reduce_max_sync(~0u, largest);
    if (threadIdx.x % 32 == 0) atomicAdd(&sums[0], kept), atomicAdd(&sums[1], active), atomicMax(&sums[2], largest);
    __syncthreads();
    if (threadIdx.x == 0) {
        const u32 n = first_tile[a.experts];
        a.eoff[a.experts] = n * a.tile;
        const u32 words[META_WORDS] = {n, n * a.tile, sums[0], sums[1], sums[2], a.tile, a.blocks, a.entries, skipped, rejected, 0};
        for (u32 i = 0; i < META_WORDS; i++) a.meta[i] = words[i];
    }
}
// Tiles and padding rows: a warp for an expert.
DEVICE void write_tiles(const PlanArgs &a, const u32 *counts, const u32 *first_tile, bool padding, u32 thread, u32 threads) {
    const u32 lane = thread % 32;
#pragma unroll 1
    for (u32 e = thread / 32; e < a.experts; e += threads / 32) {
        const u32 count = counts[e], first = first_tile[e], end = first_tile[e + 1];
#pragma unroll 1
        for (u32 i = first + lane; i < end; i += 32)
            a.tiles[3 * i] = e, a.tiles[3 * i + 1] = i * a.tile, a.tiles[3 * i + 2] = min(a.tile, count - (i - first) * a.tile);
#pragma unroll 1
        for (u32 row = first * a.tile + count + lane; padding && row < end * a.tile; row += 32) a.stok[row] = -1, a.sw[row] = 0;
    }
}
// This thread's entry to its row.
DEVICE void write_entry(const PlanArgs &a, i32 expert, u32 row) {
    const u32 i = entry();
    if (i >= a.entries) return;
    a.pos[i] = expert < 0 ? -1 : (i32)row;
    if (expert >= 0) a.stok[row] = i / a.top_k, a.sw[row] = a.weights[i];
}

extern __shared__ u32 memory[];

// bcnt of one block of entries.
extern "C" __global__ void __launch_bounds__(1024) plan_hist(const __grid_constant__ PlanArgs a) {
    u32 *counts = memory; // [E]
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) counts[e] = 0;
    after_previous();
    before_next();
    __syncthreads();
    const i32 id = entry_id(a), expert = expert_of(id, a.experts);
    if (expert >= 0) atomicAdd(&counts[expert], 1);
    const u32 skipped = block_add(entry() < a.entries && id == -1), rejected = block_add(id != -1 && expert < 0);
    if (threadIdx.x == 0) a.left[2 * blockIdx.x] = skipped, a.left[2 * blockIdx.x + 1] = rejected;
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) a.bcnt[(u64)blockIdx.x * a.experts + e] = counts[e];
}

DEVICE void sum_left(const PlanArgs &a, u32 *skipped, u32 *rejected) {
    u32 s = 0, r = 0;
    for (u32 b = threadIdx.x; b < a.blocks; b += BLOCK) s += a.left[2 * b], r += a.left[2 * b + 1];
    *skipped = block_add(s), *rejected = block_add(r);
}

// totals, and boff as the entries in earlier blocks: a thread for an expert.
extern "C" __global__ void plan_sums(const __grid_constant__ PlanArgs a) {
    const u32 e = blockIdx.x * blockDim.x + threadIdx.x;
    after_previous();
    before_next();
    if (e >= a.experts) return;
    u32 sum = 0;
#pragma unroll 8
    for (u32 b = 0; b < a.blocks; b++) {
        a.boff[(u64)b * a.experts + e] = sum;
        sum += a.bcnt[(u64)b * a.experts + e];
    }
    a.totals[e] = sum;
}

// The rest of the default: counts of all and of the earlier blocks are in shared memory.
DEVICE void finish(const PlanArgs &a, u32 *counts, u32 *before, u32 *first_tile, u32 *counters, i32 expert, u32 rank, u32 skipped, u32 rejected) {
    lay_out(a, counts, first_tile);
    if (blockIdx.x == gridDim.x - 1) write_sizes(a, counts, first_tile, skipped, rejected);
    if (blockIdx.x < a.blocks)
#pragma unroll 1
        for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) a.boff[(u64)blockIdx.x * a.experts + e] = first_tile[e] * a.tile + before[e];
    write_tiles(a, counts, first_tile, true, blockIdx.x * BLOCK + threadIdx.x, gridDim.x * BLOCK);
    const u32 row = expert < 0 ? 0 : first_tile[expert] * a.tile + before[expert] + match_before(counters, a.experts, expert) + rank;
    write_entry(a, expert, row);
}

// Blocks of entries whose ids a thread fetches before it counts them.
constexpr u32 AHEAD = 5;

// Shared memory of the default: counts [E], before [E], first_tile [E + 1], counters [8][E].
extern "C" __global__ void __launch_bounds__(1024) plan_alone(const __grid_constant__ PlanArgs a) {
    u32 *counts = memory, *before = counts + a.experts, *first_tile = before + a.experts, *counters = first_tile + a.experts + 1;
#pragma unroll 1
    for (u32 e = threadIdx.x; e < 2 * a.experts; e += BLOCK) counts[e] = 0;
    match_clear(counters, a.experts);
    after_previous();
    before_next();
    __syncthreads();
    const i32 expert = expert_of(entry_id(a), a.experts);
    u32 skipped = 0, rejected = 0;
#pragma unroll 1
    for (u32 first = 0; first < a.blocks; first += AHEAD) {
        i32 ids[AHEAD]; // on their way together
#pragma unroll
        for (u32 j = 0; j < AHEAD; j++) {
            const u32 i = (first + j) * BLOCK + threadIdx.x;
            ids[j] = i < a.entries ? a.ids[i] : 0;
        }
#pragma unroll
        for (u32 j = 0; j < AHEAD; j++) {
            const u32 b = first + j;
            if (b * BLOCK + threadIdx.x >= a.entries) break;
            const i32 other = expert_of(ids[j], a.experts);
            if (other < 0) skipped += ids[j] == -1, rejected += ids[j] != -1;
            else if (b < blockIdx.x) atomicAdd(&before[other], 1);
            else if (b > blockIdx.x) atomicAdd(&counts[other], 1);
        }
    }
    const u32 rank = match_count(counters, a.experts, expert);
    __syncthreads();
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) {
        const u32 own = match_total(counters, a.experts, e);
        counts[e] += before[e] + own;
        if (blockIdx.x < a.blocks) a.bcnt[(u64)blockIdx.x * a.experts + e] = own;
    }
    if (blockIdx.x == gridDim.x - 1) skipped = block_add(skipped), rejected = block_add(rejected);
    __syncthreads();
    finish(a, counts, before, first_tile, counters, expert, rank, skipped, rejected);
}

// Thread blocks that share the counting of other blocks' entries: a cluster, whose members read each other's shared memory.
#if CAPABILITY >= 90
constexpr u32 CLUSTER = PLAN_CLUSTER;
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE u32 word_of(const u32 *word, u32 member) {
    u32 address, r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(word)), "r"(member));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(r) : "r"(address) : "memory");
    return r;
}

// As plan_alone, whose shared memory it begins with. Behind that are, of the blocks that this member counts, entries before
// and after the cluster [2][E], and its own entries [E].
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(1024) plan_clustered(const __grid_constant__ PlanArgs a) {
    u32 *counts = memory, *before = counts + a.experts, *first_tile = before + a.experts, *counters = first_tile + a.experts + 1;
    u32 *earlier = counters + MATCH_WORDS * a.experts, *later = earlier + a.experts, *own = later + a.experts;
    __shared__ u32 left[2];
#pragma unroll 1
    for (u32 e = threadIdx.x; e < 2 * a.experts; e += BLOCK) earlier[e] = 0;
    match_clear(counters, a.experts);
    after_previous();
    before_next();
    __syncthreads();
    const u32 member = blockIdx.x % CLUSTER, first_block = blockIdx.x - member;
    const i32 expert = expert_of(entry_id(a), a.experts);
    u32 skipped = 0, rejected = 0;
#pragma unroll 1
    for (u32 first = member; first < a.blocks; first += CLUSTER * AHEAD) {
        i32 ids[AHEAD]; // on their way together
#pragma unroll
        for (u32 j = 0; j < AHEAD; j++) {
            const u32 i = (first + j * CLUSTER) * BLOCK + threadIdx.x;
            ids[j] = i < a.entries ? a.ids[i] : 0;
        }
#pragma unroll
        for (u32 j = 0; j < AHEAD; j++) {
            const u32 b = first + j * CLUSTER;
            if (b * BLOCK + threadIdx.x >= a.entries) break;
            const i32 other = expert_of(ids[j], a.experts);
            if (other < 0) skipped += ids[j] == -1, rejected += ids[j] != -1;
            else if (b < first_block) atomicAdd(&earlier[other], 1);
            else if (b > blockIdx.x) atomicAdd(&later[other], 1);
        }
    }
    const u32 rank = match_count(counters, a.experts, expert);
    if (blockIdx.x + CLUSTER >= gridDim.x) {
        skipped = block_add(skipped), rejected = block_add(rejected);
        if (threadIdx.x == 0) left[0] = skipped, left[1] = rejected;
    }
    __syncthreads();
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) {
        own[e] = match_total(counters, a.experts, e);
        if (blockIdx.x < a.blocks) a.bcnt[(u64)blockIdx.x * a.experts + e] = own[e];
    }
    cluster_arrive();
    cluster_wait();
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) {
        u32 all = 0, prior = 0;
#pragma unroll
        for (u32 m = 0; m < CLUSTER; m++) {
            const u32 e0 = word_of(&earlier[e], m), e1 = word_of(&later[e], m), e2 = word_of(&own[e], m);
            all += e0 + e1 + e2, prior += e0 + (m < member ? e2 : 0);
        }
        counts[e] = all, before[e] = prior;
    }
    skipped = rejected = 0;
    if (blockIdx.x == gridDim.x - 1)
#pragma unroll
        for (u32 m = 0; m < CLUSTER; m++) skipped += word_of(&left[0], m), rejected += word_of(&left[1], m);
    cluster_arrive(); // has read what others hold
    __syncthreads();
    finish(a, counts, before, first_tile, counters, expert, rank, skipped, rejected);
    cluster_wait(); // others have, too
}
#endif

// After plan_hist and, with many blocks, plan_sums.
DEVICE void place(const PlanArgs &a, bool summed) {
    u32 *counts = memory, *before = counts + a.experts, *first_tile = before + a.experts, *counters = first_tile + a.experts + 1;
    match_clear(counters, a.experts);
    after_previous();
    before_next();
    __syncthreads();
    const i32 expert = expert_of(entry_id(a), a.experts);
    const u32 rank = match_count(counters, a.experts, expert);
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) {
        u32 earlier = 0, all = 0;
        if (summed) {
            all = a.totals[e], earlier = blockIdx.x < a.blocks ? a.boff[(u64)blockIdx.x * a.experts + e] : 0;
        } else {
#pragma unroll 10
            for (u32 b = 0; b < a.blocks; b++) {
                const u32 count = a.bcnt[(u64)b * a.experts + e];
                all += count, earlier += b < blockIdx.x ? count : 0;
            }
        }
        counts[e] = all, before[e] = earlier;
    }
    u32 skipped = 0, rejected = 0;
    if (blockIdx.x == gridDim.x - 1) sum_left(a, &skipped, &rejected);
    __syncthreads();
    finish(a, counts, before, first_tile, counters, expert, rank, skipped, rejected);
}
extern "C" __global__ void __launch_bounds__(1024) plan_place(const __grid_constant__ PlanArgs a) { place(a, false); }
extern "C" __global__ void __launch_bounds__(1024) plan_place_summed(const __grid_constant__ PlanArgs a) { place(a, true); }

// ---- the other variants --------------------------------------------------------------------------------------------

// One block: everything but pos and the rows of entries, from bcnt. Shared memory: counts [E], first_tile [E + 1].
DEVICE void scan(const PlanArgs &a, u32 *counts, u32 *first_tile, bool padding, u32 skipped, u32 rejected) {
    lay_out(a, counts, first_tile);
    write_sizes(a, counts, first_tile, skipped, rejected);
    for (u32 i = threadIdx.x; i < a.blocks * a.experts; i += BLOCK) a.boff[i] += first_tile[i % a.experts] * a.tile;
    write_tiles(a, counts, first_tile, padding, threadIdx.x, BLOCK);
}
DEVICE void scan_counts(const PlanArgs &a, bool padding) {
    u32 *counts = memory, *first_tile = counts + a.experts;
    after_previous();
    before_next();
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) {
        u32 sum = 0;
        for (u32 b = 0; b < a.blocks; b++) {
            a.boff[(u64)b * a.experts + e] = sum;
            sum += a.bcnt[(u64)b * a.experts + e];
        }
        counts[e] = sum;
    }
    u32 skipped, rejected;
    sum_left(a, &skipped, &rejected);
    __syncthreads();
    scan(a, counts, first_tile, padding, skipped, rejected);
}
extern "C" __global__ void __launch_bounds__(1024) plan_scan(const __grid_constant__ PlanArgs a) { scan_counts(a, true); }
extern "C" __global__ void __launch_bounds__(1024) plan_scan_bare(const __grid_constant__ PlanArgs a) { scan_counts(a, false); }

// `fused`: hist and scan as one block.
extern "C" __global__ void __launch_bounds__(1024) plan_hist_scan(const __grid_constant__ PlanArgs a) {
    u32 *counts = memory, *first_tile = counts + a.experts, *own = first_tile + a.experts + 1;
    after_previous();
    before_next();
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) counts[e] = 0;
    u32 skipped = 0, rejected = 0;
    for (u32 b = 0; b < a.blocks; b++) {
#pragma unroll 1
        for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) own[e] = 0;
        __syncthreads();
        const u32 i = b * BLOCK + threadIdx.x;
        if (i < a.entries) {
            const i32 id = a.ids[i], expert = expert_of(id, a.experts);
            if (expert >= 0) atomicAdd(&own[expert], 1);
            else skipped += id == -1, rejected += id != -1;
        }
        __syncthreads();
#pragma unroll 1
        for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) {
            a.bcnt[(u64)b * a.experts + e] = own[e], a.boff[(u64)b * a.experts + e] = counts[e];
            counts[e] += own[e];
        }
        __syncthreads();
    }
    skipped = block_add(skipped), rejected = block_add(rejected);
    __syncthreads();
    scan(a, counts, first_tile, true, skipped, rejected);
}

// `serial`: every row is padding first.
extern "C" __global__ void plan_clear(const __grid_constant__ PlanArgs a) {
    after_previous();
    before_next();
    for (u32 row = blockIdx.x * blockDim.x + threadIdx.x; row < a.meta[META_ROWS]; row += gridDim.x * blockDim.x) a.stok[row] = -1, a.sw[row] = 0;
}
// `serial`: the rank by looking at every earlier entry of the block. Needs no memory for counters, so it serves any E.
extern "C" __global__ void __launch_bounds__(1024) plan_place_serial(const __grid_constant__ PlanArgs a) {
    __shared__ i32 ids[BLOCK];
    after_previous();
    before_next();
    const i32 expert = expert_of(entry_id(a), a.experts);
    ids[threadIdx.x] = expert;
    __syncthreads();
    u32 rank = 0;
    for (u32 i = 0; i < threadIdx.x; i++) rank += ids[i] == expert;
    write_entry(a, expert, expert < 0 ? 0 : a.boff[(u64)blockIdx.x * a.experts + expert] + rank);
}

// `packed`: counters of 32 entries each in four bits, eight to a word, [4][E] words; in bytes where an expert occurs more
// than 15 times in 32 entries.
extern "C" __global__ void __launch_bounds__(1024) plan_place_packed(const __grid_constant__ PlanArgs a) {
    __shared__ i32 ids[BLOCK];
    u32 *counters = memory;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    after_previous();
    before_next();
    const i32 expert = expert_of(entry_id(a), a.experts);
    ids[threadIdx.x] = expert;
    for (u32 i = threadIdx.x; i < MATCH_WORDS * a.experts; i += BLOCK) counters[i] = 0;
    __syncthreads();
    u32 rank = 0;
    for (u32 i = 0; i < lane; i++) rank += ids[32 * warp + i] == expert;
    const u32 bits = __syncthreads_or(expert >= 0 && rank >= 15) ? 8 : 4, fields = 32 / bits;
    if (expert >= 0) atomicAdd(&counters[warp / fields * a.experts + expert], 1u << (bits * (warp % fields)));
    __syncthreads();
    u32 before = 0;
    if (expert >= 0)
        for (u32 w = 0; w <= warp / fields; w++) {
            u32 word = counters[w * a.experts + expert];
            if (w == warp / fields) word &= (1u << (bits * (warp % fields))) - 1;
            before += bits == 8 ? sum_of_bytes(word) : sum_of_bytes(word & 0x0f0f0f0fu) + sum_of_bytes(word >> 4 & 0x0f0f0f0fu);
        }
    write_entry(a, expert, expert < 0 ? 0 : a.boff[(u64)blockIdx.x * a.experts + expert] + before + rank);
}

// The default's rank after another variant's scan.
extern "C" __global__ void __launch_bounds__(1024) plan_place_match(const __grid_constant__ PlanArgs a) {
    match_clear(memory, a.experts);
    after_previous();
    before_next();
    __syncthreads();
    const i32 expert = expert_of(entry_id(a), a.experts);
    const u32 rank = match_count(memory, a.experts, expert);
    __syncthreads();
    const u32 row = expert < 0 ? 0 : a.boff[(u64)blockIdx.x * a.experts + expert] + match_before(memory, a.experts, expert) + rank;
    write_entry(a, expert, row);
}
