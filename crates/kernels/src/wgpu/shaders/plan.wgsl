// The plan: argon_plan's hist, scan and place; the same words, to the bit. The crate's documentation shows a small one.
//
// hist           a workgroup for each block of 1024 entries: counts of each expert into bcnt; what it leaves out into skipped
// scan_blocks    a thread for each expert: its entries in earlier blocks into boff, in all blocks into counts
// scan_experts   one workgroup: first rows of the experts into eoff, and meta
// scan_rows      a workgroup for each expert: its first row into boff; its tiles; its padding rows
// place          a workgroup for each block: each entry's row into pos, and its token and weight into that row

struct Params {
    ids: View,
    weights: View,
    bcnt: View,
    boff: View,
    eoff: View,
    tiles: View,
    stok: View,
    sw: View,
    pos: View,
    meta_words: View,
    count: u32,
    entries: u32,
    top_k: u32,
    experts: u32,
    tile: u32,
    blocks: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> ids: array<i32>;
@group(0) @binding(2) var<storage, read_write> weights: array<u32>;
@group(0) @binding(3) var<storage, read_write> bcnt: array<u32>;
@group(0) @binding(4) var<storage, read_write> boff: array<u32>;
@group(0) @binding(5) var<storage, read_write> eoff: array<u32>;
@group(0) @binding(6) var<storage, read_write> tiles: array<u32>;
@group(0) @binding(7) var<storage, read_write> stok: array<i32>;
@group(0) @binding(8) var<storage, read_write> sw: array<u32>;
@group(0) @binding(9) var<storage, read_write> pos: array<i32>;
@group(0) @binding(10) var<storage, read_write> meta_words: array<u32>;
@group(0) @binding(11) var<storage, read_write> counts: array<u32>;  // [E]
@group(0) @binding(12) var<storage, read_write> left_out: array<vec2<u32>>; // [blocks]: skipped, rejected

const BLOCK = 1024u;
const RANGE = 2048u; // experts that hist counts at a time

var<workgroup> in_range: array<atomic<u32>, RANGE>;
var<workgroup> skipped: atomic<u32>;
var<workgroup> rejected: atomic<u32>;

@compute @workgroup_size(256)
fn hist(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let block = group_number(group, groups);
    if block >= p.count {
        return;
    }
    let first = block * BLOCK;
    let last = min(first + BLOCK, p.entries);
    if thread == 0u {
        atomicStore(&skipped, 0u);
        atomicStore(&rejected, 0u);
    }
    for (var begin = 0u; begin < p.experts; begin += RANGE) {
        let here = min(RANGE, p.experts - begin);
        for (var e = thread; e < here; e += 256u) {
            atomicStore(&in_range[e], 0u);
        }
        workgroupBarrier();
        for (var i = first + thread; i < last; i += 256u) {
            let id = ids[p.ids.first + i];
            let expert = bitcast<u32>(id);
            if expert >= begin && expert - begin < here {
                atomicAdd(&in_range[expert - begin], 1u);
            }
            if begin == 0u && id == -1 {
                atomicAdd(&skipped, 1u);
            } else if begin == 0u && expert >= p.experts {
                atomicAdd(&rejected, 1u);
            }
        }
        workgroupBarrier();
        for (var e = thread; e < here; e += 256u) {
            bcnt[p.bcnt.first + block * p.experts + begin + e] = atomicLoad(&in_range[e]);
        }
        workgroupBarrier();
    }
    if thread == 0u {
        left_out[block] = vec2(atomicLoad(&skipped), atomicLoad(&rejected));
    }
}

@compute @workgroup_size(256)
fn scan_blocks(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let expert = group_number(group, groups) * 256u + thread;
    if expert >= p.experts {
        return;
    }
    var before = 0u;
    for (var block = 0u; block < p.blocks; block++) {
        boff[p.boff.first + block * p.experts + expert] = before;
        before += bcnt[p.bcnt.first + block * p.experts + expert];
    }
    counts[expert] = before;
}

var<workgroup> sums: array<vec4<u32>, 256>;

// Sums of (tiles, entries, active experts) and the maximum of entries, up to and including each thread's.
fn running(thread: u32, mine: vec4<u32>) -> vec4<u32> {
    sums[thread] = mine;
    for (var step = 1u; step < 256u; step <<= 1u) {
        workgroupBarrier();
        var before = vec4(0u);
        if thread >= step {
            before = sums[thread - step];
        }
        workgroupBarrier();
        let own = sums[thread];
        sums[thread] = vec4(own.xyz + before.xyz, max(own.w, before.w));
    }
    workgroupBarrier();
    return sums[thread];
}

@compute @workgroup_size(256)
fn scan_experts(@builtin(local_invocation_index) thread: u32) {
    let each = (p.experts + 255u) / 256u; // experts of a thread, side by side
    let first = min(thread * each, p.experts);
    let last = min(first + each, p.experts);
    var mine = vec4(0u);
    for (var e = first; e < last; e++) {
        let n = counts[e];
        mine = vec4(mine.x + (n + p.tile - 1u) / p.tile, mine.y + n, mine.z + u32(n > 0u), max(mine.w, n));
    }
    let all = running(thread, mine);
    var row = (all.x - mine.x) * p.tile;
    for (var e = first; e < last; e++) {
        eoff[p.eoff.first + e] = row;
        row += (counts[e] + p.tile - 1u) / p.tile * p.tile;
    }
    if thread == 255u {
        eoff[p.eoff.first + p.experts] = all.x * p.tile;
        let to = p.meta_words.first;
        meta_words[to] = all.x;
        meta_words[to + 1u] = all.x * p.tile;
        meta_words[to + 2u] = all.y;
        meta_words[to + 3u] = all.z;
        meta_words[to + 4u] = all.w;
        meta_words[to + 5u] = p.tile;
        meta_words[to + 6u] = p.blocks;
        meta_words[to + 7u] = p.entries;
        var left = vec2(0u);
        for (var block = 0u; block < p.blocks; block++) {
            left += left_out[block];
        }
        meta_words[to + 8u] = left.x;
        meta_words[to + 9u] = left.y;
        meta_words[to + 10u] = 0u;
    }
}

@compute @workgroup_size(64)
fn scan_rows(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let expert = group_number(group, groups);
    if expert >= p.count {
        return;
    }
    let first = eoff[p.eoff.first + expert];
    let n = counts[expert];
    for (var block = thread; block < p.blocks; block += 64u) {
        boff[p.boff.first + block * p.experts + expert] += first;
    }
    for (var j = thread; j * p.tile < n; j += 64u) {
        let to = p.tiles.first + 3u * (first / p.tile + j);
        tiles[to] = expert;
        tiles[to + 1u] = first + j * p.tile;
        tiles[to + 2u] = min(n - j * p.tile, p.tile);
    }
    let end = (n + p.tile - 1u) / p.tile * p.tile;
    for (var row = n + thread; row < end; row += 64u) {
        stok[p.stok.first + first + row] = -1;
        sw[p.sw.first + first + row] = 0u;
    }
}

var<workgroup> block_ids: array<vec4<i32>, 256>;

@compute @workgroup_size(256)
fn place(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let block = group_number(group, groups);
    if block >= p.count {
        return;
    }
    let first = block * BLOCK;
    var four = vec4(-1);
    for (var j = 0u; j < 4u; j++) {
        let i = first + 4u * thread + j;
        if i < p.entries {
            four[j] = ids[p.ids.first + i];
        }
    }
    block_ids[thread] = four;
    workgroupBarrier();
    // Entries of the block before this thread's four, with the same expert as each.
    var ranks = vec4(0u);
    for (var other = 0u; other < thread; other++) {
        let theirs = block_ids[other];
        ranks += vec4<u32>(theirs.xxxx == four) + vec4<u32>(theirs.yyyy == four) + vec4<u32>(theirs.zzzz == four)
            + vec4<u32>(theirs.wwww == four);
    }
    ranks += vec4(0u, u32(four.x == four.y), u32(four.x == four.z) + u32(four.y == four.z),
        u32(four.x == four.w) + u32(four.y == four.w) + u32(four.z == four.w));
    for (var j = 0u; j < 4u; j++) {
        let i = first + 4u * thread + j;
        if i >= p.entries {
            break;
        }
        let expert = bitcast<u32>(four[j]);
        var row = -1;
        if expert < p.experts {
            let to = boff[p.boff.first + block * p.experts + expert] + ranks[j];
            stok[p.stok.first + to] = i32(i / p.top_k);
            sw[p.sw.first + to] = weights[p.weights.first + i];
            row = bitcast<i32>(to);
        }
        pos[p.pos.first + i] = row;
    }
}
