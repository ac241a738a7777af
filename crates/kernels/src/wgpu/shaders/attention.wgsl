// out[t, h] = softmax over the visible keys j of (scale * q[t, h] . k[j]) v[j], times sigmoid(gate); a workgroup for each
// token, head and run of 256 columns of v.
//
// Keys come 64 at a time: a thread makes one score, then each thread owns columns of the output and adds all 64 rows of v.
// The highest score so far is kept, and what was added before is scaled when it grows.

struct Params {
    q: View,
    k: View,
    v: View,
    gate: View,
    blocks: View,
    out: View,
    count: u32,
    heads: u32,
    share: u32,      // query heads for one key head
    pos0: u32,
    scale: f32,
    half_k: u32,
    half_v: u32,
    has_gate: u32,
    selects: u32,
    ratio: u32,      // tokens in a block
    column_runs: u32,
    first: u32,      // number of the first workgroup
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> q: array<f32>;
@group(0) @binding(2) var<storage, read_write> k: array<u32>;
@group(0) @binding(3) var<storage, read_write> v: array<u32>;
@group(0) @binding(4) var<storage, read_write> gate: array<f32>;
@group(0) @binding(5) var<storage, read_write> blocks: array<i32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

const THREADS = 64u;
const COLUMNS = 4u; // of the output, for each thread

var<workgroup> scores: array<f32, THREADS>;
var<workgroup> rows: array<u32, THREADS>; // of v: its first element; all ones where there is no key

fn k_at(i: u32) -> f32 {
    if p.half_k == 1u {
        return half_to_float((k[i >> 1u] >> (16u * (i & 1u))) & 0xffffu);
    }
    return bitcast<f32>(k[i]);
}

fn v_at(i: u32) -> f32 {
    if p.half_v == 1u {
        return half_to_float((v[i >> 1u] >> (16u * (i & 1u))) & 0xffffu);
    }
    return bitcast<f32>(v[i]);
}

// The key at place `slot` of those that a query may see, -1 if there is none.
fn key_at(slot: u32, token: u32, position: u32) -> i32 {
    if p.selects == 0u {
        return i32(slot);
    }
    let selected = p.blocks.cols * p.ratio;
    if slot >= selected {
        return i32((position + 1u) / p.ratio * p.ratio + slot - selected);
    }
    let block = blocks[at(p.blocks, token, 0u) + slot / p.ratio];
    return select(block * i32(p.ratio) + i32(slot % p.ratio), -1, block < 0);
}

@compute @workgroup_size(THREADS)
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let number = group_number(group, groups) + p.first;
    if number >= p.count {
        return;
    }
    let column = number % p.column_runs * THREADS * COLUMNS + thread;
    let head = number / p.column_runs % p.heads;
    let token = number / p.column_runs / p.heads;
    let position = p.pos0 + token;
    let query = at(p.q, token, head);
    var slots = position + 1u;
    if p.selects == 1u {
        slots = p.blocks.cols * p.ratio + (position + 1u) % p.ratio;
    }
    var sums = array<f32, COLUMNS>(0.0, 0.0, 0.0, 0.0);
    var total = 0.0;
    var highest = bitcast<f32>(0xff7fffffu); // the lowest number there is
    for (var first = 0u; first < slots; first += THREADS) {
        var key = -1;
        if first + thread < slots {
            key = key_at(first + thread, token, position);
        }
        if key >= 0 && u32(key) <= position {
            let begin = at(p.k, u32(key), head / p.share);
            var dot = 0.0;
            for (var c = 0u; c < p.q.cols; c++) {
                dot += q[query + c] * k_at(begin + c);
            }
            scores[thread] = dot * p.scale;
            rows[thread] = at(p.v, u32(key), head / p.share);
        } else {
            rows[thread] = 0xffffffffu;
        }
        workgroupBarrier();
        var most = highest;
        for (var i = 0u; i < THREADS; i++) {
            if rows[i] != 0xffffffffu {
                most = max(most, scores[i]);
            }
        }
        let shrink = exponential(highest - most);
        highest = most;
        total *= shrink;
        for (var i = 0u; i < COLUMNS; i++) {
            sums[i] *= shrink;
        }
        // Each exponential once.
        workgroupBarrier();
        scores[thread] = exponential(scores[thread] - highest);
        workgroupBarrier();
        for (var i = 0u; i < THREADS; i++) {
            let row = rows[i];
            if row != 0xffffffffu {
                let weight = scores[i];
                total += weight;
                for (var j = 0u; j < COLUMNS; j++) {
                    if column + j * THREADS < p.v.cols {
                        sums[j] += weight * v_at(row + column + j * THREADS);
                    }
                }
            }
        }
        workgroupBarrier();
    }
    let to = at(p.out, token, head);
    let gates = at(p.gate, token, head);
    for (var j = 0u; j < COLUMNS; j++) {
        let c = column + j * THREADS;
        if c < p.v.cols {
            // A sum that is not a number stays so.
            var y = select(sums[j] / total, 0.0, total == 0.0);
            if p.has_gate == 1u {
                y *= sigmoid(gate[gates + c]);
            }
            out[to + c] = y;
        }
    }
}
