// The plan: which row of which expert's product each routed entry becomes. What every word means is argon_plan's matter;
// these kernels leave the same bytes.
//
// Entries are counted by blocks of 1024. A kernel takes as long as a multiprocessor has instructions and scattered stores to
// issue, so the default has a block of threads for 256 entries, and one more for the sizes; and every one of them finds out
// where experts begin.
//   default   alone           one launch: every block of threads counts all entries itself      (few entries)
//             hist, place           every block of threads adds up the counts of all blocks      (some)
//             hist, sums, place     a thread for each expert adds them up once                   (many)
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
    u32 *pairs;                 // scratch [blocks, E / 2 rounded up]: bcnt of two experts in a word; or [blocks, E]: entries in
                                // earlier blocks
    u32 *totals;                // scratch [E]: entries of each expert
    u32 *left;                  // scratch [blocks, 2]: skipped and rejected entries of each block
    u32 entries, top_k, experts, tile, blocks;
};
AS_HOST(PlanArgs, PLAN_ARGS);

extern __shared__ u32 memory[];

DEVICE i32 expert_of(i32 id, u32 experts) { return id >= 0 && (u32)id < experts ? id : -1; }
// The entry of this thread.
DEVICE u32 entry() { return blockIdx.x * blockDim.x + threadIdx.x; }
// The id of an entry; -1 beyond the end.
DEVICE i32 id_of(const PlanArgs &a, u32 entry) { return entry < a.entries ? a.ids[entry] : -1; }

// ---- experts to tiles ------------------------------------------------------------------------------------------------

// Of every expert, at the beginning of shared memory: its first row plus its entries in earlier blocks [E], its entries [E],
// its first tile [E + 1].
struct Layout {
    u32 *row, *count, *first_tile;
};
DEVICE Layout layout_of(u32 experts) { return {memory, memory + experts, memory + 2 * experts}; }
DEVICE u32 layout_words(u32 experts) { return 3 * experts + 1; }

// Two neighbouring experts: their entries, and those in earlier blocks. 0 beyond the last expert.
struct Pair {
    u32 all[2], earlier[2];
};

// Kept entries, active experts, most entries of an expert; skipped and rejected entries.
DEVICE u32 *sizes() {
    __shared__ u32 words[5];
    return words;
}
DEVICE void clear_sizes() {
    if (threadIdx.x < 5) sizes()[threadIdx.x] = 0;
}
// Of an entry without an expert.
DEVICE void count_left(u32 *left, i32 id) { atomicAdd(&left[id != -1], 1); }

// The sum over the threads before this one, and over all.
DEVICE u32 block_before(u32 x, u32 &all) {
    __shared__ u32 parts[32];
    const u32 lane = threadIdx.x % 32;
    u32 sum = x;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    const u32 part = lane < blockDim.x / 32 ? parts[lane] : 0;
    all = __reduce_add_sync(~0u, part);
    return __reduce_add_sync(~0u, lane < threadIdx.x / 32 ? part : 0) + sum - x;
}

// Fills the layout from `counts`, which gives the pair that begins with an expert; `sized`: the first three sizes as well.
// The number of tiles.
template <typename Counts> DEVICE u32 lay_out(const PlanArgs &a, const Layout &l, bool sized, Counts counts) {
    u32 next = 0;
#pragma unroll 1
    for (u32 first = 0; first < a.experts; first += 2 * blockDim.x) {
        const u32 e = first + 2 * threadIdx.x;
        const Pair p = counts(e);
        const u32 tiles[2] = {(p.all[0] + a.tile - 1) / a.tile, (p.all[1] + a.tile - 1) / a.tile};
        u32 all;
        u32 tile = next + block_before(tiles[0] + tiles[1], all);
        next += all;
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            if (e + j < a.experts) l.row[e + j] = tile * a.tile + p.earlier[j], l.count[e + j] = p.all[j], l.first_tile[e + j] = tile;
            tile += tiles[j];
        }
        if (threadIdx.x == 0) l.first_tile[a.experts] = next;
        if (sized) {
            const u32 kept = __reduce_add_sync(~0u, p.all[0] + p.all[1]), active = __reduce_add_sync(~0u, (p.all[0] > 0) + (p.all[1] > 0));
            const u32 largest = __reduce_max_sync(~0u, max(p.all[0], p.all[1]));
            if (threadIdx.x % 32 == 0) atomicAdd(&sizes()[0], kept), atomicAdd(&sizes()[1], active), atomicMax(&sizes()[2], largest);
        }
        __syncthreads();
    }
    return next;
}

// eoff and meta: by one block of threads.
DEVICE void write_sizes(const PlanArgs &a, const Layout &l, u32 tiles) {
#pragma unroll 1
    for (u32 e = threadIdx.x; e <= a.experts; e += blockDim.x) a.eoff[e] = l.first_tile[e] * a.tile;
    if (threadIdx.x == 0) {
        const u32 *s = sizes();
        const u32 words[META_WORDS] = {tiles, tiles * a.tile, s[0], s[1], s[2], a.tile, a.blocks, a.entries, s[3], s[4], 0};
        for (u32 i = 0; i < META_WORDS; i++) a.meta[i] = words[i];
    }
}
// Tiles and padding rows: a warp for an expert.
DEVICE void write_tiles(const PlanArgs &a, const Layout &l, bool padding, u32 thread, u32 threads) {
    const u32 lane = thread % 32;
#pragma unroll 1
    for (u32 e = thread / 32; e < a.experts; e += threads / 32) {
        const u32 count = l.count[e], first = l.first_tile[e], end = l.first_tile[e + 1];
#pragma unroll 1
        for (u32 i = first + lane; i < end; i += 32)
            a.tiles[3 * i] = e, a.tiles[3 * i + 1] = i * a.tile, a.tiles[3 * i + 2] = min(a.tile, count - (i - first) * a.tile);
#pragma unroll 1
        for (u32 row = first * a.tile + count + lane; padding && row < end * a.tile; row += 32) a.stok[row] = -1, a.sw[row] = 0;
    }
}
// This thread's entry to its row.
DEVICE void write_entry(const PlanArgs &a, i32 expert, u32 row, u32 token, u32 weight) {
    const u32 i = entry();
    if (i >= a.entries) return;
    a.pos[i] = expert < 0 ? -1 : (i32)row;
    if (expert >= 0) a.stok[row] = token, a.sw[row] = weight;
}
DEVICE void write_entry(const PlanArgs &a, i32 expert, u32 row) {
    const u32 i = entry();
    write_entry(a, expert, row, i / a.top_k, i < a.entries ? a.weights[i] : 0);
}

// ---- the default -----------------------------------------------------------------------------------------------------

// bcnt of one block of entries, by 1024 threads. Shared memory: counts [E], to an even number.
extern "C" __global__ void __launch_bounds__(1024) plan_hist(const __grid_constant__ PlanArgs a) {
    u32 *counts = memory;
    __shared__ u32 left[2];
    const u32 pairs = (a.experts + 1) / 2;
    before_next(); // waits with this kernel for those before it: neither takes anybody's place
#pragma unroll 1
    for (u32 e = threadIdx.x; e < 2 * pairs; e += BLOCK) counts[e] = 0;
    if (threadIdx.x < 2) left[threadIdx.x] = 0;
    __syncthreads();
    after_previous();
    const i32 id = id_of(a, entry()), expert = expert_of(id, a.experts);
    if (expert >= 0) atomicAdd(&counts[expert], 1);
    else if (entry() < a.entries) count_left(left, id);
    __syncthreads();
#pragma unroll 1
    for (u32 p = threadIdx.x; p < pairs; p += BLOCK) a.pairs[(u64)blockIdx.x * pairs + p] = counts[2 * p] | counts[2 * p + 1] << 16;
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) a.bcnt[(u64)blockIdx.x * a.experts + e] = counts[e];
    if (threadIdx.x < 2) a.left[2 * blockIdx.x + threadIdx.x] = left[threadIdx.x];
}

// Adds left to the sizes.
DEVICE void sum_left(const PlanArgs &a) {
#pragma unroll 1
    for (u32 b = threadIdx.x; b < a.blocks; b += blockDim.x) atomicAdd(&sizes()[3], a.left[2 * b]), atomicAdd(&sizes()[4], a.left[2 * b + 1]);
}

// totals, and entries in earlier blocks in place of pairs: a thread for an expert.
extern "C" __global__ void plan_sums(const __grid_constant__ PlanArgs a) {
    constexpr u32 AHEAD = 16; // counts that are on their way together
    const u32 e = blockIdx.x * blockDim.x + threadIdx.x;
    after_previous();
    before_next();
    if (e >= a.experts) return;
    u32 sum = 0;
#pragma unroll 1
    for (u32 first = 0; first < a.blocks; first += AHEAD) {
        u32 counts[AHEAD];
#pragma unroll
        for (u32 j = 0; j < AHEAD; j++) counts[j] = first + j < a.blocks ? a.bcnt[(u64)(first + j) * a.experts + e] : 0;
#pragma unroll
        for (u32 j = 0; j < AHEAD; j++) {
            if (first + j < a.blocks) a.pairs[(u64)(first + j) * a.experts + e] = sum;
            sum += counts[j];
        }
    }
    a.totals[e] = sum;
}

// Threads of the other kernels, one an entry, and how many blocks of them a block of entries has.
constexpr u32 THREADS = PLAN_THREADS, SHARES = BLOCK / THREADS;
static_assert(BLOCK % THREADS == 0 && THREADS % 128 == 0, "whole blocks of threads, and whole words of counters");

// An entry, and where it is. Shared memory, behind the layout: entries of the same block of entries before this block of threads
// [E]; counters [THREADS / 128][E].
struct Place {
    Layout layout;
    u32 *before, *counters;
    u32 block, share; // of entries, and which of its blocks of threads
    bool last;        // no entries: the sizes
    u32 token, weight, rank;
    i32 expert;
};
// Words of shared memory behind the layout.
DEVICE u32 place_words(u32 experts) { return (1 + THREADS / 128) * experts; }

// What needs no memory but shared memory; `words` of that behind the layout are cleared.
DEVICE Place place_of(const PlanArgs &a, u32 words) {
    Place p;
    p.layout = layout_of(a.experts);
    p.before = memory + layout_words(a.experts), p.counters = p.before + a.experts;
    p.block = blockIdx.x / SHARES, p.share = blockIdx.x % SHARES, p.last = blockIdx.x == gridDim.x - 1;
    p.token = entry() / a.top_k;
    clear_sizes();
#pragma unroll 1
    for (u32 i = threadIdx.x; i < words; i += THREADS) p.before[i] = 0;
    __syncthreads();
    return p;
}
DEVICE void load_entry(const PlanArgs &a, Place &p) {
    p.expert = expert_of(id_of(a, entry()), a.experts);
    p.weight = entry() < a.entries ? a.weights[entry()] : 0;
}
// Everything that is written once the layout is there.
DEVICE void finish(const PlanArgs &a, const Place &p, u32 tiles) {
    u32 row = 0;
    if (p.expert >= 0) row = p.layout.row[p.expert] + p.before[p.expert] + match_before(p.counters, a.experts, p.expert) + p.rank;
    write_entry(a, p.expert, row, p.token, p.weight);
    if (p.last) write_sizes(a, p.layout, tiles);
    else if (p.share == 0 && p.block < a.blocks)
#pragma unroll 1
        for (u32 e = threadIdx.x; e < a.experts; e += THREADS) a.boff[(u64)p.block * a.experts + e] = p.layout.row[e];
    write_tiles(a, p.layout, true, entry(), gridDim.x * THREADS);
}

// Behind what place_of has in shared memory: entries of earlier blocks, of this one from this block of threads on, of later ones
// [3][E].
extern "C" __global__ void __launch_bounds__(THREADS) plan_alone(const __grid_constant__ PlanArgs a) {
    constexpr u32 AHEAD = 5; // entries that are on their way together
    Place p = place_of(a, place_words(a.experts) + 3 * a.experts);
    u32 *earlier = p.before + place_words(a.experts), *rest = earlier + a.experts, *later = rest + a.experts;
    after_previous();
    before_next();
    load_entry(a, p);
    const u32 begin = p.block * BLOCK, mine = blockIdx.x * THREADS;
#pragma unroll 1
    for (u32 first = 0; first < a.entries; first += AHEAD * THREADS) {
        i32 ids[AHEAD];
#pragma unroll
        for (u32 j = 0; j < AHEAD; j++) ids[j] = id_of(a, first + j * THREADS + threadIdx.x);
#pragma unroll
        for (u32 j = 0; j < AHEAD; j++) {
            const u32 at = first + j * THREADS;
            u32 *to = at < begin ? earlier : at < mine ? p.before : at < begin + BLOCK ? rest : later;
            const i32 expert = expert_of(ids[j], a.experts);
            if (expert >= 0) atomicAdd(&to[expert], 1);
            else if (p.last && at + threadIdx.x < a.entries) count_left(sizes() + 3, ids[j]);
        }
    }
    p.rank = match_count(p.counters, a.experts, p.expert);
    __syncthreads();
    const bool counts = p.share == 0 && p.block < a.blocks;
    const u32 tiles = lay_out(a, p.layout, p.last, [&](u32 e) {
        Pair pair = {};
#pragma unroll
        for (u32 j = 0; j < 2; j++)
            if (e + j < a.experts) {
                const u32 own = p.before[e + j] + rest[e + j];
                pair.earlier[j] = earlier[e + j], pair.all[j] = earlier[e + j] + own + later[e + j];
                if (counts) a.bcnt[(u64)p.block * a.experts + e + j] = own;
            }
        return pair;
    });
    finish(a, p, tiles);
}

// Counts of two experts in so many blocks are on their way together.
constexpr u32 AHEAD = 24;
DEVICE void load_pairs(const PlanArgs &a, u32 first, u32 pair, u32 *counts) {
    const u32 pairs = (a.experts + 1) / 2;
    const u32 *from = a.pairs + (u64)first * pairs + pair;
#pragma unroll
    for (u32 j = 0; j < AHEAD; j++) {
        counts[j] = first + j < a.blocks && pair < pairs ? *from : 0;
        from += pairs;
    }
}
// After plan_hist and, with many blocks, plan_sums.
template <bool SUMMED> DEVICE void place(const PlanArgs &a, Place &p) {
    load_entry(a, p);
    i32 ids[SHARES - 1]; // of the block's entries before
#pragma unroll
    for (u32 j = 0; j < SHARES - 1; j++) ids[j] = j < p.share ? id_of(a, p.block * BLOCK + j * THREADS + threadIdx.x) : -1;
    u32 counts[AHEAD];
    if (!SUMMED) load_pairs(a, 0, threadIdx.x, counts);
    p.rank = match_count(p.counters, a.experts, p.expert);
#pragma unroll
    for (u32 j = 0; j < SHARES - 1; j++)
        if (expert_of(ids[j], a.experts) >= 0) atomicAdd(&p.before[ids[j]], 1);
    if (p.last) sum_left(a);
    const u32 tiles = lay_out(a, p.layout, p.last, [&](u32 e) {
        Pair pair = {};
        if (SUMMED) {
#pragma unroll
            for (u32 j = 0; j < 2; j++)
                if (e + j < a.experts) pair.all[j] = a.totals[e + j], pair.earlier[j] = p.block < a.blocks ? a.pairs[(u64)p.block * a.experts + e + j] : 0;
            return pair;
        }
#pragma unroll 1
        for (u32 first = 0; first < a.blocks; first += AHEAD) {
            if (first > 0 || e >= 2 * THREADS) load_pairs(a, first, e / 2, counts);
            u32 all = 0, earlier = 0; // of two experts; a block has at most 1024
#pragma unroll
            for (u32 j = 0; j < AHEAD; j++) all += counts[j], earlier += first + j < p.block ? counts[j] : 0;
            pair.all[0] += all & 0xffff, pair.all[1] += all >> 16, pair.earlier[0] += earlier & 0xffff, pair.earlier[1] += earlier >> 16;
        }
        return pair;
    });
    finish(a, p, tiles);
}
static_assert(AHEAD * BLOCK < 1 << 16, "sums of counts are half a word");
extern "C" __global__ void __launch_bounds__(THREADS) plan_place(const __grid_constant__ PlanArgs a) {
    Place p = place_of(a, place_words(a.experts));
    after_previous();
    before_next();
    place<false>(a, p);
}
extern "C" __global__ void __launch_bounds__(THREADS) plan_place_summed(const __grid_constant__ PlanArgs a) {
    Place p = place_of(a, place_words(a.experts));
    after_previous();
    before_next();
    place<true>(a, p);
}

// ---- the other variants --------------------------------------------------------------------------------------------

// One block of threads: everything but pos and the rows of entries, once all counts are in the layout and left in the sizes.
DEVICE void scan(const PlanArgs &a, const Layout &l, bool padding) {
    const u32 tiles = lay_out(a, l, true, [&](u32 e) {
        Pair pair = {};
        if (e < a.experts) pair.all[0] = l.count[e];
        if (e + 1 < a.experts) pair.all[1] = l.count[e + 1];
        return pair;
    });
    write_sizes(a, l, tiles);
    for (u32 i = threadIdx.x; i < a.blocks * a.experts; i += BLOCK) a.boff[i] += l.row[i % a.experts];
    write_tiles(a, l, padding, threadIdx.x, BLOCK);
}
DEVICE void scan_counts(const PlanArgs &a, bool padding) {
    const Layout l = layout_of(a.experts);
    clear_sizes();
    __syncthreads();
    after_previous();
    before_next();
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) {
        u32 sum = 0;
        for (u32 b = 0; b < a.blocks; b++) {
            a.boff[(u64)b * a.experts + e] = sum;
            sum += a.bcnt[(u64)b * a.experts + e];
        }
        l.count[e] = sum;
    }
    sum_left(a);
    __syncthreads();
    scan(a, l, padding);
}
extern "C" __global__ void __launch_bounds__(1024) plan_scan(const __grid_constant__ PlanArgs a) { scan_counts(a, true); }
extern "C" __global__ void __launch_bounds__(1024) plan_scan_bare(const __grid_constant__ PlanArgs a) { scan_counts(a, false); }

// `fused`: hist and scan as one block of threads. Shared memory: the layout, and counts of one block of entries [E].
extern "C" __global__ void __launch_bounds__(1024) plan_hist_scan(const __grid_constant__ PlanArgs a) {
    const Layout l = layout_of(a.experts);
    u32 *own = memory + layout_words(a.experts);
    clear_sizes();
    after_previous();
    before_next();
#pragma unroll 1
    for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) l.count[e] = 0;
    for (u32 b = 0; b < a.blocks; b++) {
#pragma unroll 1
        for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) own[e] = 0;
        __syncthreads();
        const u32 i = b * BLOCK + threadIdx.x;
        if (i < a.entries) {
            const i32 id = a.ids[i], expert = expert_of(id, a.experts);
            if (expert >= 0) atomicAdd(&own[expert], 1);
            else count_left(sizes() + 3, id);
        }
        __syncthreads();
#pragma unroll 1
        for (u32 e = threadIdx.x; e < a.experts; e += BLOCK) {
            a.bcnt[(u64)b * a.experts + e] = own[e], a.boff[(u64)b * a.experts + e] = l.count[e];
            l.count[e] += own[e];
        }
        __syncthreads();
    }
    __syncthreads();
    scan(a, l, true);
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
    const i32 expert = expert_of(id_of(a, entry()), a.experts);
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
    const i32 expert = expert_of(id_of(a, entry()), a.experts);
    ids[threadIdx.x] = expert;
    for (u32 i = threadIdx.x; i < PLAN_COUNTERS * a.experts; i += BLOCK) counters[i] = 0;
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
    const i32 expert = expert_of(id_of(a, entry()), a.experts);
    const u32 rank = match_count(memory, a.experts, expert);
    __syncthreads();
    const u32 row = expert < 0 ? 0 : a.boff[(u64)blockIdx.x * a.experts + expert] + match_before(memory, a.experts, expert) + rank;
    write_entry(a, expert, row);
}
