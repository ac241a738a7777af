// The plan: argon_plan's hist, scan and place; the same words, to the bit. The crate's documentation shows a small one.
//
// plan_hist      a workgroup for each block of 1024 entries: counts of each expert into bcnt; what it leaves out into skipped
// plan_sums      a thread for each expert: its entries in earlier blocks into boff, in all blocks into counts
// plan_scan      one workgroup: first rows of the experts into eoff, and meta
// plan_rows      a workgroup for each expert: its first row into boff; its tiles; its padding rows
// plan_place     a workgroup for each block: each entry's row into pos, and its token and weight into that row
// plan_alone     all of that by one workgroup, where there is at most one block, of at most RANGE experts
//
// How threads order what they hold is in order.wgsl, or order_subgroups.wgsl.

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

// Counts the entries of a block whose experts are `begin` .. `begin + here`, and with `begin` 0 those it leaves out.
fn count(thread: u32, block: u32, begin: u32, here: u32) {
    let first = block * BLOCK;
    let last = min(first + BLOCK, p.entries);
    if begin == 0u && thread == 0u {
        atomicStore(&skipped, 0u);
        atomicStore(&rejected, 0u);
    }
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
}

fn write_counts(thread: u32, block: u32, begin: u32, here: u32) {
    for (var e = thread; e < here; e += 256u) {
        bcnt[p.bcnt.first + block * p.experts + begin + e] = atomicLoad(&in_range[e]);
    }
}

@compute @workgroup_size(256)
fn plan_hist(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let block = group_number(group, groups);
    if block >= p.count {
        return;
    }
    for (var begin = 0u; begin < p.experts; begin += RANGE) {
        let here = min(RANGE, p.experts - begin);
        count(thread, block, begin, here);
        write_counts(thread, block, begin, here);
        workgroupBarrier();
    }
    if thread == 0u {
        left_out[block] = vec2(atomicLoad(&skipped), atomicLoad(&rejected));
    }
}

@compute @workgroup_size(256)
fn plan_sums(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
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

fn tiles_of(n: u32) -> u32 {
    return (n + p.tile - 1u) / p.tile;
}

// Of (tiles, entries, active experts, entries of the largest expert), one expert more.
fn with_expert(sums: vec4<u32>, n: u32) -> vec4<u32> {
    return vec4(sums.x + tiles_of(n), sums.y + n, sums.z + u32(n > 0u), max(sums.w, n));
}

fn write_meta(sums: vec4<u32>, left: vec2<u32>) {
    eoff[p.eoff.first + p.experts] = sums.x * p.tile;
    let to = p.meta_words.first;
    meta_words[to + META_TILES] = sums.x;
    meta_words[to + META_ROWS] = sums.x * p.tile;
    meta_words[to + META_KEPT] = sums.y;
    meta_words[to + META_ACTIVE] = sums.z;
    meta_words[to + META_LARGEST] = sums.w;
    meta_words[to + META_TILE] = p.tile;
    meta_words[to + META_BLOCKS] = p.blocks;
    meta_words[to + META_ENTRIES] = p.entries;
    meta_words[to + META_SKIPPED] = left.x;
    meta_words[to + META_REJECTED] = left.y;
    meta_words[to + META_RESERVED] = 0u;
}

// Entries of an expert: `alone` where this workgroup has counted them, else the sums of all blocks.
fn size_of(e: u32, alone: bool) -> u32 {
    if alone {
        return atomicLoad(&in_range[e]);
    }
    return counts[e];
}

// What a place is given of the experts.
struct Share {
    first: u32,     // experts first .. last, side by side
    last: u32,
    row: u32,       // of `first`
    all: vec4<u32>, // sums up to its last expert
}

fn share_of(place: Place, alone: bool) -> Share {
    let each = (p.experts + 255u) / 256u;
    let first = min((place.first + place.lane) * each, p.experts);
    let last = min(first + each, p.experts);
    var mine = vec4(0u);
    for (var e = first; e < last; e++) {
        mine = with_expert(mine, size_of(e, alone));
    }
    let all = running(place, mine);
    return Share(first, last, (all.x - mine.x) * p.tile, all);
}

@compute @workgroup_size(256)
fn plan_scan(@builtin(local_invocation_index) thread: u32) {
    let place = take_place(thread);
    let share = share_of(place, false);
    var row = share.row;
    for (var e = share.first; e < share.last; e++) {
        eoff[p.eoff.first + e] = row;
        row += tiles_of(counts[e]) * p.tile;
    }
    if place.first + place.lane == 255u {
        var left = vec2(0u);
        for (var block = 0u; block < p.blocks; block++) {
            left += left_out[block];
        }
        write_meta(share.all, left);
    }
}

// Tiles, and rows that are padding, of an expert that has `n` entries from row `first` on; a share of `threads`.
fn write_rows(thread: u32, threads: u32, expert: u32, first: u32, n: u32) {
    for (var j = thread; j * p.tile < n; j += threads) {
        let to = p.tiles.first + 3u * (first / p.tile + j);
        tiles[to] = expert;
        tiles[to + 1u] = first + j * p.tile;
        tiles[to + 2u] = min(n - j * p.tile, p.tile);
    }
    for (var row = n + thread; row < tiles_of(n) * p.tile; row += threads) {
        stok[p.stok.first + first + row] = -1;
        sw[p.sw.first + first + row] = 0u;
    }
}

@compute @workgroup_size(64)
fn plan_rows(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let expert = group_number(group, groups);
    if expert >= p.count {
        return;
    }
    let first = eoff[p.eoff.first + expert];
    let n = counts[expert];
    for (var block = thread; block < p.blocks; block += 64u) {
        boff[p.boff.first + block * p.experts + expert] += first;
    }
    write_rows(thread, 64u, expert, first, n);
}

// The experts of four entries of a block, those of a place; p.experts for one that is left out, or not there.
fn experts_at(at: u32, block: u32) -> vec4<u32> {
    var four = vec4(p.experts);
    for (var j = 0u; j < 4u; j++) {
        let i = block * BLOCK + 4u * at + j;
        if i < p.entries {
            four[j] = min(bitcast<u32>(ids[p.ids.first + i]), p.experts);
        }
    }
    return four;
}

// Which of four entries have earlier ones of the four with the same expert, and how many.
fn ranks_of_four(four: vec4<u32>) -> vec4<u32> {
    return vec4(0u, u32(four.x == four.y), u32(four.x == four.z) + u32(four.y == four.z),
        u32(four.x == four.w) + u32(four.y == four.w) + u32(four.z == four.w));
}

// Rows of the four entries of a place.
fn place_four(at: u32, block: u32, four: vec4<u32>, ranks: vec4<u32>) {
    for (var j = 0u; j < 4u; j++) {
        let i = block * BLOCK + 4u * at + j;
        if i >= p.entries {
            break;
        }
        var row = -1;
        if four[j] < p.experts {
            let to = boff[p.boff.first + block * p.experts + four[j]] + ranks[j];
            stok[p.stok.first + to] = i32(i / p.top_k);
            sw[p.sw.first + to] = weights[p.weights.first + i];
            row = bitcast<i32>(to);
        }
        pos[p.pos.first + i] = row;
    }
}

@compute @workgroup_size(256)
fn plan_place(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let block = group_number(group, groups);
    if block >= p.count {
        return;
    }
    let place = take_place(thread);
    let four = experts_at(place.first + place.lane, block);
    place_four(place.first + place.lane, block, four, ranks(place, thread, four));
}

@compute @workgroup_size(256)
fn plan_alone(@builtin(local_invocation_index) thread: u32) {
    let place = take_place(thread);
    let at = place.first + place.lane;
    count(thread, 0u, 0u, p.experts);
    if p.blocks > 0u {
        write_counts(thread, 0u, 0u, p.experts);
    }
    let share = share_of(place, true);
    var row = share.row;
    for (var e = share.first; e < share.last; e++) {
        let n = size_of(e, true);
        eoff[p.eoff.first + e] = row;
        if p.blocks > 0u {
            boff[p.boff.first + e] = row;
        }
        write_rows(0u, 1u, e, row, n);
        row += tiles_of(n) * p.tile;
    }
    if at == 255u {
        write_meta(share.all, vec2(atomicLoad(&skipped), atomicLoad(&rejected)));
    }
    storageBarrier();
    workgroupBarrier();
    let four = experts_at(at, 0u);
    place_four(at, 0u, four, ranks(place, thread, four));
}
